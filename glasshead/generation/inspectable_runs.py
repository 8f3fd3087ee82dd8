"""Record the attention of one of our models while it reads a text, or translates it."""

import torch

from glasshead.checkpoint import Run
from glasshead.errors import InputError
from glasshead.generation.beam import search
from glasshead.generation.rows import SpecialTokens
from glasshead.model.gpt import GPT
from glasshead.model.transformer import Encoder, Reader, Transformer
from glasshead.observe.inspectable import ALL, InspectableModel, RecordConfig, written
from glasshead.observe.trace import Trace
from glasshead.observe.words import decode_tokens

__all__ = ["Ours", "Reads", "Translates"]


class Ours(InspectableModel):
    def __init__(self, loaded: Run, device: torch.device) -> None:
        super().__init__(loaded.path.resolve().name, loaded.model, device)
        self.run, self.tokenizer = loaded, loaded.tokenizer
        self.lowercase = loaded.reads_small_letters

    def _encoded(self, text: str, config: RecordConfig) -> list[int]:
        text = text.lower() if self.lowercase else text
        return self._cut(self.tokenizer.prompt_ids(text), config)


class Reads(Ours):
    """A GPT, or an encoder that answers at each position."""

    def record(self, text: str, config: RecordConfig = ALL) -> Trace:
        model = self.model
        assert isinstance(model, GPT | Reader | Encoder)
        ids = self._encoded(text, config)
        settings = model.config
        self._fits(len(ids), settings.max_len, config, settings.positions != "learned")
        batch = torch.tensor([ids], device=self.device)

        def read() -> None:
            # Without the head: of a long text, logits would be most of the memory.
            if isinstance(model, GPT):
                model.features(batch)
            else:
                (model.encoder if isinstance(model, Reader) else model)(batch)

        return self._recorded(
            config, read, {"text": text}, decode_tokens(self.tokenizer, ids), batch
        )


class Translates(Ours):
    """Encoder and decoder, with the translation that `translate` gives."""

    def record(self, text: str, config: RecordConfig = ALL) -> Trace:
        model = self.model
        assert isinstance(model, Transformer)
        if not text.strip():
            raise InputError("the text is empty", hint="give a text to translate")
        source = self._encoded(text.strip(), config)
        self._fits(len(source), model.config.max_len, config, model.config.positions != "learned")
        marks = SpecialTokens.of(self.tokenizer, model)
        [[found]] = search(model, [source], marks)
        said = [marks.bos, *found.ids, *[marks.eos] * found.ended]
        tokens, last = written(decode_tokens(self.tokenizer, said))

        def translate() -> None:
            memory = model.encode(torch.tensor([source], device=self.device))
            model.features(torch.tensor([said[:-1]], device=self.device), memory)

        translation = self.tokenizer.decode(found.ids).strip()
        about = {"text": text, "translation": translation, **last}
        return self._recorded(
            config, translate, about, tokens, source_tokens=decode_tokens(self.tokenizer, source)
        )
