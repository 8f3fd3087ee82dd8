"""Decoding by a captured step: in Triton's interpreter, and on the GPU where there is one."""

from typing import Any

import pytest
import torch

from glasshead.generation import batch as batch_module
from glasshead.generation.batch import GenerationBatch
from glasshead.generation.decode import generate
from glasshead.generation.sampling import GREEDY, PLAIN, SamplingConfig
from glasshead.generation.step import ModuleStep, pick_step
from glasshead.model.gpt import GPT, GPTConfig
from tests.conftest import interpret
from tests.generation.reference import decode_plainly

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
PENALISED = SamplingConfig(temperature=0.9, top_k=11, repetition_penalty=1.3)


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


def texts(
    model: GPT, prompts: list[list[int]], config: SamplingConfig, capture: bool, **more: Any
) -> list[list[int]]:
    """What `generate` gives by our kernels."""
    from glasshead.generation.cuda_graph_step import CudaGraphStep

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_module, "pick_step", lambda m: CudaGraphStep(m, capture=capture))
        steps = list(generate(model, prompts, config, **more))
    return [[step[row] for step in steps if step[row] is not None] for row in range(len(prompts))]


def plainly(
    model: GPT, prompts: list[list[int]], config: SamplingConfig, **more: Any
) -> list[list[int]]:
    return [decode_plainly(model, p, config, row=row, **more) for row, p in enumerate(prompts)]


def check(name: str, device: str, capture: bool) -> None:
    """The ids of the reference, past where the model's room ends, for one text and for many."""
    model = model_of(name, device)
    tokens = 29 if device == "cuda" else 4  # the interpreter takes seconds for each
    cases = [(PROMPTS, GREEDY), (PROMPTS[:1], PLAIN), (PROMPTS, PENALISED), (PROMPTS[1:2], GREEDY)]
    for prompts, config in cases if device == "cuda" else cases[1:3]:
        more = {"max_tokens": tokens, "stop_ids": [7], "seed": 3}
        found = texts(model, prompts, config, capture, **more)
        assert found == plainly(model, prompts, config, **more), (name, config)


def check_joining(device: str, capture: bool) -> None:
    """Texts that come and go, alike and not, get the ids they get alone."""
    from glasshead.generation.cuda_graph_step import CudaGraphStep

    model = model_of("modern", device, max_len=53)
    plan = [  # when it joins, what it is, when it leaves
        (0, {"ids": PROMPTS[0], "config": GREEDY, "max_tokens": 9}, None),
        (2, {"ids": PROMPTS[1], "config": GREEDY, "max_tokens": 6}, None),
        (3, {"ids": PROMPTS[2], "config": GREEDY, "max_tokens": 50}, 9),
        (8, {"ids": [7] * 11, "config": PENALISED, "max_tokens": 3}, None),
        (8, {"ids": [8, 8], "config": PLAIN, "max_tokens": 3, "alternatives": 2}, None),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_module, "pick_step", lambda m: CudaGraphStep(m, capture=capture))
        batch, got = GenerationBatch(model), {}
        for step in range(99):
            for number, (start, one, end) in enumerate(plan):
                if start == step:
                    got[batch.join(**one)] = (number, [])
                if end == step:
                    batch.leave(number)
            for new in batch.step():
                got[new.key][1].extend([] if new.id is None else [new.id])
            if step > 9 and not batch.texts:
                break
    for number, ids in got.values():
        _, one, end = plan[number]
        whole = decode_plainly(model, one["ids"], one["config"], max_tokens=one["max_tokens"])
        assert ids == (whole if end is None else whole[: len(ids)])
        assert ids


def check_reuse(device: str) -> None:
    """Generators that take turns do not use each other's slots; a later one uses them again."""
    model = model_of("gpt2", device, max_len=53)
    expected = plainly(model, PROMPTS[:1], GREEDY, max_tokens=7)
    long = generate(model, PROMPTS[:1], GREEDY, max_tokens=7)
    begun = [next(long), next(long)]
    for _ in range(2):
        assert texts_of(generate(model, PROMPTS[:1], GREEDY, max_tokens=7)) == expected
    assert texts_of([*begun, *long]) == expected
    with torch.no_grad():  # in place: a captured graph stays valid
        model.positions.table.weight.neg_()
    found = texts_of(generate(model, PROMPTS[:1], GREEDY, max_tokens=3))
    assert found == plainly(model, PROMPTS[:1], GREEDY, max_tokens=3)


def texts_of(steps: Any) -> list[list[int]]:
    return [list(ids) for ids in zip(*steps, strict=True)]


INTERPRETED = """
import tests.observe.interpreted
from glasshead.generation import attend_kernel, batch, cuda_graph_step, linear_kernel
from tests.generation.test_cuda_graph_step import check, check_joining, check_reuse
attend_kernel.PROGRAMS = linear_kernel.PROGRAMS = 3  # each takes milliseconds
for name in ("modern", "swiglu"):
    check(name, "cpu", capture=False)
check_joining("cpu", capture=False)
made = []
def new(model):
    made.append(cuda_graph_step._IDLE.pop(model, None))
    return made[-1] or cuda_graph_step.CudaGraphStep(model, capture=False)
batch.pick_step = new
check_reuse("cpu")
assert [step is not None for step in made] == [False, False, True, True], made
"""


@pytest.mark.deep
def test_the_kernels_give_the_ids_of_the_reference_in_the_interpreter() -> None:
    interpret(INTERPRETED)


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@cuda
@pytest.mark.parametrize("capture", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_the_captured_step_gives_the_ids_of_the_reference(name: str, capture: bool) -> None:
    check(name, "cuda", capture)


@cuda
@pytest.mark.parametrize("capture", [False, True])
def test_texts_that_come_and_go_get_the_ids_they_get_alone(capture: bool) -> None:
    check_joining("cuda", capture)


@cuda
def test_a_captured_step_gives_the_ids_of_the_same_kernels_one_by_one_in_bf16() -> None:
    model = model_of("modern", "cuda", max_len=257).bfloat16()
    found = [
        texts(model, PROMPTS, GREEDY, capture, max_tokens=97) for capture in (True, False, True)
    ]
    assert found[0] == found[1] == found[2]


@cuda
def test_generators_that_take_turns_do_not_use_each_others_slots() -> None:
    check_reuse("cuda")


@cuda
def test_a_model_on_a_gpu_is_decoded_by_a_captured_step() -> None:
    from glasshead.generation.cuda_graph_step import CudaGraphStep

    model = model_of("modern", "cuda")
    assert type(pick_step(model)) is CudaGraphStep
    expected = plainly(model, PROMPTS, GREEDY, max_tokens=5)
    assert texts_of(generate(model, PROMPTS, GREEDY, max_tokens=5)) == expected
    model.cpu().cuda()  # somewhere else
    assert texts_of(generate(model, PROMPTS, GREEDY, max_tokens=5)) == expected
    with torch.autocast("cuda", torch.bfloat16):
        assert type(pick_step(model)) is ModuleStep


@cuda
def test_a_long_text_is_read_in_parts() -> None:
    model = model_of("modern", "cuda", max_len=4099)
    prompt = torch.randint(53, (3001,), generator=torch.Generator().manual_seed(1)).tolist()
    found = texts(model, [prompt], GREEDY, True, max_tokens=31)
    assert found == plainly(model, [prompt], GREEDY, max_tokens=31)


@cuda
def test_logits_that_are_not_finite_are_an_error() -> None:
    from glasshead.errors import NotFiniteError

    model = model_of("gpt2", "cuda")
    steps = generate(model, PROMPTS, GREEDY, max_tokens=5)
    next(steps)
    with torch.no_grad():
        model.norm.bias.fill_(torch.nan)  # type: ignore[union-attr]
    with pytest.raises(NotFiniteError):
        list(steps)
