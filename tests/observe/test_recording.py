"""Recording our own models: exact, complete, and without a trace."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from glasshead.attention.hooks import AttentionCall, Layer
from glasshead.attention.mask import Mask
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.attention.scores import Scoring
from glasshead.errors import ConfigError, InputError, RecordingError
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.transformer import Encoder, Transformer, TransformerConfig
from glasshead.observe.exactness import check_exactness
from glasshead.observe.hooks import attach_hooks
from glasshead.observe.recording import observing
from glasshead.observe.tensor_storage import GrowingTensor, TensorStorage
from tests.attention.hooks import Keep, Replace

V, PAD = 31, 0

GPTS = {
    "learned": {},
    "rotary": {"positions": "rotary", "n_kv_heads": 2, "qk_norm": True},
    "alibi": {"positions": "alibi", "window": 5},
    "capped": {"softcap": 1.5, "n_kv_heads": 1},
    "explicit": {"positions": "rotary", "backend": "explicit", "window": 3},
}


def new_gpt(**settings):
    torch.manual_seed(7)
    config = GPTConfig(vocab_size=V, max_len=64, n_layers=3, n_heads=4, d_model=40, **settings)
    return sharpened(GPT(config)).eval()


def new_transformer(kind=Transformer, **settings):
    torch.manual_seed(7)
    settings = {"n_layers": 2, "n_heads": 3, "d_model": 36, "pad": PAD} | settings
    return sharpened(kind(TransformerConfig(vocab_size=V, **settings))).eval()


def sharpened(model):
    """Attention that has preferences, so that a mistake shows."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            nn.init.normal_(module.qkv.weight, std=0.3)
    return model


def ids(B, T, seed=3):
    return torch.randint(1, V, (B, T), generator=torch.Generator().manual_seed(seed))


def looks(model, *args):
    """The last call of each layer."""
    hooks = {m: Keep([]) for m in model.modules() if isinstance(m, MultiHeadAttention)}
    with attach_hooks(hooks):
        model(*args)
    return [hook.calls[-1] for hook in hooks.values()]


def dense(look: AttentionCall, allowed, slopes=None):
    """The textbook's weights in float64; `allowed` (B or 1, 1, T, S) comes from the test."""
    q, k = look.q.double(), look.k.double()
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    s = torch.einsum("bhtd,bhsd->bhts", q, k) / q.shape[-1] ** 0.5
    if look.scoring.softcap is not None:
        s = look.scoring.softcap * torch.tanh(s / look.scoring.softcap)
    T, S = s.shape[-2:]
    if slopes is not None:
        far = (torch.arange(T)[:, None] + S - T - torch.arange(S)).abs()
        s = s - slopes.double()[:, None, None] * far
    s = s.masked_fill(~allowed, -torch.inf)
    return s.softmax(-1).nan_to_num(0)


def causal(T, S, window=None):
    lag = torch.arange(T)[:, None] + S - T - torch.arange(S)
    return ((lag >= 0) & (lag < (window or S + T)))[None, None]


@pytest.mark.parametrize("name", GPTS)
@torch.no_grad()
def test_every_weight_of_a_gpt_is_exact_and_its_logits_keep_every_bit(name):
    model, text = new_gpt(**GPTS[name]), ids(2, 23)
    before = model(text)
    with observing(model) as trace:
        during = model(text)
    assert torch.equal(before, during)
    assert torch.equal(before, model(text))
    assert [layer.name for layer in trace.layers] == [f"blocks.{i}.attention" for i in range(3)]
    assert {(layer.kind, layer.part) for layer in trace.layers} == {("self", None)}
    allowed = causal(23, 23, GPTS[name].get("window"))
    for i, look in enumerate(looks(model, text)):
        expected = dense(look, allowed, model.positions.slopes())
        assert (trace.weights(i) - expected).abs().max() < 1e-5


@torch.no_grad()
def test_a_transformer_is_recorded_whole_encoder_decoder_and_cross():
    model, source, target = new_transformer(), ids(2, 11), ids(2, 7, seed=5)
    source[1, :3] = PAD  # on the left
    target[0, -2:] = PAD  # and on the right
    before = model(source, target)
    with observing(model) as trace:
        during = model(source, target)
    assert torch.equal(before, during)
    assert [(layer.part, layer.kind) for layer in trace.layers] == [
        *[("encoder", "self")] * 2,
        *[("decoder", "self"), ("decoder", "cross")] * 2,
    ]
    real, written = (source != PAD)[:, None, None], (target != PAD)[:, None, None]
    allowed = {
        ("encoder", "self"): real,
        ("decoder", "self"): written & causal(7, 7),
        ("decoder", "cross"): real,
    }
    for layer, look in zip(trace.layers, looks(model, source, target), strict=True):
        expected = dense(look, allowed[layer.part, layer.kind])
        assert (trace.weights(layer.index) - expected).abs().max() < 1e-5


@torch.no_grad()
def test_an_encoder_alone_is_recorded():
    model, text = new_transformer(Encoder, positions="rotary"), ids(2, 13)
    before = model(text)
    with observing(model) as trace:
        assert torch.equal(before, model(text))
    assert (trace.weights(1).sum(-1) - 1).abs().max() < 1e-5


@pytest.mark.parametrize("name", ["rotary", "alibi"])
@torch.no_grad()
def test_cached_decoding_grows_the_same_map_as_reading_at_once(name):
    model, text = new_gpt(**GPTS[name]), ids(2, 17)
    with observing(model) as whole:
        model(text)
    with observing(model) as trace:
        caches = model.new_caches()
        for piece in text.split([5, 1, 1, 3, 1, 1, 1, 1, 1, 1, 1], dim=1):
            model(piece, caches=caches)
    for i in range(3):
        assert trace.shape(i) == (2, 4, 17, 17)
        assert (trace.weights(i) - whole.weights(i)).abs().max() < 1e-5
        ours, theirs = trace.statistics(i), whole.statistics(i)
        assert (ours.entropy - theirs.entropy).abs().max() < 1e-5


@torch.no_grad()
def test_a_translation_token_by_token_grows_self_and_cross_maps():
    model, source, target = new_transformer(), ids(2, 11), ids(2, 7, seed=5)
    with observing(model) as whole:
        model(source, target)
    with observing(model) as trace:
        memory, caches = model.encode(source), model.new_caches()
        for token in target.split(1, dim=1):
            model.features(token, memory, caches)
    for layer in whole.layers:
        assert trace.layer(layer.index) == layer
        assert (trace.weights(layer.index) - whole.weights(layer.index)).abs().max() < 1e-5
        ours, theirs = trace.statistics(layer.index), whole.statistics(layer.index)
        assert (ours.received - theirs.received).abs().max() < 1e-5


@torch.no_grad()
def test_streamed_statistics_are_those_of_the_tensors_and_keep_no_tensors():
    model, text = new_gpt(**GPTS["rotary"]), ids(2, 19)
    with observing(model, keep="statistics", ids=text) as streamed:
        model(text)
    with observing(model, keep="both", ids=text) as both:
        model(text)
    with observing(model, ids=text) as kept:
        model(text)
    for i in range(3):
        for other in (both, kept):
            for field in ("entropy", "received", "overview_mean", "induction"):
                ours, theirs = getattr(streamed.statistics(i), field), other.statistics(i)
                assert (ours - getattr(theirs, field)).abs().max() < 1e-6
        assert streamed.layer_traces[i].q is None
    with pytest.raises(RecordingError, match="without its queries and keys") as caught:
        streamed.tile(0, 0)
    assert "tensors" in caught.value.hint
    with observing(model, keep="statistics"):
        model(text)
        with pytest.raises(RecordingError, match="called again"):
            model(text)


@torch.no_grad()
def test_statistics_leave_out_the_queries_that_are_padding():
    model, text = new_transformer(Encoder), ids(2, 13)
    text[1, 9:] = PAD
    with observing(model) as padded:
        model(text)
    with observing(model) as alone:
        model(text[1:, :9])
    ours, theirs = padded.statistics(0), alone.statistics(0)
    assert (ours.received_total[1, :, :9] - theirs.received_total[0]).abs().max() < 1e-5


@torch.no_grad()
def test_chosen_layers_only_by_index_or_name():
    model, text = new_gpt(), ids(1, 5)
    with observing(model, layers=[-1, "blocks.0.attention"]) as trace:
        model(text)
    assert [layer.index for layer in trace.layers] == [0, 2]
    with pytest.raises(InputError, match="layer 1 was not recorded"):
        trace.tile(1, 0)
    for wrong in ([3], ["blocks.0.atention"]):
        with pytest.raises(ConfigError), observing(model, layers=wrong):
            pass


@torch.no_grad()
def test_watching_ends_with_the_block_whatever_happens_and_nests():
    model, text = new_gpt(), ids(1, 5)
    with pytest.raises(InputError), observing(model) as trace:
        trace.tile(model(text).shape[0] + 99, 0)
    assert all(block.attention.hooks == () for block in model.blocks)
    with observing(model) as outer, observing(model, layers=[1]) as inner:
        model(text)
    assert torch.equal(outer.weights(1), inner.weights(1))
    assert all(block.attention.hooks == () for block in model.blocks)


@torch.no_grad()
def test_a_hook_that_was_there_still_works_and_its_change_takes_effect():
    model, text = new_gpt(), ids(1, 5)
    silence = Replace(lambda call: torch.zeros_like(call.context))
    with attach_hooks({model.blocks[0].attention: silence}):
        changed = model(text)
        with observing(model) as trace:
            assert torch.equal(model(text), changed)
    assert (trace.weights(0).sum(-1) - 1).abs().max() < 1e-5


def test_gradients_pass_unchanged():
    model, text = new_gpt(**GPTS["rotary"]), ids(2, 7)
    model(text).square().mean().backward()
    before = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with observing(model) as trace:
        model(text).square().mean().backward()
    assert not trace.weights(0).requires_grad
    for was, p in zip(before, model.parameters(), strict=True):
        assert torch.equal(was, p.grad)


@torch.no_grad()
def test_autocast_records_what_the_kernel_was_given():
    model, text = new_gpt(**GPTS["rotary"]), ids(2, 13)
    with torch.autocast("cpu", torch.bfloat16):
        before = model(text)
        with observing(model) as trace:
            assert torch.equal(before, model(text))
        caught = looks(model, text)
        assert trace.layer_traces[1].q.dtype == caught[1].q.dtype
        for i, look in enumerate(caught):
            expected = dense(look, causal(13, 13))
            assert (trace.weights(i) - expected).abs().max() < 1e-5


@torch.no_grad()
def test_a_compiled_model_is_recorded_and_afterwards_compiled_as_before():
    model, text = new_gpt(positions="rotary"), ids(2, 13)
    with observing(model) as plain:
        model(text)
    model.compile(backend="eager")
    before = model(text)
    for _ in range(2):  # what was compiled for the first recording must not serve the second
        with observing(model) as trace:
            model(text)
        for i in range(3):
            assert (trace.weights(i) - plain.weights(i)).abs().max() < 1e-5
        assert torch.equal(model(text), before)


@torch.no_grad()
def test_what_cannot_be_recorded_is_refused_with_the_reason():
    model, text = new_gpt(dropout=0.2), ids(1, 5)
    with pytest.raises(RecordingError, match=r"dropout 0\.2") as caught, observing(model.train()):
        model(text)
    assert "eval" in caught.value.hint
    model.eval()
    with observing(model):
        model(text)
        with pytest.raises(RecordingError, match="called again") as caught:
            model(text)
    assert "another observing" in caught.value.hint
    with pytest.raises(RecordingError, match="no attention layer of GPT ran"), observing(model):
        pass
    with pytest.raises(RecordingError, match="Linear has no attention"), observing(nn.Linear(2, 3)):
        pass
    torchs = nn.TransformerEncoderLayer(12, 3)
    with pytest.raises(RecordingError) as caught, observing(torchs):
        pass
    assert "from_torch" in caught.value.hint
    with pytest.raises(ConfigError, match="unknown keep 'tensor'"), observing(model, keep="tensor"):
        pass


@torch.no_grad()
def test_a_cache_that_is_reordered_between_calls_is_refused():
    model, text = new_gpt(), ids(2, 7)
    caches = model.new_caches()
    with observing(model):
        model(text, caches=caches)
        for cache in caches:
            cache.reorder(torch.tensor([1, 1]))
        with pytest.raises(RecordingError, match="do not continue"):
            model(text[:, :1], caches=caches)


def finished_call(q, k, v, rules, context, lse):
    return AttentionCall(
        q, k, v, context, lambda: rules, cross=False, rounded_scores=False, lse=lse
    )


@pytest.mark.parametrize("what", ["q", "mask", "scale", "v", "lse"])
def test_the_check_finds_what_is_not_the_attention_that_ran(what):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 3, 7, 5).unbind(0)
    given = {"q": q, "k": k, "v": v, "rules": (Mask(causal=True), Scoring())}
    s = (q @ k.mT / 5**0.5).masked_fill(~causal(7, 7), -torch.inf)
    given |= {"context": s.softmax(-1) @ v, "lse": s.logsumexp(-1)}
    layer = Layer(0, "here", "self")
    check_exactness(layer, finished_call(**given))
    wrong = {
        "q": {"q": q * 1.01},
        "mask": {"rules": (Mask(causal=True, window=6), Scoring())},
        "scale": {"rules": (Mask(causal=True), Scoring(0.4))},
        "v": {"v": v + 0.001},
        "lse": {"lse": given["lse"] + 0.001},
    }
    with pytest.raises(RecordingError, match="cannot be recorded exactly"):
        check_exactness(layer, finished_call(**given | wrong[what]))


def test_a_long_row_is_checked_as_exactly_as_a_short_one():
    torch.manual_seed(0)
    n = 200_003  # one sum of so many values in float32 is off by more than a kernel may be
    q, k, v = torch.randn(1, 2, 1, 7), torch.randn(1, 2, n, 7), torch.randn(1, 2, n, 5) + 3
    s = q.double() @ k.double().mT / 7**0.5
    context, lse = (s.softmax(-1) @ v.double()).float(), s.logsumexp(-1).float()
    layer = Layer(0, "here", "self")
    rules = Mask(), Scoring()
    check_exactness(layer, finished_call(q, k, v, rules, context, lse))
    with pytest.raises(RecordingError, match="cannot be recorded exactly"):
        check_exactness(layer, finished_call(q, k, v, rules, context + 1.2e-4, lse))


@torch.no_grad()
def test_large_recordings_lie_in_files_and_read_the_same(tmp_path):
    model, text = new_gpt(), ids(1, 29)
    with observing(model) as small:
        model(text)
    with observing(model, in_memory=0, folder=tmp_path) as trace:
        model(text)
        assert list(tmp_path.iterdir()) == []  # nameless already
    for i in range(3):
        assert torch.equal(trace.weights(i), small.weights(i))
    with pytest.raises(RecordingError, match="do not fit"):
        TensorStorage(0, tmp_path).empty((2**60,), torch.float32)


def test_a_growing_tensor_is_its_pieces_in_a_row():
    torch.manual_seed(0)
    pieces = [torch.randn(2, 3, n, 5) for n in (7, 1, 1, 11, 0, 2)]
    growing = GrowingTensor(TensorStorage(in_memory=2000))
    for piece in pieces:
        growing.append(piece)
    assert torch.equal(growing.value, torch.cat(pieces, 2))


def test_importing_the_recording_does_not_import_transformers():
    code = "import sys, glasshead.observe.recording; print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
