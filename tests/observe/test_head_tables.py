"""Tables of all heads, one row of all heads, and the largest scores."""

import pytest
import torch

from glasshead.attention.mask import Mask
from glasshead.errors import InputError
from glasshead.observe.recording import observing
from glasshead.observe.statistics import observe
from tests.observe.test_recording import ids, new_gpt, new_transformer


@pytest.fixture(scope="module")
def trace():
    model, given = new_gpt(), ids(2, 13)
    with torch.no_grad(), observing(model, ids=given) as trace:
        model(given)
    return trace


def test_a_table_has_a_row_for_each_layer_and_a_column_for_each_head(trace):
    for batch in range(2):
        expected = [trace.statistics(n).means()["induction"][batch] for n in range(3)]
        assert torch.equal(trace.table("induction", batch), torch.stack(expected))
        assert torch.equal(trace.means(batch)["induction"], trace.table("induction", batch))
    assert {x.shape for x in trace.means().values()} == {(3, 4)}
    with pytest.raises(InputError, match="there is no statistic 'inductoin'") as raised:
        trace.table("inductoin")
    assert "induction" in str(raised.value.hint)
    with pytest.raises(InputError, match="batch 2"):
        trace.table("entropy", batch=2)


def test_cross_attention_has_no_statistics_of_positions():
    model = new_transformer()
    with torch.no_grad(), observing(model) as trace:
        model(ids(1, 11), ids(1, 7, seed=5))
    kinds = [trace.layer(n).kind for n in trace.layer_traces]
    assert set(kinds) == {"self", "cross"}
    found = trace.table("self_weight").isnan().all(1).tolist()
    assert found == [kind == "cross" for kind in kinds]
    assert not trace.table("entropy").isnan().any()
    with pytest.raises(InputError, match="duplicate") as raised:
        trace.table("duplicate")
    assert "trace.ids" in str(raised.value.hint)
    with pytest.raises(InputError, match="maps of 3 sizes"):
        trace.rows(0)


def test_one_row_of_all_heads(trace):
    expected = torch.stack([trace.weights(n)[1, :, 5] for n in range(3)])
    found = trace.rows(5, batch=1)
    assert found.shape == (3, 4, 13)
    assert (found - expected).abs().max() < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_largest_score_is_that_of_the_whole_map(dtype):
    torch.manual_seed(3)
    q, k = (9 * torch.randn(2, 3, 17, 5, dtype=torch.float64) for _ in range(2))
    keys = torch.ones(2, 17, dtype=torch.bool)
    keys[1, :4] = False
    seen = observe(q.to(dtype), k.to(dtype), Mask(causal=True, keys=keys), queries=keys)
    scores = q @ k.mT / 5**0.5
    hidden = torch.ones(17, 17).triu(1).bool() | ~keys[:, None, None]
    expected = scores.masked_fill(hidden, -torch.inf).amax(-1)
    expected = expected.masked_fill(~keys[:, None], -torch.inf)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(seen.row_max.double(), expected, atol=tolerance, rtol=0)
    assert torch.equal(seen.largest_score, seen.row_max.amax(-1))
    empty = observe(q[:, :, :0].to(dtype), k.to(dtype))
    assert empty.largest_score.eq(-torch.inf).all()


@pytest.mark.parametrize("keep", ["tensors", "statistics"])
def test_ids_are_those_that_the_model_reads(keep):
    model, given = new_gpt(), ids(2, 13)
    with torch.no_grad():
        with observing(model, ids=given, keep=keep) as expected:
            model(given)
        with observing(model, keep=keep) as trace:
            model(given)
    assert torch.equal(trace.ids, given)
    assert torch.equal(trace.table("induction"), expected.table("induction"))
    assert not model.embedding._forward_pre_hooks


@torch.no_grad()
def test_ids_grow_while_a_model_of_transformers_writes():
    pytest.importorskip("transformers")
    from tests.observe.test_transformers import build, inputs

    model = build("llama")
    with observing(model) as trace:
        out = model.generate(**inputs(model, "left", T=7), max_new_tokens=5, min_new_tokens=5)
    assert torch.equal(trace.ids, out[:, :-1])  # the last token is not read
    assert trace.statistics(0).induction is not None
