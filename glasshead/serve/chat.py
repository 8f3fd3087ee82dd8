"""Encode a conversation with the chat template of an imported model.

The template is a Jinja program; it runs in a sandbox, with access to the messages only, in a
process with limits. Special tokens count only in what the template itself writes: <|im_end|> in a
message is encoded as ten characters.
"""

import contextlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glasshead.checkpoint import Run
from glasshead.errors import InputError
from glasshead.text.tokenizer import Tokenizer

__all__ = ["TemplateRenderer", "chat_ids", "chat_template"]

PRIVATE = range(0xF0000, 0xFFFFE)  # private-use characters
PROGRAM = Path(__file__).with_name("template_process.py")
SECONDS = 3.0  # that a template may take; usually it is a thousandth of one
USE_TEXT = "use /v1/completions, or import the model again"


def chat_template(loaded: Run) -> tuple[str, dict[str, str]]:
    """Return the model's chat template, and the special tokens that it names."""
    imported: Any = loaded.config.data.get("imported")
    imported = imported if isinstance(imported, dict) else {}
    template, tokens = imported.get("chat_template"), imported.get("tokens")
    if not isinstance(template, str):
        raise InputError(
            f"{loaded.path.name} has no chat template",
            hint="use /v1/completions, which needs none",
        )
    return template, tokens if isinstance(tokens, dict) else {}


def chat_ids(
    renderer: "TemplateRenderer", loaded: Run, messages: Sequence[Mapping[str, str]], limit: int
) -> list[int]:
    """Return the ids of a conversation, up to where the model's answer begins.

    Args:
        messages: `role` and `content` of each.
        limit: the most characters that the template may write.
    """
    source, tokens = chat_template(loaded)
    names = sorted(loaded.tokenizer.specials, key=len, reverse=True)
    special = "|".join(map(re.escape, names)) or r"(?!)"
    typed = "".join(text for message in messages for text in message.values())
    mark = next(c for c in map(chr, PRIVATE) if c not in typed and c not in source)

    def break_specials(text: str) -> str:
        """Break special-token strings in user text so they are not parsed as special tokens."""
        return re.sub(rf"(?=(?:{special}))(.)", rf"\1{mark}", text, flags=re.DOTALL)

    safe = [{name: break_specials(text) for name, text in message.items()} for message in messages]
    values = {**tokens, "messages": safe, "add_generation_prompt": True}
    parts = re.split(f"({special})", renderer.render(source, values, limit))
    return _encode(loaded.tokenizer, parts, mark)


def _encode(tokenizer: Tokenizer, parts: Sequence[str], mark: str) -> list[int]:
    ids: list[int] = []
    for index, part in enumerate(parts):
        if index % 2:
            ids.append(tokenizer.specials[part])
        elif part:
            ids += tokenizer.encode_ids(part.replace(mark, "")).tolist()
    return ids


class TemplateRenderer:
    """Renders templates in processes of their own, which end when they take too long.

    Jinja's sandbox keeps a template from files and from Python itself, but not from loops without
    end, nor from memory. Several threads may call `render` at once.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._idle: list[subprocess.Popen[bytes]] = []

    def render(self, source: str, values: Mapping[str, Any], limit: int) -> str:
        """Return what a template writes, at most `limit` characters."""
        process = self._take_process()
        reply = _ask(process, {"source": source, "values": values, "limit": limit}, self.seconds)
        if reply is None:
            _end(process)
            raise InputError(
                f"the model's chat template takes more than {self.seconds:g} s", hint=USE_TEXT
            )
        self._idle.append(process)
        if "rejected" in reply:
            raise InputError(
                f"the model's chat template rejects these messages: {reply['rejected']}"[:300],
                hint="alternate user and assistant, after at most one system message",
            )
        if "failed" in reply:
            raise InputError(
                f"the model's chat template fails: {reply['failed']}"[:300], hint=USE_TEXT
            )
        if "too_long" in reply:
            raise InputError(
                f"the conversation has more than {limit:,} characters",
                hint="leave out the oldest messages",
            )
        text: str = reply["text"]
        return text

    def _take_process(self) -> "subprocess.Popen[bytes]":
        """Return a process that waits for work. Other threads take from the same list."""
        with contextlib.suppress(IndexError):
            while (process := self._idle.pop()).poll() is not None:  # something else ended it
                _end(process)
            return process
        return _start_process()

    def close(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                _end(self._idle.pop())


def _start_process() -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-I", str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the server, whose requests may finish
    )
    assert process.stdout
    process.stdout.readline()  # it is ready
    return process


def _ask(
    process: "subprocess.Popen[bytes]", ask: dict[str, Any], seconds: float
) -> dict[str, Any] | None:
    """Return the reply of a process; None if it took too long, or ended."""
    assert process.stdin
    assert process.stdout
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        process.stdin.write(json.dumps({**ask, "seconds": seconds}).encode() + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        reply: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
        return reply
    except OSError:
        return None
    finally:
        timer.cancel()


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    with contextlib.suppress(OSError):
        process.communicate()
