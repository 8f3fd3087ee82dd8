"""What a .glass file keeps of a recording: each field, with a value that is not its default."""

from dataclasses import fields, is_dataclass

import torch

from glasshead.attention.hooks import Layer
from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring
from glasshead.observe.trace import Trace, open_glass
from glasshead.observe.trace_storage import LayerTrace, RecordedCall
from tests.observe.test_trace import B, H, S, T, built

# Of the machine and the moment, not of what was recorded.
NOT_KEPT = {"device", "finish", "checks"}


def assert_same(mine, theirs, where):
    if isinstance(mine, torch.Tensor):
        assert mine.dtype == theirs.dtype, where
        assert torch.equal(*torch.broadcast_tensors(mine, theirs)), where
    elif is_dataclass(mine):
        for field in fields(mine):
            if field.name not in NOT_KEPT:
                pair = (getattr(x, field.name) for x in (mine, theirs))
                assert_same(*pair, f"{where}.{field.name}")
    elif isinstance(mine, list):
        assert len(mine) == len(theirs), where
        for n, pair in enumerate(zip(mine, theirs, strict=True)):
            assert_same(*pair, f"{where}[{n}]")
    else:
        assert mine == theirs, where


def unlike_defaults(value, default):
    return isinstance(value, torch.Tensor) or value != default


def test_each_field_of_what_was_recorded_comes_back(tmp_path):
    draw = torch.Generator().manual_seed(3)

    def some(*shape):
        return torch.randn(*shape, generator=draw)

    def flags(*shape):
        return torch.rand(*shape, generator=draw) > 0.3

    mask = Mask(True, 11, flags(B, 13), torch.randint(0, 3, (B, 13), generator=draw),
                flags(B, 1, 7, 13))  # fmt: skip
    scoring = Scoring(0.6, 2.5, some(H).abs(), some(1, H, 7, 13))
    calls = [RecordedCall(0, 5, 0, 11, Mask(), Scoring()),
             RecordedCall(5, 7, 4, 13, mask, scoring, flags(B, 1, 7))]  # fmt: skip
    for one in (mask, scoring, calls[1]):  # a new field has to be given here too
        assert all(unlike_defaults(getattr(one, f.name), f.default) for f in fields(one))
    layer = Layer(4, "blocks.4.attention", "self", "decoder")
    trace = Trace([layer, Layer(7, "blocks.7", "cross", None)], model="Made up")
    trace.layer_traces[4] = LayerTrace(
        layer, (B, H, 12, 17), calls, some(B, H, 12, 5), some(B, 1, 17, 5), some(B, H, 12),
        some(B, 1, 17, 3), some(B, 12, 19),
    )  # fmt: skip
    trace.save(tmp_path / "x.glass")
    again = open_glass(tmp_path / "x.glass")
    assert again.layers == trace.layers
    assert_same(trace.layer_traces[4], again.layer_traces[4], "layer")


def test_each_statistic_comes_back(tmp_path):
    trace = built(ids=torch.arange(B * S).view(B, S) % 5)
    measured = trace.statistics(4)
    assert all(getattr(measured, f.name) is not None for f in fields(measured))
    trace.save(tmp_path / "x.glass")
    assert_same(measured, open_glass(tmp_path / "x.glass").statistics(4), "statistics")


def test_statistics_measured_from_a_file_are_those_that_the_recording_asked_for(tmp_path):
    trace = built(top_k=3, overview=7)
    trace.save(tmp_path / "x.glass")  # before anything was measured
    again = open_glass(tmp_path / "x.glass")
    assert (again.top_k, again.options) == (3, {"top_k": 3, "overview": 7})
    mine, theirs = trace.statistics(4), again.statistics(4)
    assert theirs.top_keys.shape == (B, H, T, 3)
    assert torch.equal(theirs.top_keys, mine.top_keys)
    assert theirs.overview_cell == mine.overview_cell
    assert max(theirs.overview_mean.shape[-2:]) <= 7
