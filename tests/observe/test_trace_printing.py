"""What a trace and its answers print as."""

import torch

from glasshead.model.gpt import GPT, GPTConfig
from glasshead.observe.recording import observing


def recorded(tokens):
    torch.manual_seed(3)
    model = GPT(GPTConfig(vocab_size=11, n_layers=2, n_heads=3, d_model=18, max_len=7))
    with observing(model, tokens=tokens) as trace:
        model(torch.tensor([[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]]))
    return trace


def test_top_keys_have_words_and_print_as_a_table():
    tokens = [[" the", " cat", " sat", "\x1b[31m", b"\xe7"], [" e", " d", " c", " b", " a"]]
    trace = recorded(tokens)
    top = trace.top(1, 2, -1, k=4, batch=1)
    assert top.words == [tokens[1][key] for key in top.keys.tolist()]
    for key, weight, word in zip(*top, strict=True):
        assert f"{int(key):>6}  {float(weight):6.4f}  {word}" in repr(top).splitlines()
    shown = repr(trace.top(1, 2, -1, k=5))
    assert "⟨E7⟩" in shown
    assert "⟨U+001B⟩[31m" in shown
    assert "\x1b" not in shown


def test_a_trace_without_tokens_gives_no_words():
    assert recorded(None).top(0, 0, 3, k=2).words == []


def test_a_trace_prints_as_a_summary():
    shown = repr(recorded([list("abcde"), list("fghij")]))
    assert "object at 0x" not in shown
    assert "5 tokens: abcde" in shown
    assert "layers  0-1: self attention, 3 heads, 5 queries x 5 keys, batch 2" in shown
