"""What the code of documents 000 and 004 gave on its text: one run a rung, as published."""

from dataclasses import dataclass

__all__ = ["CHARACTERS", "RUNS", "VOCABULARY", "PublishedRun"]

# The text of the documents, ci.txt: by these two numbers it is recognised.
CHARACTERS, VOCABULARY = 2_063_344, 6148


@dataclass(frozen=True)
class PublishedRun:
    parameters: int
    train: float | None  # the loss after `steps`
    val: float | None
    steps: int  # 11 and 12: the step of the best validation loss, of 5000


RUNS = {
    1: PublishedRun(399_620, 5.186, 5.343, 2000),
    2: PublishedRun(399_876, 5.193, 5.351, 2000),
    3: PublishedRun(402_948, 5.201, 5.365, 2000),
    4: PublishedRun(402_948, 5.176, 5.358, 2000),
    5: PublishedRun(404_004, 5.346, 5.517, 2000),
    6: PublishedRun(412_260, 6.243, 6.262, 2000),
    7: PublishedRun(412_260, 5.168, 5.266, 2000),
    8: PublishedRun(437_316, 5.138, 5.246, 2000),
    9: PublishedRun(437_764, 5.121, 5.221, 2000),
    10: PublishedRun(437_764, 5.059, 5.237, 2000),
    11: PublishedRun(15_466_756, None, 3.9785, 4700),
    12: PublishedRun(15_466_756, None, 3.9785, 4700),
}
