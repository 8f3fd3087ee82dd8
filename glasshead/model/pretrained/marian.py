"""Marian's translators, as OPUS-MT has them for a thousand pairs of languages.

They are imported only: their library reads a translator's words with sentencepiece, from files
that a run does not keep.
"""

import re
from collections.abc import Iterator

from glasshead.errors import InputError
from glasshead.model.pretrained.family import Entry, Family, Settings, qkv
from glasshead.model.transformer import TransformerConfig

__all__ = ["Marian"]

_ACTIVATIONS = {
    "swish": "silu",
    "silu": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "relu": "relu",
}


class Marian(Family[TransformerConfig]):
    name = "marian"
    kind = "transformer"
    silent = re.compile(r"model\.(en|de)coder\.embed_positions\.weight")  # computed here

    def config(self, settings: Settings) -> TransformerConfig:
        s = settings
        s.refuse(
            normalize_before=False,
            normalize_embedding=False,
            add_final_layer_norm=False,
            static_position_embeddings=True,
            share_encoder_decoder_embeddings=True,
            tie_word_embeddings=True,
        )
        heads, width = s.whole("encoder_attention_heads", 16), s.whole("encoder_ffn_dim", 4096)
        vocab_size = s.whole("vocab_size", 58101)
        pad = s.values.get("pad_token_id", vocab_size - 1)
        for name, needed in (
            ("decoder_attention_heads", heads),
            ("decoder_ffn_dim", width),
            ("decoder_start_token_id", pad),
            ("decoder_vocab_size", vocab_size),
        ):
            if s.values.get(name, needed) not in (needed, None):
                raise InputError(
                    f"{s.source}: {name} is {s.values[name]!r}, but only {needed} is supported",
                    hint="import a model whose encoder and decoder are of one shape",
                )
        return TransformerConfig(
            vocab_size=vocab_size,
            max_len=s.whole("max_position_embeddings", 512),
            n_layers=s.whole("encoder_layers", 12),
            n_decoder_layers=s.whole("decoder_layers", 12),
            n_heads=heads,
            d_model=s.whole("d_model", 1024),
            d_ff=width,
            positions="sinusoidal-split",
            feed_forward=s.choice("activation_function", _ACTIVATIONS, "gelu"),
            norm_place="post",
            dropout=0.0,
            pad=pad if isinstance(pad, int) else 0,
            scaled=s.flag("scale_embedding", False),
            head_bias=True,
            starts_with_pad=True,
        )

    def entries(self, config: TransformerConfig) -> Iterator[Entry]:
        yield Entry("encoder.embedding.table.weight", ("model.shared.weight",))
        yield Entry("head.bias", ("final_logits_bias",), led=True)
        decoder_layers = config.n_decoder_layers or config.n_layers
        for side, n_layers in (("encoder", config.n_layers), ("decoder", decoder_layers)):
            looks = {"attention": "self_attn"}
            if side == "decoder":
                looks["cross"] = "encoder_attn"
            for layer in range(n_layers):
                ours, theirs = f"{side}.blocks.{layer}.", f"model.{side}.layers.{layer}."
                for part in ("weight", "bias"):
                    for own, other in looks.items():
                        names = [f"{theirs}{other}.{x}_proj.{part}" for x in "qkv"]
                        yield qkv(f"{ours}{own}.qkv.{part}", names, config)
                    for own, other in (
                        *((f"{own}.out", f"{other}.out_proj") for own, other in looks.items()),
                        *(
                            (f"around_{own}.after", f"{other}_layer_norm")
                            for own, other in looks.items()
                        ),
                        ("feed_forward.up", "fc1"),
                        ("feed_forward.down", "fc2"),
                        ("around_feed_forward.after", "final_layer_norm"),
                    ):
                        yield Entry(f"{ours}{own}.{part}", (f"{theirs}{other}.{part}",))

    def copies(self, config: TransformerConfig) -> dict[str, str]:
        names = ["lm_head", *(f"model.{side}.embed_tokens" for side in ("encoder", "decoder"))]
        return {f"{name}.weight": "model.shared.weight" for name in names}
