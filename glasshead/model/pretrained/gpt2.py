"""GPT-2: learned positions, LayerNorm, biases everywhere but in the head."""

import re
from collections.abc import Iterator
from typing import Any

from glasshead.model.gpt import GPTConfig
from glasshead.model.layers import ff_width
from glasshead.model.pretrained.family import (
    ForeignConfig,
    HoldingFamily,
    ParameterSource,
    find_differences,
)

__all__ = ["GPT2"]

# Of several words of theirs for one of ours, the first is exported.
_ACTIVATIONS = {
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


class GPT2(HoldingFamily[GPTConfig]):
    name = "gpt2"
    kind = "gpt"
    architecture = "GPT2LMHeadModel"
    prefix = "transformer."
    ignored = re.compile(r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias")  # the causal mask

    def config(self, settings: ForeignConfig) -> GPTConfig:
        s = settings
        s.require(
            scale_attn_weights=True,
            scale_attn_by_inverse_layer_idx=False,
            add_cross_attention=False,
        )
        d_model = s.integer("n_embd", 768)
        return GPTConfig(
            vocab_size=s.integer("vocab_size", 50257),
            max_len=s.integer("n_positions", 1024),
            n_layers=s.integer("n_layer", 12),
            n_heads=s.integer("n_head", 12),
            d_model=d_model,
            d_ff=s.integer("n_inner", 4 * d_model),
            feed_forward=s.choice("activation_function", _ACTIVATIONS, "gelu_new"),
            norm_eps=s.number("layer_norm_epsilon", 1e-5),
            qkv_bias=True,
            head_bias=False,
            tied=s.flag("tie_word_embeddings", True),
            init="gpt2",
        )

    def settings(self, config: GPTConfig) -> dict[str, Any]:
        c = config
        word = {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}
        return {
            "vocab_size": c.vocab_size,
            "n_positions": c.max_len,
            "n_ctx": c.max_len,
            "n_layer": c.n_layers,
            "n_head": c.n_heads,
            "n_embd": c.d_model,
            "n_inner": ff_width(c),
            "activation_function": word[c.feed_forward],
            "layer_norm_epsilon": c.norm_eps,
            "tie_word_embeddings": c.tied,
            "resid_pdrop": c.dropout,
            "embd_pdrop": 0.0,
            "attn_pdrop": c.dropout,
        }

    def obstacles(self, config: GPTConfig) -> list[str]:
        c = config
        return find_differences(
            c,
            n_layers=range(1, max(c.n_layers, 1) + 1),
            positions=("learned",),
            norm=("layer",),
            norm_place=("pre",),
            feed_forward=sorted({*_ACTIVATIONS.values()}),
            n_kv_heads=(None, c.n_heads),
            d_head=(None, c.d_model // c.n_heads),
            head_bias=(False,),
            window=(None,),
            residual=(True,),
            project=(True,),
            qk_norm=(False,),
            softcap=(None,),
            logit_softcap=(None,),
        )

    def entries(self, config: GPTConfig) -> Iterator[ParameterSource]:
        yield ParameterSource("embedding.weight", ("transformer.wte.weight",))
        yield ParameterSource("positions.table.weight", ("transformer.wpe.weight",))
        for layer in range(config.n_layers):
            ours, theirs = f"blocks.{layer}.", f"transformer.h.{layer}."
            for own, other in (
                ("around_attention.before", "ln_1"),
                ("around_feed_forward.before", "ln_2"),
            ):
                for part in ("weight", "bias"):
                    yield ParameterSource(f"{ours}{own}.{part}", (f"{theirs}{other}.{part}",))
            for own, other in (
                ("attention.qkv", "attn.c_attn"),
                ("attention.out", "attn.c_proj"),
                ("feed_forward.up", "mlp.c_fc"),
                ("feed_forward.down", "mlp.c_proj"),
            ):
                yield ParameterSource(
                    f"{ours}{own}.weight", (f"{theirs}{other}.weight",), transposed=True
                )
                yield ParameterSource(f"{ours}{own}.bias", (f"{theirs}{other}.bias",), zero=True)
        for part in ("weight", "bias"):
            yield ParameterSource(f"norm.{part}", (f"transformer.ln_f.{part}",))
        if not config.tied:
            yield ParameterSource("head.weight", ("lm_head.weight",))

    def copies(self, config: GPTConfig) -> dict[str, str]:
        return {"lm_head.weight": "transformer.wte.weight"} if config.tied else {}
