"""A folder with a model of the `transformers` library, to record its attention.

Nothing is downloaded and nothing is unpickled: parameters are read from safetensors only.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from glasshead.errors import GlassheadError, InputError, install_hint
from glasshead.files.foreign_folder import check_foreign_folder
from glasshead.machine import check_memory
from glasshead.observe.inspectable import (
    RECORD_ALL,
    InspectableModel,
    RecordConfig,
    split_translation,
)
from glasshead.observe.trace import Trace
from glasshead.observe.words import Token, as_token

__all__ = ["TransformersFolder", "decode_transformers_tokens"]

MAX_NEW = 256  # tokens of a translation at most
MOST_TABLES = 1 << 28  # bytes of what a model computes once, such as rotary angles


class TransformersFolder(InspectableModel):
    """The model and the tokenizer in a folder with config.json and safetensors."""

    def __init__(self, path: Path, device: torch.device, name: str | None = None) -> None:
        try:
            import transformers
        except ImportError:
            raise InputError(
                f"{path} holds a model of the transformers library, which is not installed",
                hint=install_hint("hf"),
            ) from None
        elements = check_foreign_folder(path)
        size = elements * (4 if device.type == "cpu" else 2)
        check_memory(size, f"the model {path}", "close other programs, or take a smaller model")
        dtype = torch.float32 if device.type == "cpu" else "auto"
        local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        with _silence(transformers), _explain_errors(path):
            self.config = transformers.AutoConfig.from_pretrained(path, **local)
            self.translates = bool(self.config.is_encoder_decoder)
            auto = getattr(
                transformers, "AutoModelForSeq2SeqLM" if self.translates else "AutoModel"
            )
            _check_size(auto, self.config, elements, path)
            model, about = auto.from_pretrained(
                path, config=self.config, use_safetensors=True,
                dtype=dtype, output_loading_info=True, **local,
            )  # fmt: skip
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(path, **local)
        # The pooler of an encoder comes after all attention.
        missing = sorted(name for name in about["missing_keys"] if "pooler" not in name)
        if missing:
            raise InputError(
                f"{path} lacks '{missing[0]}' ({len(missing)} parameters in all)",
                hint="the folder is incomplete, or its config.json belongs to another model",
            )
        super().__init__(name or path.resolve().name, model, device)

    @property
    def longest(self) -> int | None:
        """The most tokens that the model was made for, if its config tells."""
        sizes = self._settings("max_position_embeddings", "n_positions")
        return next((n for n in sizes if isinstance(n, int) and n > 0), None)

    @property
    def is_rotary(self) -> bool:
        """Whether the model has positions for any length."""
        return any(self._settings("rope_parameters", "rope_theta"))

    def count_tokens(self, text: str) -> int:
        return len(self.tokenizer(text, verbose=False)["input_ids"])

    def record(self, text: str, config: RecordConfig = RECORD_ALL) -> Trace:
        if not text.strip():
            raise InputError("the text is empty", hint="give a text to look at")
        limit = self.longest
        # The tokenizer gets no max_length: too long a text raises an error and is not cut silently.
        found = self.tokenizer(text, return_offsets_mapping=self.tokenizer.is_fast, verbose=False)
        ids = self._truncate(found["input_ids"], config, limit, self.is_rotary)
        offsets = found.get("offset_mapping")
        tokens = decode_transformers_tokens(self.tokenizer, found["input_ids"], text, offsets)
        tokens = tokens[: config.max_tokens]
        source = torch.tensor([ids], device=self.device)
        options = {"use_cache": False} if hasattr(self.config, "use_cache") else {}
        if not self.translates:

            def read() -> None:
                self.model(input_ids=source, **options)

            return self._run_observed(config, read, {"text": text}, tokens, source)
        with torch.no_grad():
            model: Any = self.model
            target = model.generate(
                input_ids=source, attention_mask=torch.ones_like(source),
                do_sample=False, max_new_tokens=min(MAX_NEW, (limit or MAX_NEW + 1) - 1),
            )  # fmt: skip
        written = decode_transformers_tokens(self.tokenizer, target[0].tolist())
        target_tokens, last = split_translation(written)
        translation = self.tokenizer.decode(target[0], skip_special_tokens=True)

        def translate() -> None:
            self.model(input_ids=source, decoder_input_ids=target[:, :-1], **options)

        about = {"text": text, "translation": translation, **last}
        return self._run_observed(config, translate, about, target_tokens, source_tokens=tokens)

    def _settings(self, *names: str) -> list[Any]:
        return [getattr(self.config, name, None) for name in names]


def decode_transformers_tokens(
    tokenizer: Any,
    ids: Sequence[int],
    text: str | None = None,
    offsets: Sequence[tuple[int, int]] | None = None,
) -> list[Token]:
    """Return the text or bytes of each id.

    By its bytes if the tokenizer works on bytes, else by its place in the text, else by its name.
    """
    names, special = tokenizer.convert_ids_to_tokens(list(ids)), set(tokenizer.all_special_ids)
    table = byte_table() if _works_on_bytes(tokenizer) else None
    found: list[Token] = []
    end = 0
    for place, (number, name) in enumerate(zip(ids, names, strict=True)):
        byte = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", name)
        if number in special:
            found.append(name)
        elif table is not None:
            in_bytes = all(c in table for c in name)
            found.append(as_token(bytes(table[c] for c in name)) if in_bytes else name)
        elif byte:
            found.append(bytes.fromhex(byte[1]))
        elif text is not None and offsets is not None:
            # The spaces before it belong to it.
            found.append(text[end : max(end, offsets[place][1])])
        else:
            found.append(_decode_name(name))
        if offsets is not None and number not in special:
            end = max(end, offsets[place][1])
    return found


def _decode_name(name: str) -> str:
    """Replace the markers of sentencepiece and wordpiece.

    >>> _decode_name("▁cat"), _decode_name("##s"), _decode_name("dog</w>")
    (' cat', 's', 'dog ')
    """
    name = name.replace("▁", " ").replace("</w>", " ")
    return name[2:] if name.startswith("##") and len(name) > 2 else name


def byte_table() -> dict[str, int]:
    """Return the character of each byte in byte-level tokenizers: printable bytes are themselves,
    others follow from U+0100 on.

    >>> byte_table()["Ġ"], byte_table()["a"], len(byte_table())
    (32, 97, 256)
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [value for value in range(256) if value not in printable]
    table = {chr(value): value for value in printable}
    return table | {chr(256 + place): value for place, value in enumerate(others)}


def _works_on_bytes(tokenizer: Any) -> bool:
    inner = getattr(tokenizer, "backend_tokenizer", None)
    if inner is None or not tokenizer.is_fast:
        return False
    description = json.loads(inner.to_str())
    parts = [description.get("pre_tokenizer"), description.get("decoder")]
    return '"ByteLevel"' in json.dumps(parts)


def _check_size(auto: Any, config: Any, elements: int, path: Path) -> None:
    """Raise InputError, before any memory is taken, if the model is far larger than its files.

    It may have some parameters that the files lack: the pooler, or copies of tied ones.
    """
    with torch.device("meta"):
        model = auto.from_config(config)
    parameters = sum(x.numel() for x in model.parameters())
    tables = sum(x.nbytes for x in model.buffers())
    if not elements:
        raise InputError(
            f"{path} cannot be opened: it has no tensors in .safetensors files",
            hint="download or save the model as .safetensors; pickles (.bin) are never read",
        )
    if parameters > 2 * elements or tables > 4 * elements + MOST_TABLES:
        raise InputError(
            f"{path} has tensors of {elements:,} numbers, but a config.json of {parameters:,} "
            f"parameters and {tables:,} bytes of tables",
            hint="config.json belongs to another model; download the folder again",
        )


@contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    """Turn what the library raises for a folder that it cannot read into one line."""
    try:
        yield
    except GlassheadError:
        raise
    except Exception as error:  # the library trusts the files, and raises whatever that leads to
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"{path} cannot be opened ({reason[:200]})",
            hint="the folder must hold what save_pretrained writes: config.json, safetensors and a "
            "tokenizer",
        ) from None


@contextmanager
def _silence(transformers: Any) -> Iterator[None]:
    """Show no progress bars and no warnings of the library inside the `with`."""
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
