"""Name what every head of a model does: `glasshead.heads`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from glasshead.checkpoint import Run, RunFolder, kind_of, load
from glasshead.checkpoint.safetensors_folder import read_json
from glasshead.errors import InputError, install_hint
from glasshead.files.foreign_folder import check_foreign_folder
from glasshead.model.pretrained import FAMILIES
from glasshead.roles.naming import HeadRoles, Progress, name_heads
from glasshead.roles.probes import ProbeSizes
from glasshead.roles.proof import Head, Scope
from glasshead.roles.pruning import remove_heads
from glasshead.roles.subject import Subject, subject_of_run, subject_of_transformers

__all__ = ["heads", "open_subject", "save_pruned"]


def heads(
    model: str | Path | Run | nn.Module,
    texts: str | Sequence[str] = (),
    *,
    tokenizer: Any = None,
    roles: Sequence[str] | None = None,
    draws: int = 5,
    sequences: int = 6,
    tokens: int = 96,
    seed: int = 0,
    progress: Progress | None = None,
) -> HeadRoles:
    """Name what every head of a model does, and prove that the model needs it.

    >>> import glasshead
    >>> text = "海上明月共潮生，春江潮水连海平。\\n" * 60
    >>> run = glasshead.train(text, steps=3, n_layers=1, d_model=16, max_len=64, quiet=True)
    >>> found = glasshead.heads(run, text, tokens=48)
    >>> found.heads("induction"), found.table("previous").shape  # (L, H)
    ([], torch.Size([1, 4]))

    Args:
        model: what `load` or `train` returned, the path of a run, of a GGUF file or of a
            transformers folder; or a model of that library, with its `tokenizer`.
        texts: what the model reads; stories of the embedded world if there are none.
        tokenizer: of a model of the transformers library.
        roles: which roles to prove; all when None.
        draws: how often other heads are removed for comparison; 0 proves nothing.
        sequences, tokens: of each probe.
        seed: of random tokens and of the heads that are drawn.
        progress: called with the part done and the role that is being proved.

    Returns:
        `.heads(role)` lists (layer, head), `.of((layer, head))` a head's roles with scores and
        controls, `.proofs[role]` what the model loses without them.
    """
    given = [texts] if isinstance(texts, str) else list(texts)
    return name_heads(
        open_subject(model, tokenizer), given, roles=roles,
        probes=ProbeSizes(sequences, tokens, seed), scope=Scope(draws, seed), progress=progress,
    )  # fmt: skip


def open_subject(
    model: str | Path | Run | nn.Module,
    tokenizer: Any = None,
    device: torch.device | None = None,
) -> Subject:
    """Open a model to measure its heads."""
    if isinstance(model, nn.Module):
        if tokenizer is None:
            raise InputError(
                f"a {type(model).__name__} comes without a tokenizer",
                hint="glasshead.heads(model, texts, tokenizer=tokenizer)",
            )
        return subject_of_transformers(type(model).__name__, model, tokenizer)
    if not isinstance(model, Run):
        path = Path(model)
        if kind_of(path) == "glass":
            raise InputError(
                f"{path} holds attention, not a model", hint="name the model that was recorded"
            )
        if kind_of(path) == "transformers":
            name = read_json(path / "config.json").get("model_type")
            if name not in FAMILIES:
                return _open_transformers(path, device)
        model = load(path)
    if device is not None:
        model.model.to(device)
    return subject_of_run(model.path.name, model.model, model.tokenizer)


def save_pruned(run: Run, removed: Sequence[Head], out: Path) -> None:
    """Write a run without these heads: their output is 0 in its parameters."""
    remove_heads(run.model, removed)
    heads = [list(head) for head in removed]
    config = replace(run.config, data={**run.config.data, "pruned": heads})
    RunFolder.create(out, config, run.tokenizer, run.model.cpu())


def _open_transformers(path: Path, device: torch.device | None) -> Subject:
    """Open a folder whose family is not one of ours in the transformers library."""
    try:
        import transformers
    except ImportError:
        raise InputError(
            f"{path} holds a model of the transformers library, which is not installed",
            hint=install_hint("hf"),
        ) from None
    check_foreign_folder(path)
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    config = transformers.AutoConfig.from_pretrained(path, **local)
    writes = any("CausalLM" in name or "LMHead" in name for name in config.architectures or ())
    kind = "AutoModelForCausalLM" if writes else "AutoModel"
    try:
        model = getattr(transformers, kind).from_pretrained(
            path, use_safetensors=True, attn_implementation="sdpa", dtype=torch.float32, **local
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, **local)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise InputError(
            f"{path} cannot be opened ({reason})",
            hint="the folder must hold what save_pretrained writes, and its tokenizer",
        ) from None
    if device is not None:
        model = model.to(device)
    return subject_of_transformers(path.resolve().name, model, tokenizer)
