"""Any part of the map, near or from afar, and the file that holds it."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from glasshead.attention.hooks import Layer
from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring, recompute
from glasshead.errors import ConfigError, InputError, RecordingError
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.observe import pooling, statistics
from glasshead.observe import trace as trace_module
from glasshead.observe.recording import observing
from glasshead.observe.trace import Trace, open_glass
from glasshead.observe.trace_storage import LayerTrace, RecordedCall

B, H, T, S = 2, 3, 43, 47


@pytest.fixture(scope="module")
def trace():
    """A map in two spans, with a window, padding, ALiBi and a bias."""
    return built()


def built(plain=False, dtype=torch.float32, **settings):
    torch.manual_seed(5)
    q, k = torch.randn(B, H, T, 5, dtype=dtype), torch.randn(B, 1, S, 5, dtype=dtype)
    keys = torch.ones(B, S).bool()
    keys[1, :5] = False
    bias = torch.randn(B, 1, T, S, dtype=dtype)
    early = Scoring(0.6, 2.0, torch.rand(H, dtype=dtype) / 8, bias[:, :, :29, :33])
    late = replace(early, bias=bias[:, :, 29:, 7:])
    if plain:
        early = late = Scoring(0.6)
    spans = [
        RecordedCall(0, 29, 0, 33, Mask(causal=True, keys=keys[:, :33]), early),
        RecordedCall(29, 14, 7, 40, Mask(causal=True, window=11), late),
    ]
    lse = torch.cat([part(q, k, s)[1] for s in spans], 2)
    trace = Trace([Layer(4, "blocks.4.attention", "self", "decoder")], model="Made up", **settings)
    trace.layer_traces[4] = LayerTrace(trace.layers[0], (B, H, T, S), spans, q, k, lse)
    return trace


def part(q, k, span):
    q, k = q[:, :, span.row : span.row + span.T], k[:, :, span.key : span.key + span.S]
    return recompute(q, k, span.mask, span.scoring, weights=True, lse=True)


@pytest.fixture(scope="module")
def whole(trace):
    return all_weights(trace)


def all_weights(trace):
    """All weights, from another implementation."""
    record = trace.layer_traces[4]
    out = torch.zeros(B, H, T, S, dtype=record.q.dtype)
    for s in record.calls:
        weights = part(record.q, record.k, s)[0]
        out[:, :, s.row : s.row + s.T, s.key : s.key + s.S] = weights
    return out


def spans_of(size):
    ends = st.tuples(st.integers(0, size), st.integers(0, size))
    return ends.map(lambda pair: slice(min(pair), max(pair)))


def test_all_weights_are_those_of_every_span(trace, whole):
    assert (trace.weights(4) - whole).abs().max() < 1e-6
    assert (trace.weights("blocks.4.attention") - whole).abs().max() < 1e-6
    assert whole[1, :, 0].eq(0).all()  # a row of padding, which sees nothing


@given(rows=spans_of(T), cols=spans_of(S), head=st.integers(-H, H - 1), batch=st.integers(0, B - 1))
def test_a_tile_is_that_part_of_the_whole(trace, whole, rows, cols, head, batch):
    tile = trace.tile(4, head, rows, cols, batch)
    assert tile.shape == whole[batch, head, rows, cols].shape
    assert torch.allclose(tile, whole[batch, head, rows, cols], rtol=0, atol=1e-6)


def test_a_row_and_the_keys_it_looks_at_most(trace, whole):
    assert (trace.row(4, 1, -1, batch=1) - whole[1, 1, -1]).abs().max() < 1e-6
    top = trace.top(4, 2, 31, k=3)
    expected = whole[0, 2, 31].topk(3)
    assert torch.equal(top.keys, expected.indices)
    assert (top.weights - expected.values).abs().max() < 1e-6
    assert trace.top(4, 2, 31, k=999).keys.shape == (S,)


@settings(max_examples=30)
@given(
    level=st.integers(0, 3),
    data=st.data(),
    page=st.sampled_from([1, 3, 8]),
    block=st.sampled_from([1, 8, 100, 2**18]),
    overview=st.sampled_from([None, 6, 1024]),
    hide_sink=st.booleans(),
    plain=st.booleans(),
    share=st.sampled_from([(2, 7), (16, 2**26)]),
    close=st.sampled_from([(torch.float32, 0, 1e-6), (torch.float64, 1e-6, 1e-12)]),
)
def test_cells_are_mean_and_max_of_their_weights(
    level, data, page, block, overview, hide_sink, plain, share, close
):
    dtype, rtol, atol = close
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_module, "PAGE", page)
        patch.setattr(pooling, "BLOCK", block)
        patch.setattr(pooling, "ROWS", share[0])
        patch.setattr(pooling, "SHARE", share[1])
        trace = built(plain, dtype)
        level = min(level, trace.levels(4) - 1)
        side = 1 << level
        if overview == 1024:  # then coarse cells come from what was measured
            trace.statistics(4)
        elif overview is not None:  # or from an overview that is made for them
            patch.setattr(trace_module, "cell_side", lambda n: statistics.cell_side(n, overview))
        shape = -(-T // side), -(-S // side)
        rows, cols = data.draw(spans_of(shape[0])), data.draw(spans_of(shape[1]))
        mean, most = trace.cells(4, 2, level, rows, cols, batch=1, hide_sink=hide_sink)
        shown = all_weights(trace)[1, 2]
        shown[:, : int(hide_sink)] = 0
        expected = [
            [shown[r : r + side, c : c + side] for c in range(0, S, side)]
            for r in range(0, T, side)
        ]
        for found, how in ((mean, Tensor.mean), (most, Tensor.max)):
            cells = torch.tensor([[float(how(cell)) for cell in row] for row in expected])[
                rows, cols
            ]
            assert found.shape == cells.shape
            assert torch.allclose(found, cells, rtol=rtol, atol=atol)


def test_cells_are_computed_by_threads_that_work_alone_and_others_keep_theirs():
    """Those that meet at every small product take longer than one, and most on a busy machine."""
    script = """if True:
        import threading, torch
        from glasshead.observe import pooling
        torch.set_num_threads(3)
        pool, ready = pooling._threads("page"), threading.Barrier(3)  # so that each answers once
        alone = [pool.submit(lambda: (ready.wait(), torch.get_num_threads())[1]) for _ in range(3)]
        later = []
        thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        found = [one.result() for one in alone]
        thread.start(), thread.join()
        print(found, torch.get_num_threads(), later)
    """
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert told.strip() == "[1, 1, 1] 3 [3]"


def test_the_last_level_fits_a_page_and_the_cache_stays_small(monkeypatch):
    monkeypatch.setattr(trace_module, "PAGE", 4)
    trace = built(cache_bytes=3 * 2 * 4 * 16)
    assert trace.levels(4) == 5  # 47 / 2^4 is at most 4, 47 / 2^3 is not
    assert trace.cells(4, 0, -1).mean.shape == (3, 3)
    trace.cells(4, 0, 0)
    assert len(trace._pages._values) == 3


def test_many_threads_may_ask_at_once(monkeypatch):
    monkeypatch.setattr(trace_module, "PAGE", 4)
    monkeypatch.setattr(trace_module, "cell_side", lambda n: 2)
    trace, alone = built(cache_bytes=2 * 2 * 4 * 16), built()
    asked = [(head, level) for level in (0, 1, 2) for head in range(H)] * 3
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda one: trace.cells(4, *one), asked))
    for one, cells in zip(asked, found, strict=True):
        assert torch.equal(cells.max, alone.cells(4, *one).max)


def test_cells_of_a_long_map_are_the_overview_that_was_measured():
    torch.manual_seed(1)
    n = 2500  # cells of 32 in the overview
    q, k = torch.randn(2, 1, 1, n, 7)
    mask = Mask(causal=True)
    lse = recompute(q, k, mask, Scoring(), weights=False, lse=True)[1]
    layer = Layer(0, "here", "self")
    pair = []
    for measured in (True, False):
        trace = Trace([layer])
        calls = [RecordedCall(0, n, 0, n, mask, Scoring())]
        trace.layer_traces[0] = LayerTrace(layer, (1, 1, n, n), calls, q, k, lse)
        if measured:
            assert trace.statistics(0).overview_cell == (32, 32)
        pair.append(trace.cells(0, 0, 5))
    for ours, theirs in zip(*pair, strict=True):
        assert ours.shape == (79, 79)
        assert (ours - theirs).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda s: s.tile(0, 0), "layer 0 was not recorded"),
        (lambda s: s.tile(4, 3), "head 3 does not exist"),
        (lambda s: s.tile(4, 0, batch=2), "batch 2 does not exist"),
        (lambda s: s.row(4, 0, T), f"rows {T} does not exist"),
        (lambda s: s.tile(4, 0, slice(0, 9, 2)), "rows has step 2"),
        (lambda s: s.top(4, 0, 0, k=0), r"k \(0\)"),
        (lambda s: s.cells(4, 0, 9), "level 9 does not exist"),
    ],
)
def test_what_does_not_exist_is_named(trace, ask, message):
    with pytest.raises(InputError, match=message) as caught:
        ask(trace)
    assert caught.value.hint


def test_answers_too_large_are_refused_with_a_way_out(trace, monkeypatch):
    monkeypatch.setattr(trace_module, "MAX_CELLS", 100)
    for ask in (lambda: trace.weights(4), lambda: trace.tile(4, 0), lambda: trace.cells(4, 0, 0)):
        with pytest.raises(InputError, match="numbers, more than 100") as caught:
            ask()
        assert "tile" in caught.value.hint


def test_a_layer_that_did_not_run_is_named():
    with pytest.raises(RecordingError, match=r"layer 4 \(x\) did not run"):
        Trace([Layer(4, "x", "self")]).tile(4, 0)


def test_a_file_holds_everything(trace, whole, tmp_path):
    trace = built()
    trace.ids = torch.arange(B * S).view(B, S)
    trace.tokens = [["小", b"\xe7\x8c", "x"], ["y"]]
    trace.source_tokens = ["a", "b"]
    trace.about = {"text": "小猫 x", "offsets": [[0, 1], [1, 3]]}
    entropy = trace.statistics(4).entropy
    trace.save(tmp_path / "x.glass")
    again = open_glass(tmp_path / "x.glass")
    assert again.layers == trace.layers
    assert again.model == "Made up"
    assert torch.equal(again.weights(4), trace.weights(4))
    assert torch.equal(again.ids, trace.ids)
    assert again.tokens == [["小", b"\xe7\x8c", "x"], ["y"]]
    assert again.source_tokens == [["a", "b"]]
    assert again.about == trace.about
    assert torch.equal(again.statistics(4).entropy, entropy)
    assert again.statistics(4).overview_cell == trace.statistics(4).overview_cell
    again.save(tmp_path / "x.glass")  # over itself
    assert torch.equal(open_glass(tmp_path / "x.glass").weights(4), trace.weights(4))
    assert [p.name for p in tmp_path.iterdir()] == ["x.glass"]
    with pytest.raises(InputError, match="cannot be written"):
        trace.save(tmp_path / "no such folder" / "x.glass")
    trace.about = {"no": object()}
    with pytest.raises(InputError, match="JSON"):
        trace.save(tmp_path / "x.glass")


@pytest.mark.parametrize("keep", ["tensors", "statistics", "both"])
@torch.no_grad()
def test_a_recording_comes_back_from_its_file_in_its_own_dtype(tmp_path, keep):
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=31, n_layers=2, n_heads=2, d_model=20, positions="alibi"))
    ids = torch.randint(31, (2, 13))
    with observing(model.bfloat16().eval(), keep=keep, ids=ids, tokens=[list("ab")] * 2) as trace:
        model(ids)
    trace.save(tmp_path / "x.glass")
    again = open_glass(tmp_path / "x.glass")
    if keep != "statistics":
        assert again.layer_traces[0].q.dtype == torch.bfloat16
        assert torch.equal(again.weights(1), trace.weights(1))
    else:
        with pytest.raises(RecordingError, match="without its queries"):
            again.weights(1)
    assert torch.equal(again.statistics(1).top_keys, trace.statistics(1).top_keys)
    assert (again.statistics(1).induction - trace.statistics(1).induction).abs().max() < 1e-6


def test_masks_that_layers_share_lie_in_the_file_once(tmp_path):
    trace = built()
    record, dense = trace.layer_traces[4], torch.rand(1, 1, T, S).expand(B, 1, T, S) > 0.5
    for index in (4, 5):
        layer = Layer(index, f"layer {index}", "self")
        trace.replace_layer(layer)
        calls = [RecordedCall(0, T, 0, S, Mask(dense=dense), Scoring())]
        trace.layer_traces[index] = replace(record, layer=layer, calls=calls)
    trace.save(tmp_path / "x.glass")
    with safe_open(tmp_path / "x.glass", framework="pt") as file:
        assert sorted(file.keys()) == ["4.0.dense", "4.k", "4.lse", "4.q"]
    assert torch.equal(open_glass(tmp_path / "x.glass").weights(5), trace.weights(5))


def test_opening_does_not_read_it_all(tmp_path):
    n, layer = 2**20, Layer(0, "here", "self")
    q = torch.zeros(1, 1, n, 32)  # 128 MiB
    trace = Trace([layer])
    calls, lse = [RecordedCall(0, n, 0, 1, Mask(), Scoring())], torch.zeros(1, 1, n)
    trace.layer_traces[0] = LayerTrace(layer, (1, 1, n, 1), calls, q, q[:, :, :1], lse)
    trace.save(tmp_path / "x.glass")
    code = """
import sys
from glasshead.observe.trace import open_glass
from tests.observe.peak_memory import peak_memory
before = peak_memory()
open_glass(sys.argv[1]).tile(0, 0, slice(2**19, 2**19 + 100))
print(peak_memory() - before)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "x.glass")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 50  # MiB


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("glass") / "x.glass"
    trace = built(tokens=["a"], ids=torch.zeros(B, S, dtype=torch.int64))
    trace.statistics(4)
    trace.save(path)
    return path


@given(data=st.data())
def test_a_cut_file_is_named_as_damaged(file, data):
    whole = file.read_bytes()
    cut = file.with_name("cut.glass")
    cut.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(InputError, match=r"cut\.glass"):
        open_glass(cut)


def places(tree):
    """Every key or index of nested dicts and lists, with what holds it."""
    if isinstance(tree, dict | list):
        for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
            yield tree, key
            yield from places(tree[key])


@pytest.mark.parametrize(
    "odd", [None, -1, 2**70, 0.5, "q", "4.q", "ids", [], {}, [[]], {"bytes": "zz"}], ids=repr
)
def test_no_header_whatever_does_worse_than_an_input_error(file, odd):
    """Each value of the header is replaced in turn by something that does not belong there."""
    with safe_open(file, framework="pt") as opened:
        header = json.loads(opened.metadata()["header"])
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    path = file.with_name("odd.glass")
    for holder, key in list(places(header)):
        kept, holder[key] = holder[key], odd
        save_file(tensors, path, {"glass": "1", "header": json.dumps(header)})
        holder[key] = kept
        try:
            trace = open_glass(path)
        except InputError:
            continue
        for layer in trace.layers:  # it was harmless after all
            try:
                trace.tile(layer.index, 0, slice(0, 3), slice(0, 3))
                trace.statistics(layer.index)
                trace.cells(layer.index, 0, 0, slice(0, 2), slice(0, 2))
            except (InputError, RecordingError, ConfigError):
                pass


def test_other_files_and_newer_versions_are_named(file, tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        open_glass(tmp_path / "none.glass")
    save_file({"x": torch.zeros(1)}, tmp_path / "other.glass")
    with pytest.raises(InputError, match=r"is not a \.glass file"):
        open_glass(tmp_path / "other.glass")
    save_file({"x": torch.zeros(1)}, tmp_path / "new.glass", {"glass": "2", "header": "{}"})
    with pytest.raises(InputError, match="version 2") as caught:
        open_glass(tmp_path / "new.glass")
    assert "newer" in caught.value.hint
    (tmp_path / "text.glass").write_text("hello")
    with pytest.raises(InputError, match="is damaged"):
        open_glass(tmp_path / "text.glass")


@pytest.mark.parametrize("measured", [True, False])
def test_cells_at_the_border_are_means_of_what_is_there(monkeypatch, measured):
    monkeypatch.setattr(trace_module, "PAGE", 3)
    monkeypatch.setattr(trace_module, "cell_side", lambda n: 2)
    trace, side = built(), 8
    if measured:
        trace.statistics(4)
    r, c = (n // side * side for n in (T, S))  # neither is a multiple of it
    border = all_weights(trace)[0, 2, r:, c:]
    assert border.mean() > 1e-3
    assert abs(trace.cells(4, 2, 3).mean[-1, -1] - border.mean()) < 1e-6
