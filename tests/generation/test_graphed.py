"""Decoding by a recorded step: in Triton's interpreter, and on the GPU where there is one."""

from typing import Any

import pytest
import torch

from glasshead.generation.decode import PlainDecoder
from glasshead.generation.sampling import GREEDY, PLAIN, SamplingConfig
from glasshead.model.gpt import GPT, GPTConfig
from tests.conftest import interpret

pytest.importorskip("triton", reason="the kernels need Triton")

MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"feed_forward": "gelu-tanh", "qkv_bias": True, "tied": True, "head_bias": False},
    "modern": {
        "positions": "rotary", "norm": "rms", "feed_forward": "relu2", "qk_norm": True,
        "bias": False, "n_kv_heads": 1,
    },
    "swiglu": {"positions": "alibi", "feed_forward": "swiglu", "window": 5, "softcap": 7.0},
    "capped": {"positions": "none", "feed_forward": "none", "logit_softcap": 3.0},
}  # fmt: skip
PROMPTS = [[3, 1, 4, 1, 5], [9, 2], [6]]


def model_of(name: str, device: str, **more: Any) -> GPT:
    torch.manual_seed(5)
    shape = {"vocab_size": 53, "max_len": 23 if device == "cuda" else 6, "n_layers": 2,
             "n_heads": 3, "d_head": 14, "d_model": 42, "d_ff": 71,
             **MODELS[name], **more}  # fmt: skip
    model = GPT(GPTConfig(**shape)).to(device)
    with torch.no_grad():
        for p in model.parameters():  # norms and biases that show when they are left out
            p += 0.2 * torch.randn_like(p)
    return model


def taken(decoder: PlainDecoder, steps: int) -> list[list[int | None]]:
    return [decoder.step() for _ in range(steps)]


def check(name: str, device: str, recorded: bool) -> None:
    """The ids of the plain decoder, past where the model's room ends, for one text and for many."""
    from glasshead.generation.graphed import GraphDecoder

    model = model_of(name, device)
    steps = 29 if device == "cuda" else 3  # the interpreter takes seconds for each
    penalised = SamplingConfig(temperature=0.9, top_k=11, repetition_penalty=1.3)
    cases = [(PROMPTS, GREEDY), (PROMPTS[:1], PLAIN), (PROMPTS, penalised), (PROMPTS[1:2], GREEDY)]
    for prompts, config in cases if device == "cuda" else cases[1:3]:
        plain = taken(PlainDecoder(model, prompts, config, stop_ids=[7], seed=3), steps)
        graph = GraphDecoder(
            model, prompts, config, max_tokens=steps, stop_ids=[7], seed=3, recorded=recorded
        )
        assert taken(graph, steps) == plain, (name, config)


def check_turns(device: str, recorded: bool) -> None:
    """Decoders that take turns, of which one ends early, do not take each other's caches."""
    from glasshead.generation.graphed import GraphDecoder

    model = model_of("gpt2", device, max_len=53)

    def new(tokens: int) -> GraphDecoder:
        return GraphDecoder(model, PROMPTS[:1], GREEDY, max_tokens=tokens, recorded=recorded)

    expected = taken(PlainDecoder(model, PROMPTS[:1], GREEDY), 7)
    short = new(2)
    first = taken(short, 1)
    long = new(7)
    begun = taken(long, 1)
    first += taken(short, 1)
    taken(new(7), 5)
    assert first == expected[:2]
    assert begun + taken(long, 6) == expected
    with torch.no_grad():  # in place: no graph minds
        model.positions.table.weight.neg_()
    assert taken(new(3), 3) == taken(PlainDecoder(model, PROMPTS[:1], GREEDY), 3)


INTERPRETED = """
import tests.observe.interpreted
from glasshead.generation import attend_kernel, linear_kernel
from tests.generation.test_graphed import check, check_turns
attend_kernel.PROGRAMS = linear_kernel.PROGRAMS = 3  # each takes milliseconds
for name in ("modern", "swiglu"):
    check(name, "cpu", recorded=False)
check_turns("cpu", recorded=False)
"""


@pytest.mark.deep
def test_the_kernels_give_the_plain_decoders_ids_in_the_interpreter() -> None:
    interpret(INTERPRETED)


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@cuda
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_the_recorded_step_gives_the_plain_decoders_ids(name: str, recorded: bool) -> None:
    check(name, "cuda", recorded)


@cuda
def test_a_recorded_step_gives_the_ids_of_the_same_step_unrecorded_in_bf16() -> None:
    from glasshead.generation.graphed import GraphDecoder

    model = model_of("modern", "cuda", max_len=257).bfloat16()
    found = [
        taken(GraphDecoder(model, PROMPTS, GREEDY, max_tokens=97, recorded=recorded), 97)
        for recorded in (True, False, True)
    ]
    assert found[0] == found[1] == found[2]


@cuda
def test_decoders_that_take_turns_do_not_take_each_others_caches() -> None:
    check_turns("cuda", recorded=True)


@cuda
def test_a_model_on_a_gpu_is_decoded_by_a_recorded_step() -> None:
    from glasshead.generation.graphed import GraphDecoder, new_decoder

    model = model_of("modern", "cuda")
    assert type(new_decoder(model, PROMPTS, GREEDY, max_tokens=5)) is GraphDecoder
    expected = taken(PlainDecoder(model, PROMPTS, GREEDY), 5)
    assert taken(new_decoder(model, PROMPTS, GREEDY, max_tokens=5), 5) == expected
    model.cpu().cuda()  # somewhere else
    assert taken(new_decoder(model, PROMPTS, GREEDY, max_tokens=5), 5) == expected
    with torch.autocast("cuda", torch.bfloat16):
        assert type(new_decoder(model, PROMPTS, GREEDY, max_tokens=5)) is PlainDecoder


@cuda
def test_a_long_text_is_read_in_parts() -> None:
    from glasshead.generation.graphed import GraphDecoder

    model = model_of("modern", "cuda", max_len=4099)
    prompt = torch.randint(53, (3001,), generator=torch.Generator().manual_seed(1)).tolist()
    plain = taken(PlainDecoder(model, [prompt], GREEDY), 31)
    assert taken(GraphDecoder(model, [prompt], GREEDY, max_tokens=31), 31) == plain


@cuda
def test_logits_that_are_not_finite_are_told() -> None:
    from glasshead.errors import NotFiniteError
    from glasshead.generation.graphed import GraphDecoder

    model = model_of("gpt2", "cuda")
    decoder = GraphDecoder(model, PROMPTS, GREEDY, max_tokens=5)
    with torch.no_grad():
        model.norm.bias.fill_(torch.nan)  # type: ignore[union-attr]
    with pytest.raises(NotFiniteError):
        decoder.step()
