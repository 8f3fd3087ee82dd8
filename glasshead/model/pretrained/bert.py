"""The encoder of BERT and MiniLM: learned positions, norms after each layer and the embeddings."""

import re
from collections.abc import Iterator
from typing import Any

from glasshead.model.layers import ff_width
from glasshead.model.pretrained.family import (
    ForeignConfig,
    HoldingFamily,
    ParameterSource,
    find_differences,
    qkv,
)
from glasshead.model.transformer import TransformerConfig

__all__ = ["Bert"]

_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu-tanh", "relu": "relu", "silu": "silu"}


class Bert(HoldingFamily[TransformerConfig]):
    """BERT without its pooler and its masked-word head."""

    name = "bert"
    kind = "encoder"
    architecture = "BertModel"
    prefix = "bert."
    ignored = re.compile(r"(bert\.)?embeddings\.position_ids")
    left_out = re.compile(r"(bert\.)?pooler\..*|cls\..*")

    def config(self, settings: ForeignConfig) -> TransformerConfig:
        s = settings
        s.require(position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
        vocab_size, pad = s.integer("vocab_size", 30522), s.values.get("pad_token_id", 0)
        return TransformerConfig(
            vocab_size=vocab_size,
            max_len=s.integer("max_position_embeddings", 512),
            n_layers=s.integer("num_hidden_layers", 12),
            n_heads=s.integer("num_attention_heads", 12),
            d_model=s.integer("hidden_size", 768),
            d_ff=s.integer("intermediate_size", 3072),
            positions="learned",
            feed_forward=s.choice("hidden_act", _ACTIVATIONS, "gelu"),
            norm_place="post",
            norm_eps=s.number("layer_norm_eps", 1e-12),
            dropout=0.0,
            pad=pad if isinstance(pad, int) else 0,
            scaled=False,
            embed_norm=True,
            n_segments=s.integer("type_vocab_size", 2),
        )

    def settings(self, config: TransformerConfig) -> dict[str, Any]:
        c = config
        word = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}
        return {
            "vocab_size": c.vocab_size,
            "max_position_embeddings": c.max_len,
            "num_hidden_layers": c.n_layers,
            "num_attention_heads": c.n_heads,
            "hidden_size": c.d_model,
            "intermediate_size": ff_width(c),
            "hidden_act": word[c.feed_forward],
            "layer_norm_eps": c.norm_eps,
            "hidden_dropout_prob": c.dropout,
            "attention_probs_dropout_prob": c.weight_dropout,
            "type_vocab_size": c.n_segments,
            "pad_token_id": c.pad,
        }

    def obstacles(self, config: TransformerConfig) -> list[str]:
        c = config
        return find_differences(
            c,
            positions=("learned",),
            norm=("layer",),
            norm_place=("post",),
            feed_forward=sorted(_ACTIVATIONS.values()),
            n_kv_heads=(None, c.n_heads),
            d_head=(None, c.d_model // c.n_heads),
            qkv_bias=(True,),
            bias=(True,),
            scaled=(False,),
            embed_norm=(True,),
            n_segments=range(1, max(c.n_segments, 1) + 1),
            qk_norm=(False,),
            softcap=(None,),
        )

    def entries(self, config: TransformerConfig) -> Iterator[ParameterSource]:
        for own, other in (
            ("table", "word_embeddings"),
            ("positions.table", "position_embeddings"),
            ("segments", "token_type_embeddings"),
        ):
            yield ParameterSource(f"embedding.{own}.weight", (f"bert.embeddings.{other}.weight",))
        pairs = [("embedding.norm", "bert.embeddings.LayerNorm")]
        for layer in range(config.n_layers):
            ours, theirs = f"blocks.{layer}.", f"bert.encoder.layer.{layer}."
            for part in ("weight", "bias"):
                names = [f"{theirs}attention.self.{x}.{part}" for x in ("query", "key", "value")]
                yield qkv(f"{ours}attention.qkv.{part}", names, config)
            pairs += [
                (f"{ours}attention.out", f"{theirs}attention.output.dense"),
                (f"{ours}around_attention.after", f"{theirs}attention.output.LayerNorm"),
                (f"{ours}feed_forward.up", f"{theirs}intermediate.dense"),
                (f"{ours}feed_forward.down", f"{theirs}output.dense"),
                (f"{ours}around_feed_forward.after", f"{theirs}output.LayerNorm"),
            ]
        for own, other in pairs:
            for part in ("weight", "bias"):
                yield ParameterSource(f"{own}.{part}", (f"{other}.{part}",))

    def older_name(self, name: str) -> str:
        name = re.sub(r"LayerNorm\.weight$", "LayerNorm.gamma", name)
        return re.sub(r"LayerNorm\.bias$", "LayerNorm.beta", name)
