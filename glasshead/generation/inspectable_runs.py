"""Record the attention of one of our models while it reads a text, or translates it."""

from typing import Any

import torch

from glasshead.checkpoint import Run
from glasshead.errors import InputError
from glasshead.generation.beam import search
from glasshead.generation.translation_rows import SpecialTokens
from glasshead.model.gpt import GPT
from glasshead.model.transformer import Encoder, Reader, Transformer
from glasshead.observe.inspectable import (
    RECORD_ALL,
    InspectableModel,
    RecordConfig,
    split_translation,
)
from glasshead.observe.trace import Trace
from glasshead.observe.words import decode_tokens

__all__ = ["InspectableReader", "InspectableRun", "InspectableTranslator"]


class InspectableRun(InspectableModel):
    def __init__(self, run: Run, device: torch.device) -> None:
        super().__init__(run.path.resolve().name, run.model, device)
        self.run, self.tokenizer = run, run.tokenizer
        self.lowercase = run.config.lowercase

    def _encode(self, text: str, config: RecordConfig) -> list[int]:
        ids = self.tokenizer.prompt_ids(text.lower() if self.lowercase else text)
        settings: Any = self.model.config
        return self._truncate(ids, config, settings.max_len, settings.positions != "learned")


class InspectableReader(InspectableRun):
    """A GPT, or an encoder that answers at each position."""

    def record(self, text: str, config: RecordConfig = RECORD_ALL) -> Trace:
        model = self.model
        assert isinstance(model, GPT | Reader | Encoder)
        ids = self._encode(text, config)
        batch = torch.tensor([ids], device=self.device)

        def read() -> None:
            # Without the head: of a long text, logits would take most of the memory.
            if isinstance(model, GPT):
                model.features(batch)
            else:
                (model.encoder if isinstance(model, Reader) else model)(batch)

        tokens = decode_tokens(self.tokenizer, ids)
        return self._run_observed(config, read, {"text": text}, tokens, batch)


class InspectableTranslator(InspectableRun):
    """An encoder and a decoder, recorded with the translation that `translate` gives."""

    def record(self, text: str, config: RecordConfig = RECORD_ALL) -> Trace:
        model = self.model
        assert isinstance(model, Transformer)
        if not text.strip():
            raise InputError("the text is empty", hint="give a text to translate")
        source = self._encode(text.strip(), config)
        special = SpecialTokens.of(self.tokenizer, model)
        [[found]] = search(model, [source], special)
        target = [special.bos, *found.ids, *[special.eos] * found.ended]
        tokens, last = split_translation(decode_tokens(self.tokenizer, target))

        def translate() -> None:
            memory = model.encode(torch.tensor([source], device=self.device))
            model.features(torch.tensor([target[:-1]], device=self.device), memory)

        translation = self.tokenizer.decode(found.ids).strip()
        about = {"text": text, "translation": translation, **last}
        source_tokens = decode_tokens(self.tokenizer, source)
        return self._run_observed(config, translate, about, tokens, source_tokens=source_tokens)
