"""Ask a step that picks ids on its device for several ids of each text at once.

A GPU must not wait for the host after each id. So the host asks for some steps, asks for the next
ones before it reads the ids of the first, and handles those while the GPU goes on.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from glasshead.generation.sampling import SamplingConfig
from glasshead.generation.step import DecodeStep
from glasshead.generation.text_state import TextState, seen_ids
from glasshead.model.gpt import GPTConfig

__all__ = ["AheadStep", "LookAhead", "PendingIds"]

FIRST_STEPS = 4  # asked for at once at first, so that the first words come soon; then ever more
MOST_STEPS = 32  # asked for at once: a text that ends may have been continued so far in vain


class PendingIds(Protocol):
    @property
    def steps(self) -> int:
        """How many steps were asked for."""

    def wait(self) -> list[list[int]]:
        """Return the ids (steps, B); -1 where the logits were not finite."""


@runtime_checkable
class AheadStep(DecodeStep, Protocol):
    """A step that also picks ids."""

    def start(self, ids: Sequence[int], config: SamplingConfig, seen: Tensor | None) -> None:
        """Begin to continue all rows, from their last ids.

        Args:
            seen: (B, V) bool, the ids that occur in each text; for the repetition penalty.
        """

    def launch(self, steps: int, uniform: Sequence[Sequence[float]]) -> PendingIds:
        """Ask for the next ids of all rows. `uniform` (steps, B) is what they are drawn by."""


class LookAhead:
    """The ids that were asked for and not used yet."""

    def __init__(self, step: AheadStep, size: GPTConfig) -> None:
        self._step, self._size = step, size
        self._ready: deque[list[int]] = deque()
        self._pending: PendingIds | None = None
        self._steps = FIRST_STEPS

    @property
    def busy(self) -> bool:
        """Whether some are left: until they are used, rows must stay where they are."""
        return bool(self._ready) or self._pending is not None

    def drop(self) -> None:
        """Forget what is left."""
        self._ready.clear()
        self._pending = None

    def restart(self) -> None:
        """Ask for few at first."""
        self._steps = FIRST_STEPS

    def next_ids(self, texts: list[TextState], others_wait: bool) -> list[int]:
        """Return the next id of each row.

        Args:
            others_wait: texts wait to join, so no more is asked for than is needed now.
        """
        if not self._ready:
            pending = self._pending or self._launch(texts, 0)
            assert pending is not None
            # Few rows are faster than many: begin anew when most texts have ended.
            few = 4 * sum(not text.ended for text in texts) <= len(texts)
            self._pending = None if others_wait or few else self._launch(texts, pending.steps)
            self._ready.extend(pending.wait())
        return self._ready.popleft()

    def _launch(self, texts: list[TextState], begun: int) -> PendingIds | None:
        """Ask for more steps, after those that were begun; None where there is no room."""
        slots = self._step.slots
        columns = slots.columns - slots.stop if begun else slots.free_columns()
        left = max((text.left for text in texts if not text.ended), default=0)
        steps = min(self._steps, min(left, columns, self._size.max_len - slots.width) - begun)
        if steps < 1:
            return None
        if not begun:
            seen = seen_ids(texts, self._size.vocab_size, slots.device)
            self._step.start([text.ids[-1] for text in texts], texts[0].config, seen)
        self._steps = min(2 * self._steps, MOST_STEPS)
        uniform = [[text.random.random() for text in texts] for _ in range(steps)]
        return self._step.launch(steps, uniform)
