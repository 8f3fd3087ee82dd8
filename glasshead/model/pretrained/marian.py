"""Marian's translators, such as those of OPUS-MT for a thousand pairs of languages.

They have the architecture of the paper: norms after each layer, sinusoidal positions (all sines,
then all cosines), and one embedding table for both languages and the output layer.
`--preset marian` trains such a model.
"""

import re
from collections.abc import Iterator
from typing import Any

from glasshead.errors import InputError
from glasshead.model.layers import ff_width
from glasshead.model.pretrained.family import (
    ForeignConfig,
    HoldingFamily,
    ParameterSource,
    find_differences,
    qkv,
)
from glasshead.model.transformer import TransformerConfig

__all__ = ["Marian"]

# Of several words of theirs for one of ours, the first is exported.
_ACTIVATIONS = {
    "swish": "silu",
    "silu": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "relu": "relu",
}
# Settings that all of them have, and for which their library once had alternatives.
_ALWAYS = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
}


class Marian(HoldingFamily[TransformerConfig]):
    name = "marian"
    kind = "transformer"
    architecture = "MarianMTModel"
    ignored = re.compile(r"model\.(en|de)coder\.embed_positions\.weight")  # computed here

    def config(self, settings: ForeignConfig) -> TransformerConfig:
        s = settings
        s.require(**_ALWAYS)
        heads, width = s.integer("encoder_attention_heads", 16), s.integer("encoder_ffn_dim", 4096)
        vocab_size = s.integer("vocab_size", 58101)
        pad = s.values.get("pad_token_id", vocab_size - 1)
        for name, needed in (
            ("decoder_attention_heads", heads),
            ("decoder_ffn_dim", width),
            ("decoder_vocab_size", vocab_size),
        ):
            if s.values.get(name, needed) not in (needed, None):
                raise InputError(
                    f"{s.source}: {name} is {s.values[name]!r}, but only {needed} is supported",
                    hint="import a model whose encoder and decoder have the same shape",
                )
        return TransformerConfig(
            vocab_size=vocab_size,
            max_len=s.integer("max_position_embeddings", 1024),
            n_layers=s.integer("encoder_layers", 12),
            n_decoder_layers=s.integer("decoder_layers", 12),
            n_heads=heads,
            d_model=s.integer("d_model", 1024),
            d_ff=width,
            positions="sinusoidal-split",
            feed_forward=s.choice("activation_function", _ACTIVATIONS, "gelu"),
            norm_place="post",
            dropout=0.0,
            pad=pad if isinstance(pad, int) else 0,
            scaled=s.flag("scale_embedding", False),
            head_bias=True,
            starts_with_pad=s.values.get("decoder_start_token_id", pad) == pad,
        )

    def settings(self, config: TransformerConfig) -> dict[str, Any]:
        c = config
        word = {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}
        halves = {
            f"{side}_{name}": number
            for side, n_layers in (("encoder", c.n_layers), ("decoder", _decoder_layers(c)))
            for name, number in (
                ("layers", n_layers),
                ("attention_heads", c.n_heads),
                ("ffn_dim", ff_width(c)),
                ("layerdrop", 0.0),
            )
        }
        return {
            "is_encoder_decoder": True,
            "vocab_size": c.vocab_size,
            "decoder_vocab_size": c.vocab_size,
            "d_model": c.d_model,
            **halves,
            "max_position_embeddings": c.max_len,
            "activation_function": word[c.feed_forward],
            "scale_embedding": c.scaled,
            "dropout": c.dropout,
            "attention_dropout": c.weight_dropout,
            "activation_dropout": 0.0,
            **_ALWAYS,
        }

    def obstacles(self, config: TransformerConfig) -> list[str]:
        c = config
        return find_differences(
            c,
            positions=("sinusoidal-split",),
            norm=("layer",),
            norm_place=("post",),
            norm_eps=(1e-5,),
            feed_forward=sorted({*_ACTIVATIONS.values()}),
            n_kv_heads=(None, c.n_heads),
            d_head=(None, c.d_model // c.n_heads),
            shared=(True,),
            tied=(True,),
            qk_norm=(False,),
            softcap=(None,),
            embed_norm=(False,),
            n_segments=(0,),
        )

    def entries(self, config: TransformerConfig) -> Iterator[ParameterSource]:
        yield ParameterSource("encoder.embedding.table.weight", ("model.shared.weight",))
        table = "encoder.embedding.table.weight"
        yield ParameterSource(
            "head.bias", ("final_logits_bias",), zero=True, beside=table, leading_one=True
        )
        for side, n_layers in (("encoder", config.n_layers), ("decoder", _decoder_layers(config))):
            attentions = {"attention": "self_attn"}
            if side == "decoder":
                attentions["cross"] = "encoder_attn"
            for layer in range(n_layers):
                ours, theirs = f"{side}.blocks.{layer}.", f"model.{side}.layers.{layer}."
                for part in ("weight", "bias"):
                    for own, other in attentions.items():
                        names = [f"{theirs}{other}.{x}_proj.{part}" for x in "qkv"]
                        yield qkv(f"{ours}{own}.qkv.{part}", names, config, zero=part == "bias")
                    for own, other in (
                        *((f"{own}.out", f"{other}.out_proj") for own, other in attentions.items()),
                        *(
                            (f"around_{own}.after", f"{other}_layer_norm")
                            for own, other in attentions.items()
                        ),
                        ("feed_forward.up", "fc1"),
                        ("feed_forward.down", "fc2"),
                        ("around_feed_forward.after", "final_layer_norm"),
                    ):
                        yield ParameterSource(
                            f"{ours}{own}.{part}", (f"{theirs}{other}.{part}",), zero=part == "bias"
                        )

    def copies(self, config: TransformerConfig) -> dict[str, str]:
        names = ["lm_head", *(f"model.{side}.embed_tokens" for side in ("encoder", "decoder"))]
        return {f"{name}.weight": "model.shared.weight" for name in names}


def _decoder_layers(config: TransformerConfig) -> int:
    return config.n_decoder_layers or config.n_layers
