"""Encode a conversation with the chat template of an imported model.

The template is a Jinja program; it runs in a sandbox, with access to the messages only. Special
tokens count only in what the template itself writes: <|im_end|> in a message is encoded as ten
characters.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from glasshead.checkpoint import Run
from glasshead.errors import InputError
from glasshead.text.tokenizer import Tokenizer

__all__ = ["chat_ids", "chat_template"]

PRIVATE = range(0xF0000, 0xFFFFE)  # private-use characters


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


def chat_ids(loaded: Run, messages: Sequence[Mapping[str, str]], limit: int) -> list[int]:
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
    parts = re.split(f"({special})", _render(source, values, limit))
    return _encode(loaded.tokenizer, parts, mark)


def _encode(tokenizer: Tokenizer, parts: Sequence[str], mark: str) -> list[int]:
    ids: list[int] = []
    for index, part in enumerate(parts):
        if index % 2:
            ids.append(tokenizer.specials[part])
        elif part:
            ids += tokenizer.encode_ids(part.replace(mark, "")).tolist()
    return ids


def _render(source: str, values: Mapping[str, Any], limit: int) -> str:
    written = ""
    try:
        for piece in _compile(source).generate(**values):
            written += piece
            if len(written) > limit:
                raise InputError(
                    f"the conversation has more than {limit:,} characters",
                    hint="leave out the oldest messages",
                )
    except TemplateError as error:
        raise InputError(
            f"the model's chat template rejects these messages: {error}"[:300],
            hint="alternate user and assistant, after at most one system message",
        ) from None
    except InputError:
        raise
    except Exception as error:  # templates are programs of others
        raise InputError(
            f"the model's chat template fails: {error!r}"[:300],
            hint="use /v1/completions, or import the model again",
        ) from None
    return written


@lru_cache(maxsize=16)
def _compile(source: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(source)


def _to_json(value: Any, indent: int | None = None) -> str:
    """Replace Jinja's filter, which escapes < and > for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
