"""Llama, and Qwen2 and Qwen3 (dense), which differ in biases and in norms of queries and keys.

Their feed-forward is down(act(gate(x)) * up(x)). With relu, and the same matrix as gate and as up,
it is our relu2: relu(u) * u is the square of relu(u).
"""

import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from glasshead.attention.rope_scaling import (
    LinearScaling,
    Llama3Scaling,
    YarnScaling,
    parse_scaling,
)
from glasshead.errors import InputError
from glasshead.model.gpt import GPTConfig
from glasshead.model.layers import ff_width
from glasshead.model.pretrained.family import (
    ForeignConfig,
    HoldingFamily,
    ParameterSource,
    find_differences,
    qkv,
)

__all__ = ["Llama", "Qwen2", "Qwen3"]

# Their names of the numbers of a scaling, by ours.
_SCALING_WORDS = {
    "factor": "factor",
    "low": "low_freq_factor",
    "high": "high_freq_factor",
    "fast": "beta_fast",
    "slow": "beta_slow",
    "length": "original_max_position_embeddings",
    "gain": "attention_factor",
}


class Llama(HoldingFamily[GPTConfig]):
    name = "llama"
    kind = "gpt"
    architecture = "LlamaForCausalLM"
    prefix = "model."
    ignored = re.compile(r".*\.rotary_emb\.inv_freq")
    qk_norm = False
    out_bias = True  # whether the projection after attention has a bias if q, k and v have
    max_len = 2048  # if config.json does not say

    def config(self, settings: ForeignConfig) -> GPTConfig:
        s = settings
        acts = {"silu": "swiglu", "swish": "swiglu", "relu": "relu2"}
        feed_forward = s.choice("hidden_act", acts, "silu")
        s.require(pretraining_tp=1, partial_rotary_factor=1.0, use_sliding_window=False)
        d_model, n_heads = s.integer("hidden_size"), s.integer("num_attention_heads")
        max_len = s.integer("max_position_embeddings", self.max_len)
        base, scaling = _rotary(s, max_len)
        return GPTConfig(
            vocab_size=s.integer("vocab_size"),
            max_len=max_len,
            n_layers=s.integer("num_hidden_layers"),
            n_heads=n_heads,
            n_kv_heads=s.integer("num_key_value_heads", n_heads),
            d_model=d_model,
            d_head=self.d_head(s, d_model // n_heads),
            d_ff=s.integer("intermediate_size"),
            positions="rotary",
            rope_base=base,
            rope_scaling=scaling,
            feed_forward=feed_forward,
            norm="rms",
            norm_eps=(eps := s.number("rms_norm_eps", 1e-6)),
            qk_norm=self.qk_norm,
            qk_eps=eps if self.qk_norm else 1e-6,
            head_bias=False,
            tied=s.flag("tie_word_embeddings", False),
            init="gpt2",
            **self.biases(s),
        )

    def d_head(self, settings: ForeignConfig, usual: int) -> int:
        return settings.integer("head_dim", usual or None)

    def biases(self, settings: ForeignConfig) -> dict[str, Any]:
        around = settings.flag("attention_bias", False)
        return {"qkv_bias": around, "out_bias": around, "bias": settings.flag("mlp_bias", False)}

    def settings(self, config: GPTConfig) -> dict[str, Any]:
        c = config
        found: dict[str, Any] = {
            "vocab_size": c.vocab_size,
            "max_position_embeddings": c.max_len,
            "num_hidden_layers": c.n_layers,
            "num_attention_heads": c.n_heads,
            "num_key_value_heads": c.n_kv_heads or c.n_heads,
            "hidden_size": c.d_model,
            "head_dim": c.d_head or c.d_model // c.n_heads,
            "intermediate_size": ff_width(c),
            "hidden_act": "relu" if c.feed_forward == "relu2" else "silu",
            "rms_norm_eps": c.norm_eps,
            "rope_theta": c.rope_base,
            "rope_scaling": None,
            "tie_word_embeddings": c.tied,
            "attention_dropout": c.dropout,
            **self.their_biases(c),
        }
        if c.rope_scaling is not None:
            scaling: Any = parse_scaling(c.rope_scaling)
            numbers = {_SCALING_WORDS[name]: value for name, value in asdict(scaling).items()}
            if "original_max_position_embeddings" in numbers:
                numbers["original_max_position_embeddings"] = int(scaling.length)
            found["rope_scaling"] = {"rope_type": scaling.name, **numbers}
        return found

    def has_biases(self, config: GPTConfig) -> tuple[bool, bool]:
        """Return whether theirs has biases in attention, and in the feed-forward."""
        out = config.bias if config.out_bias is None else config.out_bias
        return config.qkv_bias or out, config.bias

    def their_biases(self, config: GPTConfig) -> dict[str, bool]:
        around, within = self.has_biases(config)
        return {"attention_bias": around, "mlp_bias": within}

    def obstacles(self, config: GPTConfig) -> list[str]:
        c = config
        return find_differences(
            c,
            n_layers=range(1, max(c.n_layers, 1) + 1),
            positions=("rotary",),
            norm=("rms",),
            norm_place=("pre",),
            feed_forward=("swiglu", "relu2"),
            head_bias=(False,),
            qk_norm=(self.qk_norm,),
            window=(None,),
            residual=(True,),
            project=(True,),
            softcap=(None,),
            logit_softcap=(None,),
            **self.needs(c),
        )

    def needs(self, config: GPTConfig) -> dict[str, tuple[Any, ...]]:
        """Return further requirements. Biases that ours lacks are zero in theirs."""
        return {}

    def entries(self, config: GPTConfig) -> Iterator[ParameterSource]:
        c = config
        around, within = self.has_biases(c)
        yield ParameterSource("embedding.weight", ("model.embed_tokens.weight",))
        for layer in range(c.n_layers):
            ours, theirs = f"blocks.{layer}.", f"model.layers.{layer}."
            for own, other in (
                ("around_attention.before", "input_layernorm"),
                ("around_feed_forward.before", "post_attention_layernorm"),
                *((f"attention.{x}_norm", f"self_attn.{x}_norm") for x in "qk" if c.qk_norm),
            ):
                yield ParameterSource(f"{ours}{own}.weight", (f"{theirs}{other}.weight",))
            for part in ("weight", *(["bias"] if around else [])):
                names = [f"{theirs}self_attn.{x}_proj.{part}" for x in "qkv"]
                yield qkv(f"{ours}attention.qkv.{part}", names, c, zero=part == "bias")
            same = c.feed_forward == "relu2"
            for own, others, biased in (
                ("attention.out", ["self_attn.o_proj"], around and self.out_bias),
                *(() if same else [("feed_forward.gate", ["mlp.gate_proj"], within)]),
                ("feed_forward.up", ["mlp.gate_proj", "mlp.up_proj"][not same :], within),
                ("feed_forward.down", ["mlp.down_proj"], within),
            ):
                for part in ("weight", *(["bias"] if biased else [])):
                    yield ParameterSource(
                        f"{ours}{own}.{part}",
                        tuple(f"{theirs}{other}.{part}" for other in others),
                        zero=part == "bias",
                        repeated=len(others) > 1,
                    )
        yield ParameterSource("norm.weight", ("model.norm.weight",))
        if not c.tied:
            yield ParameterSource("head.weight", ("lm_head.weight",))

    def copies(self, config: GPTConfig) -> dict[str, str]:
        return {"lm_head.weight": "model.embed_tokens.weight"} if config.tied else {}


class Qwen2(Llama):
    """Only an imported Qwen2 can be exported as one: their library reads any tokenizer of a Qwen2
    as if it were Qwen2's own."""

    name = "qwen2"
    architecture = "Qwen2ForCausalLM"
    out_bias = False
    max_len = 32_768

    def d_head(self, settings: ForeignConfig, usual: int) -> int:
        return usual  # their code has no setting for it

    def biases(self, settings: ForeignConfig) -> dict[str, Any]:
        return {"qkv_bias": True, "out_bias": False, "bias": False}

    def their_biases(self, config: GPTConfig) -> dict[str, bool]:
        return {"use_sliding_window": False}

    def needs(self, config: GPTConfig) -> dict[str, tuple[Any, ...]]:
        usual = (None, config.d_model // config.n_heads)
        return {"qkv_bias": (True,), "out_bias": (False,), "bias": (False,), "d_head": usual}


class Qwen3(Llama):
    name = "qwen3"
    architecture = "Qwen3ForCausalLM"
    qk_norm = True
    max_len = 32_768

    def d_head(self, settings: ForeignConfig, usual: int) -> int:
        return settings.integer("head_dim", 128)

    def biases(self, settings: ForeignConfig) -> dict[str, Any]:
        around = settings.flag("attention_bias", False)
        return {"qkv_bias": around, "out_bias": around, "bias": False}

    def their_biases(self, config: GPTConfig) -> dict[str, bool]:
        return {"attention_bias": self.has_biases(config)[0], "use_sliding_window": False}

    def needs(self, config: GPTConfig) -> dict[str, tuple[Any, ...]]:
        return {"bias": (False,), "qk_eps": (config.norm_eps,)}


def _rotary(settings: ForeignConfig, max_len: int) -> tuple[float, str | None]:
    """Return the base of the rotation, and its scaling in our notation."""
    old, new = settings.part("rope_scaling"), settings.part("rope_parameters")
    table = new or old
    base = (new if new and "rope_theta" in new.values else settings).number("rope_theta", 10_000.0)
    if table is None:
        return base, None
    table.require(partial_rotary_factor=1.0, mscale=None, mscale_all_dim=None, truncate=True)
    kinds = {kind: kind for kind in ("default", "linear", "llama3", "yarn")}
    kind = table.choice("rope_type" if "rope_type" in table.values else "type", kinds, "default")
    if kind == "default":
        return base, None
    factor = table.number("factor")
    if kind == "linear":
        return base, str(LinearScaling(factor))
    length = float(table.integer("original_max_position_embeddings", max_len))
    if kind == "llama3":
        low, high = table.number("low_freq_factor"), table.number("high_freq_factor")
        if low >= high:
            raise InputError(
                f"{table.source}: low_freq_factor {low} is not less than high_freq_factor {high}",
                hint="the file is damaged; download it again",
            )
        return base, str(Llama3Scaling(factor, low, high, length))
    yarn = YarnScaling(
        factor,
        table.number("beta_fast", 32.0),
        table.number("beta_slow", 1.0),
        length,
        table.number("attention_factor", YarnScaling.default_gain(factor)),
    )
    return base, str(yarn)
