"""One growing trace while a model of `transformers` writes: any cache, beams, a stream."""

import pytest
import torch

from glasshead.errors import RecordingError
from glasshead.observe.recording import observing
from tests.observe.test_transformers import build, eager, furthest, inputs

tr = pytest.importorskip("transformers")

NEW = 7
WAYS = {
    "cache": {},
    "no cache": {"use_cache": False},
    "static cache": {"cache_implementation": "static"},
    "beams": {"num_beams": 3},
    "beams without a cache": {"num_beams": 3, "use_cache": False},
    "beams in a static cache": {"num_beams": 3, "cache_implementation": "static"},
    "two sentences of each": {"num_beams": 3, "num_return_sequences": 2},
    "sampled": {"do_sample": True, "temperature": 3.0},
    "sampled beams": {"num_beams": 3, "do_sample": True, "temperature": 3.0},
}


def write(model, given, way, **more):
    torch.manual_seed(19)
    settings = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False} | WAYS[way] | more
    return model.generate(**given, **settings)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["llama", "gpt2"])
@torch.no_grad()
def test_the_rows_of_a_text_are_those_of_its_tokens(name, way):
    model = build(name)
    given = inputs(model, "left", T=7)
    before = write(model, given, way)
    with observing(model) as trace:
        text = write(model, given, way)
    assert torch.equal(before, text)
    real = given["attention_mask"].repeat_interleave(len(text) // 2, 0)
    real = torch.cat([real, torch.ones(len(text), NEW - 1, dtype=real.dtype)], 1)
    positions = (real.cumsum(-1) - 1).clamp(min=0)
    expected = eager(model, input_ids=text[:, :-1], attention_mask=real, position_ids=positions)
    assert furthest(trace, expected, real) < 1e-5
    assert torch.equal(trace.ids, text[:, :-1])
    assert trace.step_ends == [*range(7, 7 + NEW)]
    for layer, theirs in enumerate(expected):
        heavy = theirs[:, :, -1].max(-1)
        assert torch.equal(trace.statistics(layer).top_keys[:, :, -1, 0], heavy.indices)


@pytest.mark.parametrize("way", [w for w in WAYS if "static" not in w and "two" not in w])
@pytest.mark.parametrize("layers", [None, [3, 5, 7]])
@torch.no_grad()
def test_cross_attention_alone_has_the_rows_of_the_translation(layers, way):
    model = build("marian")
    given = inputs(model, "left", T=7)
    given.pop("decoder_input_ids")
    with observing(model, layers=layers) as trace:
        text = write(model, given, way)
    expected = eager(model, **given, decoder_input_ids=text[:, :-1])
    expected = expected if layers is None else [expected[i] for i in layers]
    assert trace.shape(3) == (2, 6, NEW, 7)
    assert furthest(trace, expected, given["attention_mask"]) < 1e-5


@torch.no_grad()
def test_sentences_of_beams_may_end_at_different_times():
    model = build("marian", eos_token_id=22, forced_eos_token_id=None)
    given = inputs(model, T=7, B=3)
    given.pop("decoder_input_ids")
    settings = {"num_beams": 4, "max_new_tokens": 11, "length_penalty": 0.0}
    with observing(model) as trace:
        text = model.generate(**given, **settings)
    lengths = (text[:, 1:] != 22).sum(1) + 1  # rows: one for each token that was written
    assert lengths.unique().numel() > 1
    expected = eager(model, **given, decoder_input_ids=text[:, :-1])
    for layer, theirs in zip(trace.layers, expected, strict=True):
        if layer.part == "decoder":
            for b, n in enumerate(lengths.tolist()):
                off = (trace.weights(layer.index)[b, :, :n] - theirs[b, :, :n]).abs()
                assert off.max() < 1e-5
                assert trace.weights(layer.index)[b, :, n:].abs().sum() == 0


@torch.no_grad()
def test_two_targets_of_one_source_are_not_one_map():
    model = build("marian")
    given = inputs(model, T=7)
    first, second = given.pop("decoder_input_ids"), inputs(model, T=7)["decoder_input_ids"] * 3 % 50

    def read_both(one):
        model(**given, decoder_input_ids=one)
        model(**given, decoder_input_ids=second)

    for layers in ([3, 5, 7], None):
        for one in (first, first[:, :3]):
            with (
                observing(model, layers=layers),
                pytest.raises(RecordingError, match="called again"),
            ):
                read_both(one)


@torch.no_grad()
def test_steps_come_while_the_model_writes():
    model = build("llama")
    given = inputs(model, "left", T=7)
    text, rows = [], []
    with observing(model) as trace:
        for step in trace.stream(lambda: text.append(write(model, given, "cache"))):
            rows.append((step.rows.start, step.rows.stop, step.row(layer=1, head=2, batch=1)))
    assert [(start, stop) for start, stop, _ in rows] == [
        (0, 7),
        *((n, n + 1) for n in range(7, 13)),
    ]
    for _, stop, row in rows:
        assert torch.equal(row, trace.row(1, 2, stop - 1, batch=1)[:stop])
    assert torch.equal(text[0], write(model, given, "cache"))
    assert [step.rows for step in trace.stream()] == [slice(a, b) for a, b, _ in rows]


@torch.no_grad()
def test_an_error_while_writing_is_raised_where_the_steps_are_read():
    model = build("gpt2")

    def fail():
        raise ZeroDivisionError

    with observing(model) as trace:
        model(**inputs(model))
        with pytest.raises(ZeroDivisionError):
            list(trace.stream(fail))


@torch.no_grad()
def test_a_layer_that_is_used_several_times_has_a_map_for_each_use():
    config = tr.AlbertConfig(
        vocab_size=61, hidden_size=44, intermediate_size=53, num_attention_heads=4,
        num_hidden_layers=3, embedding_size=17,
    )  # fmt: skip
    model = tr.AlbertModel(config).eval()
    given = inputs(model, "right")
    with observing(model, layers="all") as trace:
        model(**given)
    assert [layer.name.split(" (")[-1] for layer in trace.layers][1:] == ["call 2)", "call 3)"]
    assert furthest(trace, eager(model, **given), given["attention_mask"]) < 1e-5


@torch.no_grad()
def test_a_sink_takes_the_rest_of_a_row():
    from tests.observe.test_transformers import WIDE, new

    config = WIDE | {"intermediate_size": 48, "num_hidden_layers": 2, "num_local_experts": 2}
    model = new("GptOssForCausalLM", **config, num_experts_per_tok=1, sliding_window=5)
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks)
    given = inputs(model, "left")
    before = model(**given).logits
    for keep in ("both", "tensors"):
        with observing(model, keep=keep) as trace:
            assert torch.equal(model(**given).logits, before)
        expected = eager(model, **given)
        assert furthest(trace, expected, given["attention_mask"]) < 1e-5
        rest = 1 - trace.weights(0).sum(-1)
        assert rest[0].min() > 0
        assert rest[0].mean() > 0.05
        first = trace.statistics(0).first_weight[0]
        assert (first - expected[0][0, :, :, 0]).abs().max() < 1e-5
