"""Pictures of what heads do: a sheet of all heads of a model, and a card of one.

Both are a `Drawing`, which `observe` paints as PNG or SVG.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from glasshead.observe.colours import COLOURS, Scale
from glasshead.observe.drawing import Arc, CellGrid, Drawing, Tile, short, text_width
from glasshead.observe.view import Map
from glasshead.observe.wording import Language
from glasshead.observe.words import single_tokens, visible
from glasshead.roles.catalogue import ROLES
from glasshead.roles.compare import changes
from glasshead.roles.naming import HeadRoles
from glasshead.roles.proof import Head
from glasshead.roles.tables import (
    proof_sentence,
    range_of,
    role_title,
    sentence,
    verdict_of,
)
from glasshead.roles.wording import NAMES, TEXTS

__all__ = ["card", "sheet"]

LEFT = 32.0
# A sign for each role, and the colour of its family: where it looks, what it looks at, the rest.
SIGNS = {
    "sink": "▼", "previous": "←", "self": "●", "lag": "↞", "local": "≈", "separator": "¶",
    "broad": "≡", "duplicate": "=", "induction": "↻", "copying": "❐", "retrieval": "◎",
    "query": "?", "referent": "➔",
}  # fmt: skip
PLACES, CONTENT, REST = "#1f4f88", "#b4491f", "#6b707a"
COLOUR = dict.fromkeys(SIGNS, REST)
COLOUR |= dict.fromkeys(("previous", "self", "lag", "local"), PLACES)
COLOUR |= dict.fromkeys(
    ("duplicate", "induction", "copying", "retrieval", "query", "referent"), CONTENT
)
PALE = 0.22  # opacity of a role that the model does not need
EXAMPLES, AROUND, WIDE = 3, 9, 700.0
SIDE = 40  # tokens of a map


def sheet(found: HeadRoles, lang: Language, before: HeadRoles | None = None) -> Drawing:
    """All heads of a model, a row for each layer, with the signs of their roles.

    With `before`, heads whose roles changed since are outlined.
    """
    words = TEXTS[lang]
    drawing = Drawing(f"{found.name} · {words['sheet']}", width=520)
    top = _title(drawing, drawing.title, [words["size"].format(layers=found.shape[0],
                 heads=found.shape[1]), words["legend"]])  # fmt: skip
    H, wide, high = found.shape[1], 44.0, 27.0
    left = LEFT + 26
    for h in range(H):
        drawing.write(left + (h + 0.5) * wide, top, str(h), anchor="middle", tone="quiet", size=11)
    top += 14
    changed = {one.head for one in changes(before, found)} if before else set()
    for n, layer in enumerate(found.measured.layers):
        y = top + n * high
        drawing.write(left - 8, y + high / 2 - 1, str(layer), anchor="end", tone="quiet", size=11)
        for h in range(H):
            _cell(drawing, found, (layer, h), left + h * wide, y, wide - 2, high - 2)
            if (layer, h) in changed:
                drawing.outline(left + h * wide - 1, y - 1, wide, high)
    bottom = top + found.shape[0] * high
    drawing.fit(left + H * wide, bottom)
    y = bottom + 20
    for role in (role for role in found.measured.roles if found.heads(role)):
        heads, verdict = found.heads(role), verdict_of(found, role)
        pale = 1.0 if verdict == "needed" else PALE
        drawing.items.append(Tile(LEFT, y - 9, 20, 18, COLOUR[role], pale))
        drawing.write(LEFT + 10, y, SIGNS[role], anchor="middle", size=12,
                      tone="paper" if pale == 1 else "ink")  # fmt: skip
        proof = found.proofs.get(role)
        line = f"{NAMES[lang][role]} · {len(heads)} · {words[verdict]}"
        if proof is not None:
            rises = f"{proof.rise:+.3f}, {words['others']} {range_of(proof)}"
            line += f" ({words[proof.probe]}: {rises})"
        drawing.write(LEFT + 30, y, line, size=12)
        y += 24
    return drawing


def _cell(
    drawing: Drawing, found: HeadRoles, head: Head, x: float, y: float, wide: float, high: float
) -> None:
    roles = found.of(head)[:2]
    if not roles:
        drawing.items.append(Tile(x, y, wide, high, COLOURS["light"]["sunk"], 1.0))
    for n, one in enumerate(roles):
        part = wide / len(roles)
        strength = 1.0 if one.needed else PALE
        drawing.items.append(Tile(x + n * part, y, part, high, COLOUR[one.role], strength))
        drawing.write(x + (n + 0.5) * part, y + high / 2, SIGNS[one.role], anchor="middle",
                      size=12, tone="paper" if strength == 1 else "ink")  # fmt: skip


def card(found: HeadRoles, head: Head, lang: Language) -> Drawing:
    """One head: what it does, what the model loses without it, examples and its map."""
    words = TEXTS[lang]
    title = words["card"].format(layer=head[0], head=head[1])
    drawing = Drawing(f"{found.name} · {title}", width=WIDE)
    roles = found.of(head)
    y = _title(drawing, drawing.title, [] if roles else [words["no role"]])
    for one in roles[:3]:
        drawing.items.append(Tile(LEFT, y - 9, 20, 18, COLOUR[one.role], 1.0))
        drawing.write(LEFT + 10, y, SIGNS[one.role], anchor="middle", size=12, tone="paper")
        drawing.write(LEFT + 30, y, role_title(one, lang), size=14, bold=True)
        y += 24
        drawing.write(LEFT + 30, y, sentence(one, lang), size=13)
        y += 20
        for line in _wrapped(proof_sentence(found, one.role, lang), WIDE - 40, 12):
            drawing.write(LEFT + 30, y, line, size=12, tone="quiet")
            y += 18
        y += 12
    probe = ROLES[roles[0].role].measured_on if roles else "text"
    probe = probe if probe in found.probes else "text"
    weights, labels = _weights(found, head, probe)
    y += 6
    drawing.write(LEFT, y, words["examples"], size=14, bold=True)
    y += 12
    for b, t in _best_rows(found, probe, roles[0].role if roles else "", weights):
        y = _example(drawing, weights[b, t], labels[b], t, y)
    y += 12
    drawing.write(LEFT, y, words["map"], size=14, bold=True)
    _map(drawing, weights[0], labels[0], y + 22)
    return drawing


def _title(drawing: Drawing, title: str, notes: Sequence[str]) -> float:
    y = 40.0
    drawing.write(LEFT, y, title, size=17, bold=True)
    for note in notes:
        y += 20
        drawing.write(LEFT, y, note, size=12, tone="quiet")
    return y + 34


def _weights(found: HeadRoles, head: Head, probe: str) -> tuple[Tensor, list[list[str]]]:
    """Return a head's weights on a probe, (B, T, T), and the tokens of each sequence."""
    trace = found.trace(probe)
    weights = trace.weights(head[0])[:, head[1]].float().cpu()
    assert trace.tokens is not None
    labels = [[visible(word.text) for word in single_tokens(row)] for row in trace.tokens]
    return weights, labels


def _best_rows(found: HeadRoles, probe: str, role: str, weights: Tensor) -> list[tuple[int, int]]:
    """Return the rows that show a role best, each of another sequence."""
    targets = found.probes[probe].targets.get(role)
    if targets is not None:
        score = (weights * targets.cpu()).sum(-1)
    elif role == "sink":
        score = weights[..., 0].clone()
        score[:, :4] = 0
    else:
        away = weights.clone()
        away[..., 0] = 0  # rather not the sink
        if role != "self":
            away.diagonal(0, 1, 2).zero_()
        score = away.amax(-1)
    best = score.max(1)
    order = best.values.argsort(descending=True)[:EXAMPLES].tolist()
    return [(b, int(best.indices[b])) for b in order]


def _example(drawing: Drawing, row: Tensor, labels: list[str], t: int, y: float) -> float:
    """A line of the text around a query and its strongest key, with arcs from the query."""
    key = int(row.argmax())
    shown = sorted({
        i for at in (t, key) for i in range(at - AROUND // 2, at + AROUND // 2 + 1)
        if 0 <= i < len(labels)
    })  # fmt: skip
    middle: dict[int, float] = {}
    x, before = LEFT, shown[0]
    line = y + 66
    for i in shown:
        if i > before + 1:
            drawing.write(x, line, "…", size=12, tone="quiet")
            x += 16
        text = short(labels[i])
        width = text_width(text, 12)
        bold = i in (t, key)
        drawing.write(x, line, text, size=12, bold=bold, tone="ink" if bold else "quiet")
        middle[i] = x + width / 2
        x += width + 9
        before = i
    strongest = [i for i in row.argsort(descending=True)[:4].tolist() if i in middle]
    for i in strongest:
        weight = float(row[i])
        if weight >= 0.05:
            drawing.items.append(Arc(middle[t], middle[i], line - 9, 44, weight))
    drawing.write((middle[t] + middle[key]) / 2, line - 60, f"{float(row[key]):.2f}",
                  anchor="middle", size=11, tone="quiet")  # fmt: skip
    drawing.fit(x, line)
    return line + 10


def _map(drawing: Drawing, weights: Tensor, labels: list[str], top: float) -> None:
    n = min(SIDE, len(labels))
    part, names = weights[:n, :n], [short(label) for label in labels[:n]]
    cell, size = 13.0, 8.5
    left = LEFT + max(text_width(name, size) for name in names) + 8
    high = max(text_width(name, size) for name in names)
    top += high
    for j, name in enumerate(names):
        drawing.write(left + (j + 0.5) * cell, top - 6, name, size=size, angle=90)
        drawing.write(left - 6, top + (j + 0.5) * cell, name, size=size, anchor="end")
    scale = Scale.of(torch.nan_to_num(part), "linear")
    shown = Map("", part, names, names)
    drawing.items.append(
        CellGrid(left, top, cell, cell, shown, scale.shades(part), "linear", 0.0, named=True)
    )
    drawing.fit(left + n * cell, top + n * cell)


def _wrapped(text: str, width: float, size: float) -> list[str]:
    """Break a line where it is too wide: at spaces, and anywhere in Chinese."""
    lines = [""]
    for piece in _pieces(text):
        if lines[-1] and text_width(lines[-1] + piece, size) > width:
            lines.append(piece.lstrip())
        else:
            lines[-1] += piece
    return lines


def _pieces(text: str) -> list[str]:
    found = [""]
    for c in text:
        if c == " " or ord(c) > 0x2E80:
            found.append(c)
        else:
            found[-1] += c
    return found
