"""Continue texts and decode them as they grow.

prompts = [tokenizer.encode_ids("春江").tolist()]
for piece in stream(model, tokenizer, prompts, max_tokens=100, stop=["。"]):
    print(piece.text, end="", flush=True)
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from glasshead.generation.batch import GenerationBatch, check_max_tokens, check_prompts
from glasshead.generation.sampling import PLAIN, SamplingConfig
from glasshead.generation.text_state import Finish, find_end_ids
from glasshead.generation.text_stream import TextStream
from glasshead.machine import free_memory
from glasshead.model.gpt import GPT
from glasshead.text.tokenizer import Tokenizer

__all__ = ["TextPiece", "start_ids", "stream", "texts_at_once"]

MOST_TEXTS = 512  # side by side; more are no faster


@dataclass(frozen=True)
class TextPiece:
    """What one new id adds to one text; often nothing yet."""

    row: int
    text: str
    finish: Finish | None = None  # set on the last piece of a text


def stream(
    model: GPT,
    tokenizer: Tokenizer,
    prompts: Sequence[Sequence[int]],
    config: SamplingConfig = PLAIN,
    *,
    max_tokens: int,
    stop: Sequence[str] = (),
    end_ids: Collection[int] | None = None,
    seed: int = 0,
) -> Iterator[TextPiece]:
    """Continue all prompts; yield a piece for each text and step.

    Those that do not fit into memory side by side wait for others to end.

    A text ends after `max_tokens` ids ("length"), before a stop string, or at one of `end_ids`
    ("stop"). These are by default the ids that stand for no text: special tokens, and ids beyond
    the tokenizer's vocabulary. Give `find_end_ids(model, tokenizer, run.config)` to end at the
    `eos_token_id` of an imported model, too.
    """
    check_max_tokens(max_tokens)
    check_prompts(prompts, model.config.vocab_size)
    TextStream(tokenizer, stop)  # which checks the stop strings
    end_ids = find_end_ids(model, tokenizer) if end_ids is None else end_ids
    batch = GenerationBatch(model)
    width = texts_at_once(model, max(map(len, prompts)) + max_tokens)

    def pieces() -> Iterator[TextPiece]:
        rows = iter(enumerate(prompts))
        with closing(batch):
            while True:
                for row, ids in islice(rows, width - len(batch.texts)):
                    batch.join(
                        ids, config, max_tokens=max_tokens, end_ids=end_ids,
                        stream=TextStream(tokenizer, stop), seed=seed, place=row,
                    )  # fmt: skip
                if not batch.active:
                    return
                yield from _step(batch)

    return pieces()


def texts_at_once(model: GPT, length: int) -> int:
    """Return how many texts of so many ids to continue side by side: their caches must fit.

    The cache grows by copying, so at one moment it is there twice.
    """
    size, table = model.config, model.embedding.weight
    width = (size.d_head or size.d_model // size.n_heads) * (size.n_kv_heads or size.n_heads)
    of_id = 2 * 2 * width * size.n_layers * table.element_size()
    free = free_memory(str(table.device)) / 2
    return int(max(1, min(MOST_TEXTS, free // max(1, of_id * min(length, size.max_len)))))


def _step(batch: GenerationBatch) -> Iterator[TextPiece]:
    for new in sorted(batch.step(), key=lambda new: new.key):
        if new.error is not None:
            raise new.error
        assert new.finish != "error"
        yield TextPiece(new.key, new.text, new.finish)


def start_ids(tokenizer: Tokenizer) -> list[int]:
    """Return the ids that an empty prompt starts from.

    <bos>, <eos> or <|endoftext|>, whichever the tokenizer has; else a line end; else its first id.
    """
    for name in ("<bos>", "<eos>", "<|endoftext|>"):
        if name in tokenizer.specials:
            return [tokenizer.specials[name]]
    newline = (i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i) == b"\n")
    return [next(newline, 0)]
