"""The page of one recorded text as one HTML file: what the server's page saves, without a server.

    page = save_look(trace, entry, run, "The cat sat.", LookChoice(layer=1, head=0))
    page.html, page.heads_left_out

The file holds the answers that the page asks for, under the requests that ask for them: first what
it needs to open, then every head, every word and every switch, as far as there is room. A text of
more than 400 words opens in the Atlas, others in the Look view.
"""

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any, Literal
from urllib.parse import quote

from glasshead import __version__
from glasshead.checkpoint import Run
from glasshead.errors import GlassheadError, InputError
from glasshead.observe.trace import PAGE, Trace
from glasshead.observe.view import PLAIN, Head, ViewConfig
from glasshead.observe.words import Word
from glasshead.page.atlas_answers import binary_cells, describe_atlas, token_pieces
from glasshead.page.bundle import standalone_page
from glasshead.page.entries import Entry
from glasshead.page.examples import example_texts, known_words
from glasshead.page.look_answers import (
    MAX_WORDS,
    Binary,
    LookView,
    binary_map,
    binary_thumbnails,
    describe_look,
    has_words,
    rank_heads,
)
from glasshead.page.predictions import Cut, predict

__all__ = ["MAX_ANSWERS", "ROOM", "LookChoice", "SavedLook", "save_look"]

# The page that the server saves has the same limits: web/answers.js and web/views/look.js.
ROOM = 20_000_000  # bytes of answers in a file
MAX_ANSWERS = 1500  # of a Look view, besides those that it needs to open
TRACE = "/api/seen/recorded"
PREDICTS = ("gpt", "reader", "translator")
CHUNK = 128  # tokens that the Atlas asks for at once: web/views/atlas_text.js
NEAR = "1.585"  # how near the Atlas shows one query: 2^1.585 pixels for each token
AROUND = 2  # pages on either side of it
PAGE_BYTES = 2 * PAGE**2 * 4 * 4 // 3  # of a page of cells, in base64

Answer = Binary | dict[str, Any]


@dataclass(frozen=True)
class LookChoice:
    """What the page shows when it opens; None leaves the choice to the page."""

    layer: int | None = None  # its index
    head: int | None = None
    word: str | Word | None = None  # the word that looks
    statistic: str | None = None
    config: ViewConfig = PLAIN
    lang: Literal["zh", "en"] = "en"

    def as_state(self) -> dict[str, str]:
        """The choice as the page keeps it in its address."""
        named = {"lang": self.lang, "layer": self.layer, "head": self.head, "stat": self.statistic}
        switches = {"tokens": self.config.tokens, "log": self.config.log,
                    "nosink": self.config.hide_sink, "ratio": self.config.ratio}  # fmt: skip
        return {name: str(value) for name, value in named.items() if value is not None} | {
            name: "1" for name, is_on in switches.items() if is_on
        }


@dataclass(frozen=True)
class SavedLook:
    """The page, and how many heads' maps had no room in it."""

    html: str
    heads_left_out: int


def save_look(
    trace: Trace, entry: Entry, run: Run | None, text: str, choice: LookChoice
) -> SavedLook:
    """Write the page of a trace.

    `run` is the model that was recorded if it is one of ours: its prediction at the chosen word is
    then part of the page.
    """
    answers = SavedAnswers()
    listed = {"models": [asdict(entry)], "version": __version__}
    answers.add("/api/models", lambda: listed)
    view = LookView(trace, choice.config)
    about = describe_look(view, entry.kind) if has_words(trace) else {"long": True}
    if about["long"]:
        return _save_long(view, entry, choice, answers)
    return _save_short(view, about, entry, run, text, choice, answers)


class SavedAnswers:
    """Answers by request, as web/answers.js reads them, up to ROOM bytes."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}
        self.size = 0

    @property
    def is_full(self) -> bool:
        return self.size >= 0.98 * ROOM

    def add(self, path: str, make: Callable[[], Answer], body: Any = None, least: int = 0) -> None:
        """Add the answer to GET `path`, or to POST if there is a body, unless it has no room.

        `least` is a size that the answer has at least: one without room need not be made.
        """
        key = f"GET {path}" if body is None else f"POST {path} {_to_json(body)}"
        if key in self.found or self.size + least > ROOM:
            return
        answer = make()
        packed: dict[str, Any]
        if isinstance(answer, Binary):
            text = base64.b64encode(answer.data).decode()
            kind = {"content-type": "application/octet-stream"}
            packed, size = {"headers": {**kind, **answer.headers}, "base64": text}, len(text)
        else:
            packed = {"headers": {"content-type": "application/json"}, "json": answer}
            size = len(_to_json(answer).encode())
        if self.size + size <= ROOM:
            self.found[key] = packed
            self.size += size

    def page(self, view: str, state: dict[str, str]) -> str:
        return standalone_page({"kind": "saved", "views": [view], "state": {"view": view, **state},
                                "kept": None, "answers": self.found})  # fmt: skip


def _to_json(value: Any) -> str:
    """As JSON.stringify writes it."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


# -- a short text --


def _save_short(
    view: LookView,
    about: dict[str, Any],
    entry: Entry,
    run: Run | None,
    text: str,
    choice: LookChoice,
    answers: SavedAnswers,
) -> SavedLook:
    state = {"model": entry.id, **choice.as_state()}
    if entry.kind == "glass":
        text = ""
    else:
        state["text"] = text
    # A translator's page starts with cross-attention.
    first = next((one for one in about["layers"] if one["kind"] == "cross"), about["layers"][0])
    layer = first["index"] if choice.layer is None else choice.layer
    if choice.word is not None:
        layer, token = view.find_query(choice.word, choice.layer)
        state["query"] = str(token)
        if view.texts(layer) != (first["rows"], first["cols"]):
            state["layer"] = str(layer)
    rows, cols = view.texts(layer)
    words: list[dict[str, Any]] = about[rows]
    pin = about["pins"][rows] if choice.word is None else next(
        n for n, one in enumerate(words) if one["start"] <= token < one["stop"]
    )  # fmt: skip
    requests = _LookRequests(view, view.heads_with_same_texts(layer)[0][0])

    described = {"seen": "recorded", "model": entry.id, "kind": entry.kind, "text": text, **about}
    body = {"model": entry.id, "text": text, "tokens": choice.config.tokens}
    answers.add("/api/look", lambda: described, body)
    if entry.kind != "glass":
        name = quote(entry.id, safe="!~*'()")  # as encodeURIComponent does
        path = f"/api/look/examples?model={name}"
        answers.add(path, lambda: {"examples": example_texts(run), "knows": known_words(run)})
    answers.add(*requests.thumbnails())
    if pin is not None:
        for way in ("from", "to") if rows == cols else ("from",):
            answers.add(*requests.ranking(way, words[pin]["start"]))
    if run is not None and entry.kind in PREDICTS and (entry.kind != "reader" or pin is not None):
        in_source = entry.kind == "translator" and rows == "source_words"
        at = None if pin is None or in_source else words[pin]["stop"] - 1
        body = {"model": entry.id, "text": text, "heads": [], "edges": [], "at": at}
        with suppress(GlassheadError):  # a text longer than the model can predict from
            answers.add("/api/ablate", lambda: predict(run, text, Cut(), at), body)

    heads = sorted(view.heads(), key=lambda head: head[0] != layer)
    if choice.head is not None:
        heads.sort(key=lambda head: head != (layer, choice.head))
    left_out = _add_maps_and_rankings(answers, requests, heads, words, about[cols])
    if left_out and choice.head is None:  # one that is in the file
        state |= {"layer": str(heads[0][0]), "head": str(heads[0][1])}
    return SavedLook(answers.page("look", state), left_out)


def _add_maps_and_rankings(
    answers: SavedAnswers,
    requests: "_LookRequests",
    heads: list[Head],
    rows: list[dict[str, Any]],
    cols: list[dict[str, Any]],
) -> int:
    """Add every head, every word and every switch; return how many heads have no map."""
    left = MAX_ANSWERS
    for each in requests.of_all_switches():
        for path, make, least in each.all(heads, rows, cols):
            if left == 0 or answers.is_full:
                break
            left -= 1
            answers.add(path, make, least=least)
    return sum(f"GET {requests.map(head)[0]}" not in answers.found for head in heads)


class _LookRequests:
    """What the Look view asks for with one setting of its switches: (path, what makes the answer).

    `layer` is the first of those that have the same texts.
    """

    def __init__(self, view: LookView, layer: int) -> None:
        self.view, self.layer = view, layer
        config = view.config
        switches = {"tokens": config.tokens, "hide_sink": config.hide_sink, "ratio": config.ratio}
        self.options = "&".join(f"{name}={str(on).lower()}" for name, on in switches.items())

    def thumbnails(self) -> tuple[str, Callable[[], Answer]]:
        return f"{TRACE}/thumbs?{self.options}", partial(binary_thumbnails, self.view)

    def map(self, head: Head) -> tuple[str, Callable[[], Answer]]:
        path = f"{TRACE}/weights?layer={head[0]}&head={head[1]}&{self.options}"
        return path, partial(binary_map, self.view, head)

    def ranking(self, way: Literal["from", "to"], token: int) -> tuple[str, Callable[[], Answer]]:
        name = "query" if way == "from" else "key"
        path = f"{TRACE}/{way}?layer={self.layer}&{name}={token}&{self.options}"
        return path, partial(rank_heads, self.view, self.layer, token, way)

    def all(
        self, heads: list[Head], rows: list[dict[str, Any]], cols: list[dict[str, Any]]
    ) -> Iterator[tuple[str, Callable[[], Answer], int]]:
        """Everything, with a size that the answer has at least."""
        yield *self.thumbnails(), 0
        for head in heads:
            queries, keys = self.view.sides(head[0])
            yield *self.map(head), len(queries) * len(keys) * 4 * 4 // 3
        for word in rows:
            yield *self.ranking("from", word["start"]), 0
        for word in cols:
            yield *self.ranking("to", word["start"]), 0

    def of_all_switches(self) -> Iterator["_LookRequests"]:
        """These, and those of each other setting of the switches."""
        yield self
        mine = self.view.config
        for hide_sink, ratio in product((False, True), repeat=2):
            if (hide_sink, ratio) != (mine.hide_sink, mine.ratio):
                config = ViewConfig(mine.tokens, hide_sink=hide_sink, ratio=ratio)
                yield _LookRequests(LookView(self.view.trace, config), self.layer)


# -- a long text --


def _save_long(
    view: LookView, entry: Entry, choice: LookChoice, answers: SavedAnswers
) -> SavedLook:
    """Write the Atlas: one head as near as there is room, the others from afar."""
    if choice.config.ratio:
        raise InputError(
            f"--ratio needs a text of at most {MAX_WORDS} words",
            hint="the page of a longer one is the Atlas, which shows weights; leave --ratio out",
        )
    trace = view.trace
    about = {"seen": "recorded", "model": entry.id, **describe_atlas(trace)}
    layers = {layer["index"]: layer for layer in about["layers"]}
    state = {"model": entry.id, "seen": "recorded", **choice.as_state()}
    if choice.statistic is not None:
        state["by"] = state.pop("stat")
    index, token = choice.layer, None
    if choice.word is not None:
        index, token = view.find_query(choice.word, choice.layer)
        state["layer"] = str(index)
    layer = layers[next(iter(layers)) if index is None else index]
    requests = _AtlasRequests(trace, layer, choice.head or 0, choice.config.hide_sink)

    if entry.kind == "glass":
        answers.add("/api/open", lambda: about, {"model": entry.id})
    answers.add(f"{TRACE}/map", lambda: about)
    for path, make in requests.texts():
        answers.add(path, make)
    if token is not None:
        key = int(trace.row(layer["index"], requests.head, token).argmax())
        state["at"] = f"{key},{token},{NEAR}"
        for path, make in requests.pages_around(token, key):
            answers.add(path, make)
    for pages in requests.levels():
        if answers.size + len(pages) * PAGE_BYTES > 0.6 * ROOM:  # leave some for the other heads
            break
        for path, make in pages:
            answers.add(path, make)
    left_out = 0
    for one in layers.values():
        for head in range(one["heads"]):
            path, make = _AtlasRequests(trace, one, head, requests.hide_sink).whole_map()
            answers.add(path, make)
            left_out += f"GET {path}" not in answers.found
    return SavedLook(answers.page("atlas", state), left_out)


class _AtlasRequests:
    """What the Atlas asks for of one head: (path, what makes the answer)."""

    def __init__(self, trace: Trace, layer: dict[str, Any], head: int, hide_sink: bool) -> None:
        self.trace, self.layer, self.head, self.hide_sink = trace, layer, head, hide_sink

    def texts(self) -> Iterator[tuple[str, Callable[[], Answer]]]:
        index = self.layer["index"]
        sides: dict[Literal["rows", "cols"], int]
        sides = {"rows": self.layer["T"], "cols": self.layer["S"]}
        for side, size in sides.items():
            for start in range(0, size, CHUNK):
                stop = start + CHUNK
                path = f"{TRACE}/tokens?layer={index}&side={side}&start={start}&stop={stop}"
                yield path, partial(token_pieces, self.trace, index, side, start, stop)

    def page(self, level: int, row: int, col: int) -> tuple[str, Callable[[], Answer]]:
        index, head = self.layer["index"], self.head
        path = f"{TRACE}/cells?layer={index}&head={head}&level={level}&row={row}&col={col}"
        path += "&hide_sink=true" if self.hide_sink else ""
        place = (index, head, level, row, col, self.hide_sink)
        return path, partial(binary_cells, self.trace, *place)

    def whole_map(self) -> tuple[str, Callable[[], Answer]]:
        return self.page(self.layer["levels"] - 1, 0, 0)

    def levels(self) -> Iterator[list[tuple[str, Callable[[], Answer]]]]:
        """All pages of each level, the coarsest first."""
        for level in range(self.layer["levels"] - 1, self.layer["finest"] - 1, -1):
            side = PAGE << level
            sizes = (math.ceil(self.layer[name] / side) for name in "TS")
            yield list(self._visible(level, product(*map(range, sizes))))

    def pages_around(self, query: int, key: int) -> Iterator[tuple[str, Callable[[], Answer]]]:
        """The pages of the finest level near one weight."""
        level = self.layer["finest"]
        side = PAGE << level
        ranges = (
            range(max(0, at // side - AROUND), min(math.ceil(size / side), at // side + AROUND + 1))
            for at, size in ((query, self.layer["T"]), (key, self.layer["S"]))
        )
        yield from self._visible(level, product(*ranges))

    def _visible(
        self, level: int, places: Iterable[tuple[int, ...]]
    ) -> Iterator[tuple[str, Callable[[], Answer]]]:
        """The pages that the causal mask does not hide."""
        side, shift = PAGE << level, self.layer["S"] - self.layer["T"]
        for row, col in places:
            if not self.layer["causal"] or col * side <= (row + 1) * side - 1 + shift:
                yield self.page(level, row, col)
