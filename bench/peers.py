"""Models of other libraries, of the same shape and with the same parameters as one of ours."""

import contextlib
import importlib.util
import io
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.model.gpt import GPT
from glasshead.model.pretrained import FAMILIES, HoldingFamily
from glasshead.model.transformer import Transformer

__all__ = ["in_nanogpt", "in_transformers", "missing"]


def missing(*packages: str) -> str | None:
    """Why a peer is left out: the first of its packages that is not there."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed: left out"
    return None


def in_transformers(model: GPT | Transformer, **settings: Any) -> Any:
    """The same model by the transformers library, on the same device, in the same dtype."""
    import transformers

    family = FAMILIES["gpt2" if isinstance(model, GPT) else "marian"]
    assert isinstance(family, HoldingFamily)
    about = family.settings(model.config) | {"bos_token_id": None, "eos_token_id": None}
    config = transformers.AutoConfig.for_model(family.name, **about | settings)
    theirs = getattr(transformers, family.architecture)(config)
    _, unknown = theirs.load_state_dict(_renamed(model, family), strict=False)
    if unknown:
        raise ValueError(f"transformers has no parameter {unknown[0]}")
    place = next(model.parameters())
    return theirs.to(place.device, place.dtype).train(model.training)


def in_nanogpt(model: GPT, checkout: Path) -> Any:
    """The same model by nanoGPT, whose model.py is read from a checkout."""
    found = importlib.util.spec_from_file_location("nanogpt_model", checkout / "model.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    c = model.config
    config = module.GPTConfig(
        block_size=c.max_len, vocab_size=c.vocab_size, n_layer=c.n_layers, n_head=c.n_heads,
        n_embd=c.d_model, dropout=c.dropout, bias=c.bias,
    )  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):  # it prints how large it is
        theirs = module.GPT(config)
    own = theirs.state_dict()
    # Its linear layers lie as ours do; without biases its norms have none either.
    state = {
        name: value.T if ".c_" in name and value.dim() == 2 else value
        for name, value in _renamed(model, FAMILIES["gpt2"]).items()
        if name in own
    }
    theirs.load_state_dict(state | {"lm_head.weight": state["transformer.wte.weight"]})
    return theirs.to(next(model.parameters()).device)


@torch.no_grad()
def _renamed(model: nn.Module, family: Any) -> dict[str, Tensor]:
    """Our parameters by their names; a bias that we lack is zero in theirs, and left out here."""
    own = model.state_dict()
    state: dict[str, Tensor] = {}
    for entry in family.entries(model.config):
        if entry.ours in own:
            state |= entry.split(own[entry.ours])
    return state | {copy: state[name] for copy, name in family.copies(model.config).items()}
