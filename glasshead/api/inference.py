"""Use a trained model on a text: generate, translate, look.

To stream tokens, generate many texts at once or choose a device, use `generation/stream.py`,
`generation/translate.py` and `generation/opening.py`.
"""

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import overload

from glasshead.checkpoint import Run, load
from glasshead.errors import InputError
from glasshead.generation.beam import SearchConfig
from glasshead.generation.opening import make_inspectable, open_inspectable
from glasshead.generation.sampling import SamplingConfig
from glasshead.generation.stream import start_ids, stream
from glasshead.generation.text_state import find_end_ids
from glasshead.generation.translate import Translator
from glasshead.model.gpt import GPT
from glasshead.model.transformer import Transformer
from glasshead.observe.trace import Trace

__all__ = ["complete", "generate", "look", "translate"]


def generate(
    run: str | Path | Run,
    prompt: str,
    *,
    max_tokens: int = 256,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    stop: Sequence[str] = (),
    seed: int | None = None,
) -> str:
    r"""Continue a text with a language model.

    >>> import glasshead
    >>> poem = "海上明月共潮生。\n" * 30
    >>> run = glasshead.train(poem, steps=30, n_layers=1, d_model=16, max_len=8, quiet=True)
    >>> glasshead.generate(run, "海上", max_tokens=5, temperature=0)
    '明月共潮生'

    Args:
        run: what `load` or `train` returned, or the path of a run, of a transformers folder or of a
            GGUF file.
        prompt: the text to continue; it is not part of the result.
        max_tokens: the largest number of new tokens.
        temperature: below 1 safer, above 1 wilder; 0 takes the most probable token each time.
        top_k, top_p, min_p: sample among the most probable tokens only.
        repetition_penalty: above 1, tokens that occurred before become less probable.
        stop: end before any of these texts.
        seed: the same seed gives the same text; a random one if None.

    Returns:
        The continuation, without the prompt and without the text that stopped it.
    """
    run = run if isinstance(run, Run) else load(run)
    model = run.model
    if not isinstance(model, GPT):
        raise _wrong_kind(run, "does not continue texts", "generate")
    config = SamplingConfig(temperature, top_k, top_p, min_p, repetition_penalty)
    ids = run.tokenizer.prompt_ids(prompt) or start_ids(run.tokenizer)
    pieces = stream(
        model,
        run.tokenizer,
        [ids],
        config,
        max_tokens=max_tokens,
        stop=[stop] if isinstance(stop, str) else stop,
        end_ids=find_end_ids(model, run.tokenizer, run.config),
        seed=random.randrange(2**32) if seed is None else seed,
    )
    return "".join(piece.text for piece in pieces)


complete = generate  # its earlier name


@overload
def translate(run: str | Path | Run, text: str, *, beam: int = ..., alpha: float = ...) -> str: ...


@overload
def translate(
    run: str | Path | Run, text: list[str], *, beam: int = ..., alpha: float = ...
) -> list[str]: ...


def translate(
    run: str | Path | Run, text: str | list[str], *, beam: int = 4, alpha: float = 0.6
) -> str | list[str]:
    """Translate a text; or several, which is faster than one after the other.

    >>> import glasshead
    >>> pairs = [(f"{i} und {j}", f"{i} and {j}") for i in range(9) for j in range(9)]
    >>> run = glasshead.train(pairs, preset="pairs-tiny", steps=5, d_model=16, quiet=True)
    >>> texts = glasshead.translate(run, ["3 und 4", "8 und 1"], beam=2)
    >>> len(texts)
    2

    Args:
        run: what `load` or `train` returned, or the path of a translator's run or folder.
        text: one text, or a list of texts.
        beam: how many translations are followed at once; 1 takes the most probable token each time.
        alpha: how strongly longer translations are preferred.
    """
    run = run if isinstance(run, Run) else load(run)
    if not isinstance(run.model, Transformer):
        raise _wrong_kind(run, "does not translate", "translate")
    config = SearchConfig(beam=beam, alpha=alpha)
    translator = Translator(run.model, run.tokenizer, config, lowercase=run.config.lowercase)
    best = [found.best.text for found in translator([text] if isinstance(text, str) else text)]
    return best[0] if isinstance(text, str) else best


def look(run: str | Path | Run, text: str) -> Trace:
    r"""Record what every head attends to while a model reads a text, and translates it if it can.

    >>> import glasshead
    >>> poem = "海上明月共潮生。\n" * 30
    >>> run = glasshead.train(poem, steps=3, n_layers=1, d_model=16, max_len=8, quiet=True)
    >>> trace = glasshead.look(run, "明月")
    >>> trace.weights(layer=0).shape  # (B, H, T, S)
    torch.Size([1, 4, 2, 2])
    >>> round(sum(trace.row(layer=0, head=0, query=-1).tolist()), 3)
    1.0

    Args:
        run: what `load` or `train` returned, or the path of a run, of a GGUF file, or of a
            transformers folder or OWNER/NAME on the hub, which then runs in that library.
        text: what the model reads.
    """
    inspectable = make_inspectable(run) if isinstance(run, Run) else open_inspectable(run, say=_say)
    return inspectable.record(text)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _wrong_kind(run: Run, what: str, called: str) -> InputError:
    fitting = {"gpt": "glasshead.generate", "transformer": "glasshead.translate"}
    return InputError(
        f"{run.path} is a {run.config.kind}, which {what}",
        hint=f"try {fitting.get(run.config.kind, 'glasshead.look')} instead of {called}",
    )
