"""Models of one shape for tests of attribution and patching, and a tokenizer for theirs."""

import torch

from glasshead.model.gpt import GPT, GPTConfig
from glasshead.roles.subject import Subject, subject_of_run, subject_of_transformers
from glasshead.text.tokenizer import CharTokenizer

TOKENIZER = CharTokenizer("abcdefghijklmnopqrs")
TEXT = "abcabdgahsabcabdg"
OTHER = "abcabkgahsabcabdg"


def gpt(dtype=torch.float32, **changes) -> Subject:
    """A GPT whose parameters are large enough for every part to matter."""
    torch.manual_seed(3)
    shape = {"n_layers": 3, "n_heads": 4, "d_model": 56, "max_len": 41} | changes
    model = GPT(GPTConfig(vocab_size=TOKENIZER.vocab_size, **shape))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return subject_of_run("gpt", model.to(dtype), TOKENIZER)


class Letters:
    """As much of a tokenizer of transformers as is needed: a token for each letter."""

    all_special_ids = ()

    def __call__(self, text, add_special_tokens=True, verbose=True):
        return {"input_ids": [ord(c) % 59 for c in text]}

    def __len__(self):
        return 59

    def convert_ids_to_tokens(self, ids):
        return [chr(ord("0") + i) for i in ids]

    def convert_tokens_to_string(self, tokens):
        return "".join(tokens)

    def decode(self, ids, **options):
        return "".join(chr(ord("0") + i) for i in ids)


def of_transformers(config) -> Subject:
    import transformers

    torch.manual_seed(5)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return subject_of_transformers(config.model_type, model, Letters())
