"""Continue texts in Python, one id of each at a time.

    for step in generate(model, [[3, 1, 4], [1, 5]], GREEDY, max_tokens=20):
        print(step)                     # one new id for each text; None for those that have ended

Every text draws from a random stream of its own, so a sample depends on the seed and on its place
in the batch, not on the other texts.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing

from glasshead.generation.batch import GenerationBatch, check_prompts
from glasshead.generation.sampling import PLAIN, SamplingConfig
from glasshead.model.gpt import GPT

__all__ = ["generate"]


def generate(
    model: GPT,
    prompts: Sequence[Sequence[int]],
    config: SamplingConfig = PLAIN,
    *,
    max_tokens: int,
    stop_ids: Collection[int] = (),
    seed: int = 0,
) -> Iterator[list[int | None]]:
    """Yield steps of one new id for each prompt, None where a text has ended at a stop id.

    A stop id itself is not part of a text.
    """
    check_prompts([list(prompt) for prompt in prompts], model.config.vocab_size)
    batch = GenerationBatch(model)
    for row, ids in enumerate(prompts):
        batch.join(ids, config, max_tokens=max_tokens, end_ids=stop_ids, seed=seed, place=row)
    return _steps(batch, len(prompts))


def _steps(batch: GenerationBatch, rows: int) -> Iterator[list[int | None]]:
    with closing(batch):
        while batch.active:
            ids: list[int | None] = [None] * rows
            for new in batch.step():
                if new.error is not None:
                    raise new.error
                ids[new.key] = new.id
            yield ids
