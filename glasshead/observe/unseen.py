"""What is said of attention that ran and could not be recorded."""

import warnings
from typing import Any

from glasshead.errors import RecordingError
from glasshead.observe.trace import Trace

__all__ = ["nothing_recorded", "report_unseen"]


def nothing_recorded(trace: Trace, reasons: dict[str, str]) -> RecordingError:
    """Return the error for a recording without any attention."""
    for name, reason in reasons.items():
        return RecordingError(
            f"no attention of {trace.model} can be recorded: {name}: {reason}",
            hint="use one of our models, or one of transformers",
        )
    return RecordingError(
        f"no attention layer of {trace.model} ran inside the `with`",
        hint="call the model inside `with observing(model)`; if you did, its attention does "
        "not go through the interface that hooks can see",
    )


def report_unseen(trace: Trace, reasons: dict[str, str], layers: Any) -> None:
    """Warn of attention that ran and cannot be recorded; raise if all was to be."""
    n, names = len(trace.unseen), ", ".join(trace.unseen[:3])
    more = f" and {n - 3} more" if n > 3 else ""
    reason = reasons[trace.unseen[0]]
    problem = f"{trace.model} also ran attention that cannot be recorded: {names}{more} ({reason})"
    if layers == "all":
        raise RecordingError(problem, hint="leave out layers='all' to record the rest")
    if layers is None:
        warnings.warn(f"{problem}; trace.unseen has all names", stacklevel=5)
