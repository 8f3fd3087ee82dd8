"""A folder with a model of the `transformers` library, to look into.

Nothing is fetched and nothing is unpickled: parameters are read from safetensors only.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from glasshead.errors import InputError, install_hint
from glasshead.observe.inspectable import ALL, InspectableModel, RecordConfig, bytes_of, written
from glasshead.observe.trace import Trace
from glasshead.observe.words import Token

__all__ = ["TransformersFolder", "tokens_of"]

MAX_NEW = 256  # tokens of a translation at most


class TransformersFolder(InspectableModel):
    """The model and the tokenizer in a folder with config.json and safetensors."""

    def __init__(self, path: Path, device: torch.device) -> None:
        try:
            import transformers
        except ImportError:
            raise InputError(
                f"{path} holds a model of the transformers library, which is not installed",
                hint=install_hint("hf"),
            ) from None
        dtype = torch.float32 if device.type == "cpu" else "auto"
        local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        with _quiet(transformers), _explained(path):
            self.config = transformers.AutoConfig.from_pretrained(path, **local)
            self.translates = bool(self.config.is_encoder_decoder)
            kind = "AutoModelForSeq2SeqLM" if self.translates else "AutoModel"
            model, about = getattr(transformers, kind).from_pretrained(
                path, config=self.config, use_safetensors=True, attn_implementation="sdpa",
                dtype=dtype, output_loading_info=True, **local,
            )  # fmt: skip
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(path, **local)
        # The pooler of an encoder comes after all attention.
        missing = sorted(name for name in about["missing_keys"] if "pooler" not in name)
        if missing:
            raise InputError(
                f"{path} lacks '{missing[0]}' ({len(missing)} parameters in all)",
                hint="the folder is not complete, or of another model than its config.json says",
            )
        super().__init__(path.resolve().name, model, device)

    def record(self, text: str, config: RecordConfig = ALL) -> Trace:
        if not text.strip():
            raise InputError("the text is empty", hint="give a text to look at")
        # No max_length: what is too long is refused below, and not cut in silence.
        ids, tokens = self._read(text)
        ids, tokens = self._cut(ids, config), tokens[: config.max_tokens]
        self._fits(len(ids), self._limit(), config, can_go_on=self._is_rotary())
        source = torch.tensor([ids], device=self.device)
        if not self.translates:

            def read() -> None:
                self.model(input_ids=source, **self._uncached())

            return self._recorded(config, read, {"text": text}, tokens, source)
        with torch.no_grad():
            model: Any = self.model
            said = model.generate(
                input_ids=source, attention_mask=torch.ones_like(source), num_beams=1,
                do_sample=False, max_new_tokens=min(MAX_NEW, (self._limit() or MAX_NEW + 1) - 1),
            )  # fmt: skip
        target, last = written(tokens_of(self.tokenizer, said[0].tolist()))
        translation = self.tokenizer.decode(said[0], skip_special_tokens=True)

        def translate() -> None:
            self.model(input_ids=source, decoder_input_ids=said[:, :-1], **self._uncached())

        about = {"text": text, "translation": translation, **last}
        return self._recorded(config, translate, about, target, source_tokens=tokens)

    def _read(self, text: str) -> tuple[list[int], list[Token]]:
        fast = bool(self.tokenizer.is_fast)
        found = self.tokenizer(text, return_offsets_mapping=fast, verbose=False)
        offsets = found["offset_mapping"] if fast else None
        return list(found["input_ids"]), tokens_of(
            self.tokenizer, found["input_ids"], text, offsets
        )

    def _limit(self) -> int | None:
        named = (getattr(self.config, n, None) for n in ("max_position_embeddings", "n_positions"))
        return next((n for n in named if isinstance(n, int) and n > 0), None)

    def _is_rotary(self) -> bool:
        return any(getattr(self.config, n, None) for n in ("rope_parameters", "rope_theta"))

    def _uncached(self) -> dict[str, bool]:
        return {"use_cache": False} if hasattr(self.config, "use_cache") else {}


def tokens_of(
    tokenizer: Any,
    ids: Sequence[int],
    text: str | None = None,
    offsets: Sequence[tuple[int, int]] | None = None,
) -> list[Token]:
    """What each id stands for: by its bytes where the tokenizer works on bytes, else by where
    it stands in the text, else by its name."""
    names, special = tokenizer.convert_ids_to_tokens(list(ids)), set(tokenizer.all_special_ids)
    inner = getattr(tokenizer, "backend_tokenizer", None)
    kinds = inner.to_str() if inner is not None and tokenizer.is_fast else "{}"
    table = byte_table() if _works_on_bytes(kinds) else None
    found: list[Token] = []
    end = 0
    for place, (number, name) in enumerate(zip(ids, names, strict=True)):
        byte = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", name)
        if number in special:
            found.append(name)
        elif table is not None:
            found.append(bytes_of(name, table))
        elif byte:
            found.append(bytes.fromhex(byte[1]))
        elif text is not None and offsets is not None:
            # The spaces before it belong to it.
            found.append(text[end : max(end, offsets[place][1])])
        else:
            found.append(_by_name(name))
        if offsets is not None and number not in special:
            end = max(end, offsets[place][1])
    return found


def _by_name(name: str) -> str:
    """By the marks of sentencepiece and of wordpiece.

    >>> _by_name("▁cat"), _by_name("##s"), _by_name("dog</w>")
    (' cat', 's', 'dog ')
    """
    name = name.replace("▁", " ").replace("</w>", " ")
    return name[2:] if name.startswith("##") and len(name) > 2 else name


def byte_table() -> dict[str, int]:
    """How byte-level tokenizers write bytes: printable ones as themselves, others from U+0100 on.

    >>> byte_table()["Ġ"], byte_table()["a"], len(byte_table())
    (32, 97, 256)
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [value for value in range(256) if value not in printable]
    table = {chr(value): value for value in printable}
    return table | {chr(256 + place): value for place, value in enumerate(others)}


def _works_on_bytes(description: str) -> bool:
    inner = json.loads(description)
    return '"ByteLevel"' in json.dumps([inner.get("pre_tokenizer"), inner.get("decoder")])


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """What the library says of a folder that it cannot read, in one line."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, KeyError, ImportError, AttributeError) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"{path} cannot be opened ({said[:200]})",
            hint="needed: what save_pretrained writes, config.json, safetensors and a tokenizer",
        ) from None


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No bars and no advice while a folder is read."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
