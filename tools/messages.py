"""Compare the Chinese catalogue of messages with what the code says.

    python -m tools.messages             # list what is missing; exit code 1 if anything is
    python -m tools.messages --update    # add lines for what is missing, drop what is unused

A line that waits for its Chinese is empty, or a `?` and the Chinese of a similar message that is
gone: a draft. Until it is filled in, the message is shown in English.
"""

import argparse
import json
from difflib import get_close_matches
from pathlib import Path

from glasshead.messages import DRAFT
from tools.message_help import templates_of_help
from tools.message_sources import Package

CATALOGUE = Path(__file__).resolve().parents[1] / "glasshead" / "messages_zh.json"
ADVICE = """\
{count} messages have no Chinese in glasshead/messages_zh.json. To add it:

    .venv/bin/python -m tools.messages --update    # writes the lines below into the file

Then write the Chinese after each colon, with the same {{0}}, {{1}}; correct what begins with a ?
and remove the ?. The file after the # is where the message stands.

{lines}"""


def read_catalogue() -> dict[str, str]:
    found: dict[str, str] = json.loads(CATALOGUE.read_text(encoding="utf-8"))
    return found


def known_templates() -> dict[str, str]:
    """Return every template of the code, with where it stands."""
    return templates_of_help() | Package.parse().templates()


def write_catalogue(catalogue: dict[str, str]) -> None:
    """Write one template a line, sorted, so that changes of several people rarely meet."""
    lines = json.dumps(dict(sorted(catalogue.items())), ensure_ascii=False, indent=0)
    CATALOGUE.write_text(lines + "\n", encoding="utf-8")


def update(known: dict[str, str], catalogue: dict[str, str]) -> dict[str, str]:
    """Return the catalogue with a line for each known template, and no other."""
    unused = [text for text in catalogue if text not in known and catalogue[text]]
    new = {text: catalogue.get(text, "") for text in known}
    for text in [text for text, chinese in new.items() if not chinese]:
        for near in get_close_matches(text, unused, n=1):
            new[text] = DRAFT + catalogue[near].removeprefix(DRAFT)
    return new


def explain_missing(known: dict[str, str], catalogue: dict[str, str]) -> str:
    """Return what to add to the catalogue, and how; empty if nothing is missing."""
    new = update(known, catalogue)
    lines = [
        f"{json.dumps(text, ensure_ascii=False)}: {json.dumps(new[text], ensure_ascii=False)},"
        f"  # {known[text]}"
        for text in sorted(new)
        if new[text][:1] in ("", DRAFT)
    ]
    return ADVICE.format(count=len(lines), lines="\n".join(lines)) if lines else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="change the catalogue")
    known, catalogue = known_templates(), read_catalogue()
    if parser.parse_args().update:
        write_catalogue(update(known, catalogue))
    missing = explain_missing(known, catalogue)
    if missing:
        print(missing)
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
