"""GPT: token embeddings, blocks of attention and feed-forward, and a head over the vocabulary."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshead.attention.cache import Cache, GrowingCache
from glasshead.attention.mask import Mask
from glasshead.errors import ConfigError, ShapeError, check_range
from glasshead.model.layers import NORMS, Block, check_numbers, look_up, make_positions

__all__ = ["GPT", "GPTConfig"]


@dataclass(frozen=True)
class GPTConfig:
    """What a GPT is made of. Every field is a flag of `glasshead train`.

    It covers everything from a bigram table (no layers) to the models of today:

    >>> GPT(GPTConfig(vocab_size=6148, max_len=8, n_layers=0, d_model=32, positions="none"))
    GPT of 399,620 parameters
    """

    vocab_size: int  # number of token ids
    max_len: int = 256  # longest text to train on; learned positions end there
    n_layers: int = 4  # number of blocks
    n_heads: int = 4  # attention heads per layer
    n_kv_heads: int | None = None  # fewer than n_heads: grouped-query attention
    d_model: int = 128  # width of the residual stream
    d_head: int | None = None  # width of a head; d_model / n_heads if not given
    d_ff: int | None = None  # width of the feed-forward; 4 x d_model (swiglu: 8/3) if not given
    positions: str = "learned"  # none, learned, sinusoidal, sinusoidal-split, rotary, alibi
    rope_base: float = 10_000.0  # of rotary positions
    rope_scaling: str | None = None  # linear:4, llama3:8,1,4,8192 or yarn:4,32,1,32768
    window: int | None = None  # how many tokens back attention sees
    feed_forward: str = "gelu"  # relu, gelu, gelu-tanh, silu, relu2, swiglu, linear-relu, none
    norm: str = "layer"  # layer, rms
    norm_place: str = "pre"  # pre, post, none
    norm_eps: float = 1e-5  # added to the variance in norms
    residual: bool = True  # add the input of each sublayer to its output
    project: bool = True  # project the merged heads
    qkv_bias: bool = False  # bias of queries, keys and values
    bias: bool = True  # bias of all other linear layers in the blocks
    out_bias: bool | None = None  # bias of the projection after attention; as bias if not given
    head_bias: bool = True  # bias of the output layer
    tied: bool = False  # use the embedding table as the output layer
    qk_norm: bool = False  # normalise queries and keys
    qk_eps: float = 1e-6  # as norm_eps, for qk_norm
    softcap: float | None = None  # limit of attention scores
    logit_softcap: float | None = None  # limit of logits
    dropout: float = 0.0  # of attention weights, projections and feed-forwards
    init: str = "torch"  # torch: its defaults; gpt2: normal 0.02, smaller into the residual
    backend: str = "auto"  # of attention: auto, explicit, sdpa, flex

    def __post_init__(self) -> None:
        check_numbers(self)
        check_range(self, "n_layers", least=0)
        if self.tied and self.head_bias:
            raise ConfigError(
                "a tied head is the embedding table and has no bias",
                hint="set head_bias=False, or tied=False",
            )

    @property
    def weight_dropout(self) -> float:
        return self.dropout


class GPT(nn.Module):
    """Predicts each token from those before it.

    >>> model = GPT(GPTConfig(vocab_size=7, n_layers=2, d_model=16))
    >>> model(torch.arange(5)[None]).shape  # (B, T, V)
    torch.Size([1, 5, 7])
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = make_positions(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.norm: nn.Module = nn.Identity()
        if config.norm_place == "pre" and config.n_layers:
            self.norm = look_up(NORMS, config.norm, "norm")(config.d_model, eps=config.norm_eps)
        self.head = nn.Linear(config.d_model, config.vocab_size, bias=config.head_bias)
        if config.tied:
            self.head.weight = self.embedding.weight
        look_up({"torch": lambda: None, "gpt2": self._init_gpt2}, config.init, "init")()

    def forward(
        self,
        ids: Tensor,
        *,
        mask: Mask | None = None,
        positions: Tensor | None = None,
        caches: Sequence[Cache] | None = None,
    ) -> Tensor:
        """Return logits (B, T, V) for the token after each of ids (B, T).

        Args:
            mask: limits besides causality: padding, documents.
            positions: (T,) or (B, T); if None, those after the cached ones.
            caches: one per layer (`new_caches`), to which keys and values are appended.
        """
        return self.logits(self.features(ids, mask=mask, positions=positions, caches=caches))

    def features(
        self,
        ids: Tensor,
        *,
        mask: Mask | None = None,
        positions: Tensor | None = None,
        caches: Sequence[Cache] | None = None,
    ) -> Tensor:
        """Return the residual stream (B, T, C) after the last block and norm."""
        if ids.dim() != 2:
            raise ShapeError(
                f"ids has shape {tuple(ids.shape)}, but (B, T) is needed",
                hint="a single text is a batch of one: ids[None]",
            )
        if positions is None:
            start = caches[0].length if caches else 0
            positions = torch.arange(start, start + ids.shape[1], device=ids.device)
        rules = Mask(causal=True, window=self.config.window)
        rules = rules if mask is None else rules & mask
        x = self.positions.embed(self.embedding(ids), positions)  # (B, T, C)
        if x.is_cuda and torch.is_autocast_enabled("cuda"):
            # autocast alone leaves the residual stream in float32. In bf16, everything that is not
            # a product, a third of a step, reads and writes half the bytes.
            bf16 = torch.get_autocast_dtype("cuda") == torch.bfloat16
            x = x.bfloat16() if bf16 else x
        rotation, slopes = self.positions.rotation(positions), self.positions.slopes()
        for layer, block in enumerate(self.blocks):
            x = block(x, rules, rotation, slopes, caches[layer] if caches else None)
        return self.norm(x)

    def logits(self, x: Tensor) -> Tensor:
        """Apply the output layer: (B, T, C) -> (B, T, V)."""
        logits = self.head(x)
        cap = self.config.logit_softcap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def new_caches(self) -> list[Cache]:
        return [GrowingCache() for _ in self.blocks]

    def _init_gpt2(self) -> None:
        into_residual = 0.02 / math.sqrt(max(1, 2 * self.config.n_layers))
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                narrow = name.endswith(("attention.out", "feed_forward.down"))
                nn.init.normal_(module.weight, std=into_residual if narrow else 0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def __repr__(self) -> str:
        return f"GPT of {sum(p.numel() for p in self.parameters()):,} parameters"
