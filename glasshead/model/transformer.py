"""The Transformer of the paper: an encoder reads, a decoder writes and looks at what was read.

    memory = model.encode(source)                 # (B, S) ids, read once
    x = model.features(target_in, memory)         # (B, T, C)
    logits = model.logits(x)                      # (B, T, V): the id after each of target_in

Padding is found by its id. On whichever side it stands, it is never looked at and takes no
position, so it changes nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from glasshead.attention.cache import Cache, GrowingCache, MemoryCache
from glasshead.attention.mask import Mask
from glasshead.errors import ConfigError, ShapeError, check_range
from glasshead.model.layers import NORMS, Block, CrossBlock, check_numbers, look_up, make_positions

__all__ = [
    "Decoder", "Encoder", "LayerCaches", "Memory", "Reader", "Transformer", "TransformerConfig",
]  # fmt: skip


@dataclass(frozen=True)
class TransformerConfig:
    """What a Transformer is made of. Every field is a flag of `glasshead train --pairs`.

    >>> Transformer(TransformerConfig(vocab_size=1000, d_model=64, n_layers=2))
    Transformer of 297,728 parameters
    """

    vocab_size: int  # number of token ids
    max_len: int = 256  # longest sentence to train on; learned positions end there
    n_layers: int = 4  # number of blocks of the encoder
    n_decoder_layers: int | None = None  # blocks of the decoder; n_layers if not given
    n_heads: int = 4  # attention heads per layer
    n_kv_heads: int | None = None  # fewer than n_heads: grouped-query attention
    d_model: int = 256  # width of the residual stream
    d_head: int | None = None  # width of a head; d_model / n_heads if not given
    d_ff: int | None = None  # width of the feed-forward; 4 x d_model (swiglu: 8/3) if not given
    positions: str = "sinusoidal"  # none, learned, sinusoidal, sinusoidal-split, rotary, alibi
    rope_base: float = 10_000.0  # of rotary positions
    feed_forward: str = "relu"  # relu, gelu, gelu-tanh, silu, relu2, swiglu, linear-relu, none
    norm: str = "layer"  # layer, rms
    norm_place: str = "pre"  # pre, post (the paper), none
    norm_eps: float = 1e-5  # added to the variance in norms
    qkv_bias: bool = True  # bias of queries, keys and values
    bias: bool = True  # bias of all other linear layers in the blocks
    shared: bool = True  # one embedding table for source and target
    tied: bool = True  # use the target's embedding table as the output layer
    qk_norm: bool = False  # normalise queries and keys
    softcap: float | None = None  # limit of attention scores
    dropout: float = 0.1  # of embeddings, projections and feed-forwards
    weight_dropout: float = 0.0  # of attention weights
    init: str = "xavier"  # xavier, torch
    pad: int = 0  # the id of padding
    scaled: bool = True  # multiply embeddings by sqrt(d_model)
    embed_norm: bool = False  # normalise embeddings and positions
    n_segments: int = 0  # number of segment embeddings, of which the first is used (BERT)
    head_bias: bool = False  # bias of the output layer
    starts_with_pad: bool = False  # start translations with the id of padding (Marian)
    backend: str = "auto"  # of attention: auto, explicit, sdpa, flex

    def __post_init__(self) -> None:
        check_numbers(self)
        check_range(self, "n_layers", least=1)
        check_range(self, "n_segments", least=0)
        if not 0 <= self.pad < self.vocab_size:
            raise ConfigError(
                f"pad ({self.pad}) must be an id, at least 0 and less than {self.vocab_size}",
                hint="use the id of <pad>",
            )

    @property
    def residual(self) -> bool:
        return True

    @property
    def project(self) -> bool:
        return True

    @property
    def out_bias(self) -> bool:
        return self.bias

    @property
    def qk_eps(self) -> float:
        return 1e-6

    @property
    def rope_scaling(self) -> None:
        return None


@dataclass(frozen=True, eq=False)
class Memory:
    """The output of the encoder for a batch of sources."""

    x: Tensor  # (B, S, C)
    keys: Tensor  # (B, S) bool, False for padding

    def rows(self, rows: Tensor) -> "Memory":
        """Select sequences: row b of the result is row rows[b] of this one."""
        return Memory(self.x[rows], self.keys[rows])


class LayerCaches(NamedTuple):
    """The caches of one layer of the decoder: its own tokens, and the encoder's output."""

    own: Cache
    cross: Cache

    def reorder(self, rows: Tensor) -> None:
        for cache in self:
            cache.reorder(rows)


class _Embedding(nn.Module):
    """Token embeddings times sqrt(d_model), plus positions.

    `scaled`, `embed_norm` and `n_segments` adapt it to other families of models.
    """

    def __init__(self, config: TransformerConfig, table: nn.Embedding | None = None) -> None:
        super().__init__()
        self.table = table or nn.Embedding(config.vocab_size, config.d_model)
        self.positions = make_positions(config)
        self.dropout = nn.Dropout(config.dropout)
        self.scale = math.sqrt(config.d_model) if config.scaled else 1.0
        self.segments: nn.Embedding | None = None
        if config.n_segments:
            self.segments = nn.Embedding(config.n_segments, config.d_model)
        self.norm: nn.Module = nn.Identity()
        if config.embed_norm:
            self.norm = look_up(NORMS, config.norm, "norm")(config.d_model, eps=config.norm_eps)

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        x = self.table(ids) * self.scale  # (B, T, C)
        if self.segments is not None:
            x = x + self.segments.weight[0]
        return self.dropout(self.norm(self.positions.embed(x, positions)))


class Encoder(nn.Module):
    """Encodes ids (B, S) as (B, S, C); every position attends to every other."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = _Embedding(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.norm = _last_norm(config)
        _initialise(self, config)

    def forward(self, ids: Tensor) -> Tensor:
        _check_ids("ids", ids)
        keys = ids != self.config.pad
        positions, places = _positions(keys), self.embedding.positions
        x, mask = self.embedding(ids, positions), Mask(keys=keys)
        rotation, slopes = places.rotation(positions), places.slopes()
        for block in self.blocks:
            x = block(x, mask, rotation, slopes)
        return self.norm(x)


class Decoder(nn.Module):
    """Every position attends to those before it, and to the memory."""

    def __init__(self, config: TransformerConfig, table: nn.Embedding | None = None) -> None:
        super().__init__()
        self.config = config
        self.embedding = _Embedding(config, table)
        n_layers = config.n_decoder_layers or config.n_layers
        self.blocks = nn.ModuleList(CrossBlock(config) for _ in range(n_layers))
        self.norm = _last_norm(config)
        _initialise(self, config)

    def forward(
        self, ids: Tensor, memory: Memory, caches: Sequence[LayerCaches] | None = None
    ) -> Tensor:
        _check_ids("target_in", ids)
        rules = Mask(causal=True)
        if caches:
            start = caches[0].own.length
            positions = torch.arange(start, start + ids.shape[1], device=ids.device)
        else:
            keys = ids != self.config.pad
            if self.config.starts_with_pad:
                keys[:, 0] = True
            positions, rules = _positions(keys), Mask(causal=True, keys=keys)
        places = self.embedding.positions
        x, memory_mask = self.embedding(ids, positions), Mask(keys=memory.keys)
        rotation, slopes = places.rotation(positions), places.slopes()
        for layer, block in enumerate(self.blocks):
            cache = caches[layer] if caches else None
            x = block(x, rules, memory.x, memory_mask, rotation, slopes, cache)
        return self.norm(x)


class Transformer(nn.Module):
    """Predicts each token of a translation from the source and the tokens before it.

    >>> model = Transformer(TransformerConfig(vocab_size=11, d_model=16, n_layers=1))
    >>> source, target_in = torch.arange(1, 6)[None], torch.arange(1, 4)[None]
    >>> model(source, target_in).shape  # (B, T, V)
    torch.Size([1, 3, 11])
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = Decoder(config, self.encoder.embedding.table if config.shared else None)
        self.head = _head(config, self.decoder.embedding.table)

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """Return logits (B, T, V) for the token after each of target_in (B, T)."""
        return self.logits(self.features(target_in, self.encode(source)))

    def encode(self, source: Tensor) -> Memory:
        return Memory(self.encoder(source), source != self.config.pad)

    def features(
        self, target_in: Tensor, memory: Memory, caches: Sequence[LayerCaches] | None = None
    ) -> Tensor:
        """Return the decoder's residual stream (B, T, C) after the last block and norm.

        With caches (`new_caches`), target_in has only the new tokens, and no padding.
        """
        return self.decoder(target_in, memory, caches)

    def logits(self, x: Tensor) -> Tensor:
        return self.head(x)

    def new_caches(self) -> list[LayerCaches]:
        return [LayerCaches(GrowingCache(), MemoryCache()) for _ in self.decoder.blocks]

    def __repr__(self) -> str:
        return f"Transformer of {sum(p.numel() for p in self.parameters()):,} parameters"


class Reader(nn.Module):
    """An encoder that predicts a token at every position."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.head = _head(config, self.encoder.embedding.table)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits (B, S, V) at each of ids (B, S)."""
        return self.head(self.encoder(ids))

    def __repr__(self) -> str:
        return f"Reader of {sum(p.numel() for p in self.parameters()):,} parameters"


def _last_norm(config: TransformerConfig) -> nn.Module:
    """Return the norm after the last block, which only pre-norm needs."""
    if config.norm_place != "pre":
        return nn.Identity()
    return look_up(NORMS, config.norm, "norm")(config.d_model, eps=config.norm_eps)


def _head(config: TransformerConfig, table: nn.Embedding) -> nn.Linear:
    head = nn.Linear(config.d_model, config.vocab_size, bias=config.head_bias)
    if config.tied:
        head.weight = table.weight
    return head


def _positions(keys: Tensor) -> Tensor:
    """Return the index of each token among those that are not padding, (B, T).

    >>> _positions(torch.tensor([[False, True, True], [True, True, False]]))
    tensor([[0, 0, 1],
            [0, 1, 1]])
    """
    return (keys.cumsum(-1) - 1).clamp(min=0)


def _initialise(module: nn.Module, config: TransformerConfig) -> None:
    """Initialise the parameters as config.init says."""

    def xavier() -> None:
        for part in module.modules():
            if isinstance(part, nn.Embedding):  # variance one, after the factor sqrt(d_model)
                nn.init.normal_(part.weight, std=config.d_model**-0.5)
            elif isinstance(part, nn.Linear):
                nn.init.xavier_uniform_(part.weight)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)

    look_up({"xavier": xavier, "torch": lambda: None}, config.init, "init")()


def _check_ids(name: str, ids: Tensor) -> None:
    if ids.dim() != 2:
        raise ShapeError(
            f"{name} has shape {tuple(ids.shape)}, but (B, T) is needed",
            hint="a single text is a batch of one: ids[None]",
        )
