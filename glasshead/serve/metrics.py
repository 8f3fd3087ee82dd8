"""Metrics of the server in the text format of Prometheus.

metrics.requests.add(route="/api/look", method="POST", status="200")
metrics.text()
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator

__all__ = ["CONTENT_TYPE", "Counter", "Histogram", "Metrics", "PolledGauge"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Counter:
    """A number that only grows, for each combination of labels."""

    kind = "counter"

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self._values: dict[tuple[tuple[str, str], ...], float] = {}
        self._lock = threading.Lock()

    def add(self, amount: float = 1, **labels: str) -> None:
        key = tuple(labels.items())
        with self._lock:
            self._values[key] = self._values.get(key, 0) + amount

    def lines(self) -> Iterator[str]:
        with self._lock:
            values = dict(self._values) or {(): 0}
        for labels, value in values.items():
            yield f"{self.name}{_labels(labels)} {_number(value)}"


class PolledGauge:
    """A number that is read from elsewhere at each scrape."""

    def __init__(self, kind: str, name: str, about: str, read: Callable[[], float]) -> None:
        self.kind, self.name, self.about, self.read = kind, name, about, read

    def lines(self) -> Iterator[str]:
        yield f"{self.name} {_number(self.read())}"


class Histogram:
    """Seconds of requests in buckets, by route."""

    kind = "histogram"

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, seconds: float, route: str) -> None:
        with self._lock:
            counts = self._counts.setdefault(route, [0] * (len(SECONDS) + 1))
            counts[bisect_left(SECONDS, seconds)] += 1
            self._sums[route] = self._sums.get(route, 0.0) + seconds

    def lines(self) -> Iterator[str]:
        with self._lock:
            found = [(r, list(counts), self._sums[r]) for r, counts in self._counts.items()]
        for route, counts, total in found:
            so_far = 0
            for limit, count in zip((*SECONDS, None), counts, strict=True):
                so_far += count
                le = "+Inf" if limit is None else f"{limit:g}"
                labels = _labels((("route", route), ("le", le)))
                yield f"{self.name}_bucket{labels} {so_far}"
            labels = _labels((("route", route),))
            yield f"{self.name}_sum{labels} {_number(total)}"
            yield f"{self.name}_count{labels} {so_far}"


class Metrics:
    """All metrics of a server."""

    def __init__(self) -> None:
        self.requests = Counter("glasshead_requests_total", "Requests by route and status.")
        self.seconds = Histogram("glasshead_request_seconds", "How long requests took.")
        self._all: list[Counter | Histogram | PolledGauge] = [self.requests, self.seconds]

    def poll(self, kind: str, name: str, about: str, read: Callable[[], float]) -> None:
        """Add a metric whose value is read at each scrape."""
        self._all.append(PolledGauge(kind, name, about, read))

    def text(self) -> str:
        lines: list[str] = []
        for metric in self._all:
            lines += [f"# HELP {metric.name} {metric.about}", f"# TYPE {metric.name} {metric.kind}"]
            lines += metric.lines()
        return "\n".join(lines) + "\n"


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    r"""
    >>> _labels((("route", 'a"b'),))
    '{route="a\\"b"}'
    """
    if not labels:
        return ""
    pairs = ",".join(f'{name}="{_escape(value)}"' for name, value in labels)
    return f"{{{pairs}}}"


def _number(value: float) -> str:
    """
    >>> _number(1234567890), _number(0.25)
    ('1234567890', '0.25')
    """
    return str(int(value)) if value == int(value) else repr(float(value))


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
