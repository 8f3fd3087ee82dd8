"""Check a whole language model by what it must not do: see the future, the padding or others."""

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glasshead.errors import InputError
from glasshead.lab.check.target import CheckTarget

if TYPE_CHECKING:
    from glasshead.lab.check.report import CheckFinding, CheckReport

__all__ = ["check_folder", "check_model", "check_own_model", "is_language_model"]


def is_language_model(target: Any) -> bool:
    """Say whether a target is a transformers model that takes token ids."""
    return (
        hasattr(target, "config")
        and hasattr(target, "get_input_embeddings")
        and not isinstance(target, type)
    )


def check_folder(path: Path) -> "CheckReport":
    """Load a transformers folder and check its model."""
    try:
        from transformers import AutoConfig, AutoModel, AutoModelForCausalLM
    except ImportError:
        from glasshead.errors import install_hint

        raise InputError("transformers is not installed", hint=install_hint("hf")) from None
    try:
        config = AutoConfig.from_pretrained(path)
        names = getattr(config, "architectures", None) or [""]
        kind = AutoModelForCausalLM if "CausalLM" in names[0] or "LMHead" in names[0] else AutoModel
        model = kind.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} holds no model that can be read: {error}",
                         hint="give the folder that save_pretrained wrote") from None  # fmt: skip
    return check_model(model, path.name)


def check_model(model: Any, name: str = "") -> "CheckReport":
    """Check causality, batches, padding and the cache of a transformers model."""
    from glasshead.lab.check.report import CheckReport

    model = model.eval()
    findings, done, skipped = _Checks(model).run()
    facts = {"arrays": "torch", "layout": "token ids", "causal": "yes" if done[0] else "no",
             "reference": "none"}  # fmt: skip
    return CheckReport(name or type(model).__name__, "", tuple(findings), None, facts,
                  tuple(done[1]), skipped)  # fmt: skip


class _Checks:
    def __init__(self, model: Any) -> None:
        import torch

        self.torch, self.model = torch, model.float()
        config = model.config
        text = getattr(config, "get_text_config", lambda: config)()
        self.vocab = int(getattr(text, "vocab_size", 29))
        self.findings: list[CheckFinding] = []
        self.skipped: dict[str, str] = {}
        self.done: list[str] = []
        generator = torch.Generator().manual_seed(0)
        low = min(5, self.vocab - 1)
        self.ids = torch.randint(low, self.vocab, (3, 7), generator=generator)
        decoder = bool(getattr(config, "is_encoder_decoder", False))
        self.decoder = decoder
        name = type(model).__name__
        # Some classes are causal only if the config says so: BertLMHeadModel with is_decoder.
        self.states_causal = bool(getattr(text, "is_decoder", False)) or _looks_causal(model)
        flags = [m for m in model.modules() if hasattr(m, "is_causal")]
        named = ("CausalLM" in name or "LMHead" in name) and not flags
        self.causal = not decoder and (self.states_causal or named)

    def run(self) -> tuple[list["CheckFinding"], tuple[bool, list[str]], dict[str, str]]:
        tests = {"random": self.random, "batch": self.batch, "causal": self.future,
                 "padding": self.padding, "cache": self.cache}  # fmt: skip
        for name, test in tests.items():
            try:
                with self.torch.no_grad():
                    test()
                self.done.append(name)
            except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
                self.skipped[name] = f"{type(error).__name__}: {error}"
        if not self.done:
            raise InputError(
                f"the model cannot be run on token ids: {next(iter(self.skipped.values()))}",
                hint="check one of its attention modules instead",
            )
        return self.findings, (self.causal, self.done), self.skipped

    def logits(self, ids: Any, **rest: Any) -> Any:
        if self.decoder:
            rest.setdefault("decoder_input_ids", ids)
        out = self.model(ids, **rest)
        return next(out[name] for name in ("logits", "last_hidden_state") if name in out)

    def differ(self, a: Any, b: Any) -> bool:
        room = 2e-4 * (1 + float(a.abs().max()))
        return not bool(self.torch.isfinite(b).all()) or float((a - b).abs().max()) > room

    def report(self, name: str, mistake: bool = True) -> None:
        from glasshead.lab.check.report import CheckFinding

        if name not in {each.name for each in self.findings}:
            self.findings.append(CheckFinding(name, mistake))

    def random(self) -> None:
        if not self.torch.equal(self.logits(self.ids), self.logits(self.ids)):
            self.report("dropout-at-inference")

    def batch(self) -> None:
        if self.differ(self.logits(self.ids)[:1], self.logits(self.ids[:1])):
            self.report("heads-batch-mixed")

    def future(self) -> None:
        changed = self.ids.clone()
        changed[:, -1] = self.vocab - 1 - (changed[:, -1] - min(5, self.vocab - 1))
        if self.decoder:
            before, after = (
                self.logits(self.ids, decoder_input_ids=x) for x in (self.ids, changed)
            )
        else:
            before, after = self.logits(self.ids), self.logits(changed)
        if (self.causal or self.decoder) and self.differ(before[:, :-1], after[:, :-1]):
            self.report("causal-missing", self.states_causal or self.decoder)

    def padding(self) -> None:
        """Pad on the right: what stands there must not change the rest."""
        torch = self.torch
        if "attention_mask" not in inspect.signature(self.model.forward).parameters:
            raise ValueError("it takes no attention_mask")
        junk = torch.full((3, 2), self.vocab - 1)
        mask = torch.cat([torch.ones_like(self.ids), torch.zeros_like(junk)], 1)
        rest = {"decoder_input_ids": self.ids} if self.decoder else {}
        ids = torch.cat([self.ids, junk], 1)
        wide = self.logits(ids, attention_mask=mask, **rest)
        if self.differ(self.logits(self.ids), wide[:, :7]):
            # Convolutions and the like read padding too, beside an attention that masks it.
            ignored = torch.equal(wide, self.logits(ids, **rest))
            self.report("mask-ignored" if ignored else "padding-elsewhere", ignored)

    def cache(self) -> None:
        """Read the text in three pieces, the last of several tokens."""
        if not self.causal:
            raise ValueError("it has no cache")
        whole = self.logits(self.ids)
        past, parts = None, []
        for start, end in ((0, 3), (3, 4), (4, 7)):
            out = self.model(self.ids[:, start:end], past_key_values=past, use_cache=True)
            past = out.past_key_values
            parts.append(next(out[n] for n in ("logits", "last_hidden_state") if n in out))
        if past is None:
            raise ValueError("it returns no cache")
        if self.differ(whole[:, 3:4], parts[1]):
            self.report("cache-ignored")
        elif self.differ(whole, self.torch.cat(parts, 1)):
            self.report("causal-start-aligned")


class _OwnChecks(_Checks):
    """The same for a module of one's own, from token ids to logits."""

    def __init__(self, target: CheckTarget, vocab: int) -> None:
        import torch

        self.torch, self.target = torch, target
        self.model = target.owner.double().eval()
        self.vocab = vocab
        self.findings, self.skipped, self.done = [], {}, []
        generator = torch.Generator().manual_seed(0)
        self.ids = torch.randint(min(5, vocab - 1), vocab, (3, 7), generator=generator)
        self.decoder = False
        text = f"{target.name}\n{target.documentation}"
        self.states_causal = self.causal = bool(_DECODER.search(text)) and not _BOTH.search(text)

    def logits(self, ids: Any, **rest: Any) -> Any:
        out = self.model(ids, **rest)
        several = out.values() if isinstance(out, dict) else out
        for each in several if isinstance(out, (tuple, list, dict)) else [out]:
            if getattr(each, "shape", ())[:2] == ids.shape and each.is_floating_point():
                return each
        raise ValueError("it returns no (B, T, V)")

    def report(self, name: str, mistake: bool = True) -> None:
        from glasshead.lab.check.report import CheckFinding
        from glasshead.lab.check.source_lines import find_line

        line, code = find_line(self.target, name) or (0, "")
        if name not in {each.name for each in self.findings}:
            self.findings.append(CheckFinding(name, mistake, line, code))

    def cache(self) -> None:
        raise ValueError("it has no cache that is known")


_DECODER = re.compile(r"GPT|causal|decoder|next.token|autoregress|language model", re.I)
_BOTH = re.compile(r"bert|encoder|masked|bidirectional", re.I)


def check_own_model(target: CheckTarget) -> "CheckReport | None":
    """Check a module that takes token ids (B, T); None if it takes none."""
    from glasshead.lab.check.report import CheckReport

    if not hasattr(target.owner, "named_modules"):
        return None
    kinds = [(type(m).__name__, m) for m in target.owner.modules()]
    vocab = next((m.num_embeddings for name, m in kinds if name == "Embedding"), 0)
    if vocab < 2 or sum(each.required for each in target.parameters) != 1:
        return None
    checks = _OwnChecks(target, vocab)
    try:
        with checks.torch.no_grad():
            checks.logits(checks.ids)
    except Exception:  # its own, of any kind: then it takes no ids
        return None
    findings, done, skipped = checks.run()
    facts = {"arrays": "torch", "layout": "token ids", "causal": "yes" if done[0] else "no",
             "reference": "none"}  # fmt: skip
    return CheckReport(
        target.name, target.path, tuple(findings), None, facts, tuple(done[1]), skipped
    )


def _looks_causal(model: Any) -> bool:
    """Say whether the model calls itself causal: a layer has the flag."""
    return any(getattr(module, "is_causal", False) is True for module in model.modules())
