"""Write what was found as files for other programs.

.json            everything
.csv, .parquet   one row for each head
a folder         config.json and full_attention_heads.tsv, as DuoAttention and kvpress read
"""

import csv
import importlib.util
import io
import json
from pathlib import Path
from typing import Any

from glasshead.errors import InputError
from glasshead.observe.picture import write_file
from glasshead.roles.naming import HeadRoles

__all__ = ["as_json", "head_rows", "write_streaming", "write_table"]

SINK, RECENT = 1, 128  # keys of a streaming head


def as_json(found: HeadRoles) -> dict[str, Any]:
    """Return everything as an object of JSON."""
    H = found.shape[1]
    roles = {}
    for role, one in found.measured.roles.items():
        roles[role] = {
            "heads": [list(head) for head in found.heads(role)],
            "score": _rounded(one.score),
            "low": _rounded(one.low),
            "high": _rounded(one.high),
            "controls": {name: _rounded(control) for name, control in one.controls.items()},
        }
    return {
        "model": found.name,
        "layers": list(found.measured.layers),
        "heads": H,
        "roles": roles,
        "lags": found.measured.lags.long().tolist(),
        "streaming": _rounded(found.measured.streaming),
        "proofs": {
            role: {
                "heads": [list(head) for head in proof.heads], "probe": proof.probe,
                "measure": proof.measure, "before": proof.before, "rise": proof.rise,
                "beyond_others": [proof.low, proof.high], "others": list(proof.others),
                "needed": proof.needed,
            }
            for role, proof in found.proofs.items()
        },
    }  # fmt: skip


def head_rows(found: HeadRoles) -> list[dict[str, Any]]:
    """Return a row for each head: its roles, scores and statistics."""
    rows = []
    for n, layer in enumerate(found.measured.layers):
        for h in range(found.shape[1]):
            of = found.of((layer, h))
            row: dict[str, Any] = {
                "layer": layer,
                "head": h,
                "roles": " ".join(one.role for one in of if one.needed is not False),
                "looks_like": " ".join(one.role for one in of if one.needed is False),
                "streaming": round(found.measured.streaming[n, h].item(), 6),
                "lag": int(found.measured.lags[n, h]),
            }
            for role, one in found.measured.roles.items():
                row[f"score_{role}"] = round(one.score[n, h].item(), 6)
            for name, table in found.measured.means.items():
                row[name] = round(table[n, h].item(), 6)
            rows.append(row)
    return rows


def write_table(found: HeadRoles, path: Path) -> None:
    """Write a row for each head, as .parquet (which needs pyarrow) or .csv."""
    rows = head_rows(found)
    if path.suffix.lower() == ".parquet":
        if importlib.util.find_spec("pyarrow") is None:
            raise InputError(
                f"{path} needs pyarrow, which is not installed",
                hint="pip install pyarrow, or name a .csv",
            )
        import pyarrow
        import pyarrow.parquet

        data = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), data)
        write_file(path, data.getvalue())
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_file(path, text.getvalue().encode())


def write_streaming(found: HeadRoles, folder: Path) -> None:
    """Write which heads need all keys: a row for each layer, a number for each head of keys.

    1 - share of the weight on the first key and the last 128 ones, of the query head that needs
    most; 1 for groups with a head that retrieves.
    """
    full = 1 - found.measured.streaming.double()  # (L, H)
    for role in ("retrieval", "query"):
        if role in found.measured.roles:
            for layer, h in found.heads(role):
                full[found.measured.layers.index(layer), h] = 1
    groups = full.unflatten(1, (found.measured.n_kv_heads, -1)).amax(-1).clamp(0, 1)
    lines = ["\t".join(f"{x:.6f}" for x in row) for row in groups.tolist()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make {folder}: {error.strerror}", hint="name another folder"
        ) from None
    write_file(folder / "full_attention_heads.tsv", ("\n".join(lines) + "\n").encode())
    config = {"sink_size": SINK, "recent_size": RECENT, "model": found.name}
    write_file(folder / "config.json", json.dumps(config, indent=2).encode())


def _rounded(x: Any) -> Any:
    return [[round(v, 6) for v in row] for row in x.tolist()]
