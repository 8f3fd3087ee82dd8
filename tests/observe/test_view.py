"""What is to be shown of a recording: maps over words, rankings, the heads that stand out."""

import pytest
import torch

from glasshead.attention.hooks import Layer
from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring
from glasshead.errors import InputError
from glasshead.generation.opening import open_inspectable
from glasshead.observe.inspectable import RecordConfig
from glasshead.observe.picture import head_sheet, looks_sheet, save
from glasshead.observe.ranking import (
    StandoutHead,
    context,
    standout_heads,
    strongest_keys,
    token_at,
)
from glasshead.observe.trace import Trace
from glasshead.observe.trace_storage import LayerTrace, RecordedCall
from glasshead.observe.view import View, ViewConfig
from glasshead.observe.words import merge
from glasshead.text.tokenizer import CharTokenizer
from tests.generation.runs import make_run
from tests.observe import recordings
from tests.observe.recordings import TEXT


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return recordings.read(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def translated(tmp_path_factory):
    return recordings.translated(tmp_path_factory.mktemp("runs"))


def test_a_map_of_words_is_the_recorded_weights_merged(trace):
    view = View(trace)
    rows, cols = view.sides(1)
    assert [word.text for word in rows][:8] == ["那", "只", "小", "猫", "看", "见", "<", "蝴"]
    shown = view.head((1, 2))
    expected = merge(trace.weights(1)[0, 2], rows, cols)
    torch.testing.assert_close(shown.values, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(shown.values.sum(-1), torch.ones(len(rows)))


def test_tokens_can_be_shown_as_they_are(trace):
    shown = View(trace, ViewConfig(tokens=True)).head((0, 0))
    torch.testing.assert_close(shown.values, trace.weights(0)[0, 0])
    assert "⟨E9⟩" in shown.rows


def test_without_the_sink_rows_sum_to_one_again(trace):
    whole, shown = View(trace).head((2, 1)), View(trace, ViewConfig(hide_sink=True)).head((2, 1))
    assert shown.cols == whole.cols[1:]
    assert shown.values[0].sum() == 0  # the first word sees nothing else
    torch.testing.assert_close(shown.values[1:].sum(-1), torch.ones(len(shown.rows) - 1))
    rest = whole.values[5, 1:]
    torch.testing.assert_close(shown.values[5], rest / rest.sum())


def test_a_ratio_of_one_is_equal_attention(trace):
    plain = View(trace, ViewConfig(tokens=True)).head((1, 0)).values
    ratio = View(trace, ViewConfig(tokens=True, ratio=True)).head((1, 0)).values
    sizes = torch.arange(1, len(plain) + 1)[:, None]
    future = torch.ones_like(plain, dtype=torch.bool).triu(1)
    assert ratio[future].isnan().all()
    torch.testing.assert_close(ratio[~future], (plain * sizes)[~future])


def test_a_long_text_is_seen_from_afar(tmp_path):
    text = "春江花月夜" * 60
    make_run(tmp_path / "run", CharTokenizer.train(text), max_len=300)
    trace = open_inspectable(tmp_path / "run").record(text)
    view = View(trace)
    shown = view.head((1, 1))
    assert (shown.rows, shown.cols, shown.cell) == (None, None, 2)
    whole = trace.weights(1)[0, 1]
    assert shown.values[7, 3].item() == pytest.approx(whole[14:16, 6:8].max().item(), rel=1e-6)
    assert head_sheet(view, (1, 1)).scale == "log"
    with pytest.raises(InputError, match="--hide-sink needs a text of at most 200 words"):
        View(trace, ViewConfig(hide_sink=True)).head((1, 1))
    with pytest.raises(InputError, match="at most 200 words, and this one has 300"):
        looks_sheet(view, view.heads(), "夜")
    for suffix in (".png", ".svg"):
        save(head_sheet(view, (1, 1)), tmp_path / f"far{suffix}")


def test_cross_attention_has_the_source_on_top_and_what_is_written_at_the_side(translated):
    view = View(translated)
    assert list(view.names.values()) == [
        "encoder.0", "encoder.1", "decoder.0", "decoder.1", "decoder.2", "cross.0", "cross.1",
        "cross.2",
    ]  # fmt: skip
    cross, own = view.head((view.layer("cross.1"), 0)), view.head((view.layer("decoder.1"), 0))
    assert cross.cols == ["ein", "hund", "rennt"]
    assert own.rows[0] == "<bos>"
    assert cross.rows[:-1] == own.rows[1:]  # a word is written one position before it is read
    assert view.head((view.layer("encoder.0"), 0)).rows == cross.cols
    assert "source" in " ".join(head_sheet(view, (view.layer("cross.1"), 0)).notes)
    assert torch.isnan(view.statistic("previous").values[5:]).all()
    assert not torch.isnan(view.statistic("entropy").values).any()


def test_the_heads_that_stand_out_have_the_largest_numbers(trace):
    view = View(trace)
    for one in standout_heads(view):
        name = {"sharpest": "relative_entropy", "broadest": "relative_entropy"}.get(
            one.role, one.role
        )
        values = view.statistic(name).values
        assert one.value == (values.min() if one.role == "sharpest" else values.max())
        assert values[one.head] == one.value
    assert {"previous_weight", "first_weight", "induction"} <= {
        one.role for one in standout_heads(view)
    }


def test_the_largest_of_small_numbers_is_not_worth_naming():
    worth = [StandoutHead("previous_weight", (1, 0), value, uniform).worth_naming
             for value, uniform in ((0.08, 0.033), (0.4, 0.033), (0.2, 0.11))]  # fmt: skip
    assert worth == [False, True, False]
    assert StandoutHead("sharpest", (1, 0), 0.02, None).worth_naming


def test_glances_of_one_head_and_of_all(trace):
    view = View(trace)
    rows, cols = view.sides(0)
    at = max(n for n, word in enumerate(rows) if word.text == "它")
    one = strongest_keys(view, [(2, 3)], "它", 5)
    row = view.head((2, 3)).values[at]
    # A row alone need not be rounded as one of many: processors differ.
    assert [g.weight for g in one] == pytest.approx(row.topk(5).values.tolist(), rel=1e-6)
    assert all(cols[g.place].text == g.word for g in one)
    assert row[[g.place for g in one]].tolist() == pytest.approx([g.weight for g in one], rel=1e-6)
    every = strongest_keys(view, view.heads(), "它", 12)
    assert len(every) == 12
    assert [g.weight for g in every] == sorted((g.weight for g in every), reverse=True)
    for g in every:
        assert g.place > 0  # a head that rests on the first word says nothing about this one
        assert g.weight == pytest.approx(float(view.head(g.head).values[at, 1:].max()))
    first = strongest_keys(view, view.heads(), cols[0], 3)  # which sees nothing else
    assert [(g.place, g.weight) for g in first] == [(0, pytest.approx(1))] * 3
    hidden = strongest_keys(View(trace, ViewConfig(hide_sink=True)), [(2, 3)], "它", 5)
    assert all(cols[g.place].text == g.word and g.place > 0 for g in hidden)


def test_a_token_is_shown_where_it_stands(trace):
    view = View(trace, ViewConfig(tokens=True))
    [tokens] = trace.tokens
    place = tokens.index(b"\xe9")
    assert [context(tokens, place + n)[1] for n in range(4)] == [
        "那 1/3",
        "那 2/3",
        "那 3/3",
        "只 1/3",
    ]
    assert context(tokens, place + 3)[0] == "那"
    assert context(tokens, place)[2].startswith("只")
    assert token_at(view, -1).start == len(tokens) - 1
    with pytest.raises(InputError, match="there is no token 500"):
        token_at(view, 500)


def test_layers_can_be_chosen(tmp_path):
    make_run(tmp_path / "run", CharTokenizer.train(TEXT), max_len=64, n_layers=3)
    subject = open_inspectable(tmp_path / "run")
    told = []
    config = RecordConfig(layers=(2,), max_tokens=7, progress=lambda *step: told.append(step))
    view = View(subject.record(TEXT, config))
    assert list(view.names.values()) == ["2"]
    assert view.trace.shape(2) == (1, 4, 7, 7)
    assert told == [(0, 1), (1, 1)]


def test_heads_that_rest_on_the_first_word_are_not_ranked_first():
    T, layer = 5, Layer(0, "attention", "self")
    k = torch.eye(T).expand(1, 1, T, T)
    q = torch.zeros(1, 3, T, T)
    q[:, 0, :, 0], q[:, 1, :, 2], q[:, 2, :, 3] = 9, 2, 3
    hidden = torch.ones(T, T).triu(1).bool()
    lse = (q @ k.mT).masked_fill(hidden, -torch.inf).logsumexp(-1)
    trace = Trace([layer], tokens=list("abcde"))
    call = RecordedCall(0, T, 0, T, Mask(causal=True), Scoring(1.0))
    trace.layer_traces[0] = LayerTrace(layer, (1, 3, T, T), [call], q, k, lse)
    found = strongest_keys(View(trace, ViewConfig(tokens=True)), [(0, h) for h in range(3)], "e", 3)
    assert [(g.head[1], g.word) for g in found[:2]] == [(2, "d"), (1, "c")]
    assert found[2].head == (0, 0)
    assert found[2].weight < 0.01
