"""A run and a text, and one call: to go on with it, to translate it, to look at it.

What a service or an experiment needs, piece by piece or many at once, lies beside: `stream.py`,
`translate.py`, `opening.py`.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import overload

from glasshead.checkpoint import Run, load
from glasshead.errors import InputError
from glasshead.generation.beam import SearchConfig
from glasshead.generation.opening import make_inspectable, open_inspectable
from glasshead.generation.sampling import SamplingConfig
from glasshead.generation.stream import start_ids, stream
from glasshead.generation.translate import Translator
from glasshead.model.gpt import GPT
from glasshead.model.transformer import Transformer
from glasshead.observe.trace import Trace

__all__ = ["complete", "look", "translate"]


def complete(
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
    """What a language model writes behind a text.

    Args:
        run: what `load` gave, or the path of a run or of a folder of the transformers library.
        prompt: the text to go on with; it is not part of the answer.
        max_tokens: new tokens at most.
        temperature: below 1 safer, above 1 wilder; 0 takes the most probable token each time.
        top_k, top_p, min_p: draw among the most probable tokens only.
        repetition_penalty: above 1 holds back tokens that were there before.
        stop: end before one of these texts.
        seed: repeats an answer; another one each time when None.

    Returns:
        The continuation, without the prompt and without what stopped it.
    """
    loaded = _loaded(run)
    model = loaded.model
    if not isinstance(model, GPT):
        raise _unfit(loaded, "does not continue texts", "complete")
    config = SamplingConfig(temperature, top_k, top_p, min_p, repetition_penalty)
    ids = loaded.tokenizer.prompt_ids(prompt) or start_ids(loaded.tokenizer)
    pieces = stream(
        model,
        loaded.tokenizer,
        [ids],
        config,
        max_tokens=max_tokens,
        stop=[stop] if isinstance(stop, str) else stop,
        seed=random.randrange(2**32) if seed is None else seed,
    )
    return "".join(piece.text for piece in pieces)


@overload
def translate(run: str | Path | Run, text: str, *, beam: int = ..., alpha: float = ...) -> str: ...


@overload
def translate(
    run: str | Path | Run, text: list[str], *, beam: int = ..., alpha: float = ...
) -> list[str]: ...


def translate(
    run: str | Path | Run, text: str | list[str], *, beam: int = 4, alpha: float = 0.6
) -> str | list[str]:
    """A text in the other language; or several, which together take less time.

    Args:
        run: what `load` gave, or the path of a translator's run or folder.
        text: one text, or a list of them.
        beam: translations that are followed at once; 1 takes the most probable token each time.
        alpha: how much longer translations are favoured.
    """
    loaded = _loaded(run)
    if not isinstance(loaded.model, Transformer):
        raise _unfit(loaded, "does not translate", "translate")
    config = SearchConfig(beam=beam, alpha=alpha)
    translator = Translator(
        loaded.model, loaded.tokenizer, config, lowercase=loaded.reads_small_letters
    )
    said = [one.best.text for one in translator([text] if isinstance(text, str) else text)]
    return said[0] if isinstance(text, str) else said


def look(run: str | Path | Run, text: str) -> Trace:
    """What every head looked at while a model read a text, and translated it if it translates.

    Args:
        run: what `load` gave, or the path of a run or of a folder of the transformers library,
            whose own model is then run.
    """
    subject = make_inspectable(run) if isinstance(run, Run) else open_inspectable(run)
    return subject.record(text)


def _loaded(run: str | Path | Run) -> Run:
    return run if isinstance(run, Run) else load(run)


def _unfit(loaded: Run, what: str, called: str) -> InputError:
    fitting = {"gpt": "glasshead.complete", "transformer": "glasshead.translate"}
    return InputError(
        f"{loaded.path} is a {loaded.config.kind}, which {what}",
        hint=f"try {fitting.get(loaded.config.kind, 'glasshead.look')} instead of {called}",
    )
