"""A conversation becomes ids, by the template that came with an imported model.

The template is a small program in Jinja; it runs in a sandbox, where it can read the messages and
nothing else. What it writes itself may be special tokens; what people wrote never is: <|im_end|>
typed in a message stays ten characters.
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

PRIVATE = range(0xF0000, 0xFFFFE)  # characters that mean nothing


def chat_template(loaded: Run) -> tuple[str, dict[str, str]]:
    """How the model's conversations are written, and the special tokens it knows by name."""
    imported: Any = loaded.config.data.get("imported")
    imported = imported if isinstance(imported, dict) else {}
    template, tokens = imported.get("chat_template"), imported.get("tokens")
    if not isinstance(template, str):
        raise InputError(
            f"{loaded.path.name} has no chat template: it was not trained to converse",
            hint="let it go on with a text: /v1/completions",
        )
    return template, tokens if isinstance(tokens, dict) else {}


def chat_ids(loaded: Run, messages: Sequence[Mapping[str, str]], limit: int) -> list[int]:
    """The ids of a conversation, up to where the model's answer begins.

    Args:
        messages: `role` and `content` of each.
        limit: characters that the template may write.
    """
    source, tokens = chat_template(loaded)
    names = sorted(loaded.tokenizer.specials, key=len, reverse=True)
    special = "|".join(map(re.escape, names)) or r"(?!)"
    typed = "".join(text for message in messages for text in message.values())
    mark = next(c for c in map(chr, PRIVATE) if c not in typed and c not in source)

    def broken(text: str) -> str:
        """With a mark inside each name of a special, so that it is none."""
        return re.sub(rf"(?=(?:{special}))(.)", rf"\1{mark}", text, flags=re.DOTALL)

    safe = [{name: broken(text) for name, text in message.items()} for message in messages]
    written = _rendered(source, {**tokens, "messages": safe, "add_generation_prompt": True}, limit)
    return _encoded(loaded.tokenizer, re.split(f"({special})", written), mark)


def _encoded(tokenizer: Tokenizer, parts: Sequence[str], mark: str) -> list[int]:
    ids: list[int] = []
    for index, part in enumerate(parts):
        if index % 2:
            ids.append(tokenizer.specials[part])
        elif part:
            ids += tokenizer.encode_ids(part.replace(mark, "")).tolist()
    return ids


def _rendered(source: str, values: Mapping[str, Any], limit: int) -> str:
    written = ""
    try:
        for piece in _compiled(source).generate(**values):
            written += piece
            if len(written) > limit:
                raise InputError(
                    f"the conversation is longer than {limit:,} characters",
                    hint="leave out the oldest messages",
                )
    except TemplateError as error:
        raise InputError(
            f"the model's chat template refuses these messages: {error}"[:300],
            hint="most take user and assistant in turns, after at most one system message",
        ) from None
    except InputError:
        raise
    except Exception as error:  # a template is a program, and not ours
        raise InputError(
            f"the model's chat template fails: {error!r}"[:300],
            hint="use /v1/completions, or import the model anew",
        ) from None
    return written


@lru_cache(maxsize=16)
def _compiled(source: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(source)


def _to_json(value: Any, indent: int | None = None) -> str:
    """Jinja's own writes < and > as numbers, for pages."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
