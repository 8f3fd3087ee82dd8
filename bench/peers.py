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

__all__ = ["missing_package", "to_nanogpt", "to_transformers"]


def missing_package(*packages: str) -> str | None:
    """Return why a peer is left out: its first package that is not installed; else None."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed: left out"
    return None


def to_transformers(model: GPT | Transformer, **settings: Any) -> Any:
    """Return the same model in the transformers library, on the same device, in the same dtype."""
    import transformers

    family = FAMILIES["gpt2" if isinstance(model, GPT) else "marian"]
    assert isinstance(family, HoldingFamily)
    about = family.settings(model.config) | {"bos_token_id": None, "eos_token_id": None}
    config = transformers.AutoConfig.for_model(family.name, **about | settings)
    theirs = getattr(transformers, family.architecture)(config)
    _, unknown = theirs.load_state_dict(_their_state_dict(model, family), strict=False)
    if unknown:
        raise ValueError(f"transformers has no parameter {unknown[0]}")
    place = next(model.parameters())
    return theirs.to(place.device, place.dtype).train(model.training)


def to_nanogpt(model: GPT, checkout: Path) -> Any:
    """Return the same model in nanoGPT, whose model.py is read from a checkout."""
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
    # Its linear layers have our layout; without biases its norms have none either.
    state = {
        name: value.T if ".c_" in name and value.dim() == 2 else value
        for name, value in _their_state_dict(model, FAMILIES["gpt2"]).items()
        if name in own
    }
    theirs.load_state_dict(state | {"lm_head.weight": state["transformer.wte.weight"]})
    return theirs.to(next(model.parameters()).device)


@torch.no_grad()
def _their_state_dict(model: nn.Module, family: Any) -> dict[str, Tensor]:
    """Return our parameters by their names, without biases that we lack, which are zero there."""
    own = model.state_dict()
    state: dict[str, Tensor] = {}
    for entry in family.entries(model.config):
        if entry.ours in own:
            state |= entry.split(own[entry.ours])
    return state | {copy: state[name] for copy, name in family.copies(model.config).items()}
