"""The worked examples of the documents, by name: their numbers beside ours, their slips marked.

    >>> shown = compute("numpy-q1")
    >>> shown.numbers[-2].document, shown.numbers[-2].agrees
    ((0.31428, 0.33296, 0.35275), True)

`numbers.py` has the examples, `slips.py` what each slip changes, `example.py` the dataclasses.
"""

from glasshead.errors import InputError
from glasshead.lab.examples.example import Example, Figure, Number, Slip
from glasshead.lab.examples.numbers import EXAMPLES
from glasshead.lab.vectors import suggest

__all__ = ["EXAMPLES", "Example", "Figure", "Number", "Slip", "compute"]


def compute(name: str) -> Example:
    """Compute the example of this name. Raises InputError for another name."""
    if name not in EXAMPLES:
        raise InputError(f"there is no example {name!r}", hint=suggest(name, EXAMPLES))
    return EXAMPLES[name]()
