"""The part of a run in which a logit is a sum of what was written into the residual stream.

Behind the last block come a norm and the output layer. With the norm's scale held at its value in
this run, a logit is an affine function of all that the layers wrote at its row: the embedding, the
output of each head, of each feed-forward, and biases. `read_path` runs the model once and returns
these outputs with the gradient of the logit at each, without a path through a later layer.

Nothing is known of a model but this: a module with parameters of its own writes, a norm scales, and
a list of modules holds the blocks. What a model computes stays the same bit for bit. The outputs
must add up to the logit, which is checked, so a model that works in another way raises an error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from glasshead.attention.hooks import Layer
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.causes.question import Question, answer_logits
from glasshead.errors import InputError
from glasshead.observe.layers import find_layers
from glasshead.roles.subject import Subject

__all__ = [
    "DirectPath", "Writers", "Written", "find_writers", "output_layer", "read_path",
    "stack_of_blocks",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Written:
    """What a module wrote into the residual stream at the row, and its effect."""

    name: str  # of the module
    module: nn.Module
    given: Tensor  # (D,) its input
    value: Tensor  # (C,) its output
    gradient: Tensor  # (C,) of the logit, with norms' scales held fixed

    @property
    def adds(self) -> float:
        return (self.gradient.double() @ self.value.double()).item()


@dataclass(eq=False)
class DirectPath:
    """What was written at a row, in the order in which the model ran."""

    embedding: Written
    written: list[Written]
    norm_biases: float  # what the biases of norms add
    head_bias: float  # what the bias of the output layer adds
    logit: float  # as the output layer computed it: a cap or a factor behind it is left out
    states: list[Tensor] = field(default_factory=list)  # (C,) before each block, and after the last
    last_norms: list[nn.Module] = field(default_factory=list)  # between blocks and output layer


def output_layer(subject: Subject) -> nn.Module:
    """Return the module that gives logits; raise if the model has none."""
    model: Any = subject.model
    getter = getattr(model, "get_output_embeddings", None)
    found = getattr(model, "head", None) if getter is None else getter()
    if not isinstance(found, nn.Module) or getattr(found, "weight", None) is None:
        raise InputError(
            f"{subject.name} gives no logits, so there is no answer to explain",
            hint="name a language model or a reader",
        )
    return found


def stack_of_blocks(model: nn.Module, layers: Sequence[Layer]) -> list[nn.Module]:
    """Return the blocks of the outermost list of modules that has attention layers."""
    inside = model
    for part in layers[0].name.split("."):
        parent, inside = inside, getattr(inside, part)
        if isinstance(parent, nn.ModuleList):
            return list(parent)
    raise InputError(
        f"{type(model).__name__} keeps its blocks in no list, so they cannot be told apart",
        hint="choose another model",
    )


@dataclass(frozen=True, eq=False)
class Writers:
    """Which modules of a model write into the residual stream, and which only feed others."""

    head: nn.Module  # gives logits
    blocks: list[nn.Module]
    writing: list[nn.Module]
    feeding: list[nn.Module]


def find_writers(subject: Subject, question: Question) -> Writers:
    """Find out, on the first two tokens, which modules write into the residual stream."""
    head, modules = output_layer(subject), list(subject.model.modules())
    blocks = stack_of_blocks(subject.model, [layer for layer, _ in find_layers(subject.model)])
    merging = {m.out for m in modules if isinstance(m, MultiHeadAttention)}  # some do not project
    every = [m for m in modules if m is not head and (_writes(m) or m in merging)]
    short = question.ids[:, :2]
    run = _Run(Writers(head, blocks, every, []), min(question.at, short.shape[1] - 1))
    start, *gradients = run.gradients(run.logits(subject, short, question))
    if start is None:
        raise InputError(
            f"{subject.name} computes its logits from its last block by more than a norm",
            hint="choose a model whose output layer reads the residual stream",
        )
    pairs = zip(run.leaves, gradients, strict=False)
    writing = list(dict.fromkeys(leaf.module for leaf, grad in pairs if grad is not None))
    return Writers(head, blocks, writing, [m for m in every if m not in writing])


def read_path(subject: Subject, question: Question, writers: Writers) -> DirectPath:
    """Run the model once and return what was written at the row that is asked about."""
    names = {module: name for name, module in subject.model.named_modules()}
    run = _Run(writers, question.at, [m for m in names if _is_norm(m)])
    logit = run.logits(subject, question.ids, question)
    start, *rest = run.gradients(logit)
    gradients = iter(rest)
    assert run.start is not None
    assert start is not None
    written = [
        Written(names[leaf.module], leaf.module, leaf.given, leaf.value.detach(), grad)
        for leaf in run.leaves
        if (grad := next(gradients)) is not None
    ]
    biases = sum(
        (grad.double() @ bias.detach().double()).item()
        for bias in run.biases
        if (grad := next(gradients)) is not None
    )
    return DirectPath(
        Written("embedding", writers.blocks[0], run.start, run.start.detach(), start), written,
        biases, run.head_bias, logit.item(), run.states, run.last_norms,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Leaf:
    module: nn.Module
    given: Tensor
    value: Tensor  # with a gradient


class _Run:
    """Runs a model in which the row of each writer's output is a leaf of autograd's graph."""

    def __init__(self, writers: Writers, at: int, norms: Sequence[nn.Module] = ()) -> None:
        self.writers, self.at, self.norms = writers, at, norms
        self.leaves: list[_Leaf] = []
        self.biases: list[Tensor] = []  # of norms, with a gradient
        self.start: Tensor | None = None  # what enters the first block
        self.states: list[Tensor] = []
        self.last_norms: list[nn.Module] = []
        self.head_bias = 0.0
        self._length = 0  # tokens of the text
        self._given: Tensor | None = None  # what the output layer got
        self._computed: Tensor | None = None  # and what it made of it
        self._behind = False  # whether the last block has run

    def logits(self, subject: Subject, ids: Tensor, question: Question) -> Tensor:
        """Run; return the logit of the answer, minus that of the other one."""
        self._length = ids.shape[1]
        blocks, head = self.writers.blocks, self.writers.head
        handles = [m.register_forward_hook(self._make_leaf) for m in self.writers.writing]
        handles += [m.register_forward_hook(_detach) for m in self.writers.feeding]
        handles += [m.register_forward_hook(self._freeze) for m in self.norms]
        handles += [
            m.register_forward_pre_hook(self._enter_block, with_kwargs=True) for m in blocks
        ]
        handles += [blocks[-1].register_forward_hook(self._leave_blocks)]
        handles += [head.register_forward_hook(self._leave_head)]
        wanted = list(question.wanted)
        asked = Question(ids, self.at, question.answer, question.against, question.tokens)
        try:
            with torch.enable_grad():
                answer_logits(subject, asked)
        finally:
            for handle in handles:
                handle.remove()
        if self._given is None or self._computed is None or self.start is None:
            raise InputError(
                f"{subject.name} did not run its blocks and its output layer in turn",
                hint="choose another model",
            )
        signs = torch.tensor([1.0, -1.0], dtype=torch.double, device=ids.device)[: len(wanted)]
        weight: Tensor = head.weight.detach()  # type: ignore[operator]
        bias = getattr(head, "bias", None)
        if isinstance(bias, Tensor):
            self.head_bias = (bias.detach()[wanted].double() @ signs).item()
        vector = signs @ weight[wanted].double()
        # The gradient is taken in float64; the value is that of the model's own output layer.
        with torch.enable_grad():
            exact = self._given.double() @ vector
            return exact + (self._computed[wanted].double() @ signs - exact.detach())

    def gradients(self, logit: Tensor) -> Sequence[Tensor | None]:
        """Return the gradient at the first block's input, at each leaf and at each norm's bias."""
        assert self.start is not None
        at = [self.start, *(leaf.value for leaf in self.leaves), *self.biases]
        found: Sequence[Tensor | None] = torch.autograd.grad(logit, at, allow_unused=True)
        return found

    def _row(self, x: Tensor) -> int:
        """Return the row of x (1, T, C) that is asked about; x may have that row alone."""
        return self.at if x.shape[-2] > 1 else 0

    def _make_leaf(self, module: nn.Module, args: Any, out: Any) -> Any:
        if not isinstance(out, Tensor) or out.dim() not in (2, 3) or not out.is_floating_point():
            return _detach(module, args, out)
        if out.shape[-2] not in (1, self._length):
            return out.detach()
        row = self._row(out)
        leaf = out[..., row, :].detach().flatten().clone().requires_grad_()
        x = args[0] if args and isinstance(args[0], Tensor) else out
        if x.dim() < 2 or not x.is_floating_point():
            x = out
        self.leaves.append(_Leaf(module, x.detach()[..., self._row(x), :].flatten().clone(), leaf))
        return _with_row(out, row, leaf)

    def _freeze(self, module: nn.Module, args: Any, out: Any) -> Any:
        x = args[0] if args else None
        if not isinstance(x, Tensor) or not isinstance(out, Tensor) or not x.requires_grad:
            return out
        if self._behind:
            self.last_norms.append(module)
        row = self._row(out)
        scale, centred, bias = _linear_part(module, x.detach()[..., row, :].flatten(),
                                            out.detach()[..., row, :].flatten())  # fmt: skip
        bias = bias.requires_grad_()
        self.biases.append(bias)
        frozen = _FrozenNorm.apply(x[..., row, :].flatten(), bias, scale, centred,
                                   out.detach()[..., row, :].flatten())  # fmt: skip
        return _with_row(out, row, frozen)

    def _enter_block(self, module: nn.Module, args: Any, options: dict[str, Any]) -> Any:
        x = args[0] if args else options.get("hidden_states", options.get("x"))
        if not isinstance(x, Tensor):
            return None
        row = self._row(x)
        self.states.append(x.detach()[..., row, :].flatten().clone())
        if self.start is not None or module is not self.writers.blocks[0]:
            return None
        self.start = self.states[-1].clone().requires_grad_()
        entered = _with_row(x, row, self.start)
        if args:
            return (entered, *args[1:]), options
        name = "hidden_states" if "hidden_states" in options else "x"
        return args, {**options, name: entered}

    def _leave_blocks(self, module: nn.Module, args: Any, out: Any) -> None:
        x = out[0] if isinstance(out, tuple) else out
        self.states.append(x.detach()[..., self._row(x), :].flatten().clone())
        self._behind = True

    def _leave_head(self, module: nn.Module, args: Any, out: Any) -> None:
        x = args[0]
        self._given = x[..., self._row(x), :].flatten()
        self._computed = out.detach()[..., self._row(out), :].flatten()


def _writes(module: nn.Module) -> bool:
    """Whether a module has parameters of its own, and no part that has."""
    own = any(True for _ in module.parameters(recurse=False))
    parts = any(any(True for _ in part.parameters()) for part in module.children())
    return own and not parts and not _is_norm(module) and not isinstance(module, nn.Embedding)


def _is_norm(module: nn.Module) -> bool:
    named = "norm" in type(module).__name__.lower()
    return named and not any(True for _ in module.children())


def _detach(module: nn.Module, args: Any, out: Any) -> Any:
    if isinstance(out, Tensor):
        return out.detach()
    if isinstance(out, tuple):
        return tuple(x.detach() if isinstance(x, Tensor) else x for x in out)
    return out


def _with_row(x: Tensor, row: int, value: Tensor) -> Tensor:
    """Return x with one row replaced, and no gradient of the others."""
    whole = x.detach().clone()
    whole[..., row, :] = value.view(*whole.shape[:-2], -1).to(whole.dtype)
    return whole


class _FrozenNorm(torch.autograd.Function):
    """A norm whose scale is held at its value: y = scale * (x - mean(x)) + bias."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, bias: Tensor, scale: Tensor, centred: bool, out: Tensor
    ) -> Tensor:
        ctx.save_for_backward(scale)
        ctx.centred, ctx.dtype = centred, x.dtype
        return out.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (scale,) = ctx.saved_tensors
        inner = grad.double() * scale
        if ctx.centred:
            inner = inner - inner.mean()
        return inner.to(ctx.dtype), grad, None, None, None


@torch.no_grad()
def _linear_part(module: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, bool, Tensor]:
    """Return the scale (C,) of a norm at x, whether it subtracts the mean, and its bias (C,)."""

    def run(row: Tensor) -> Tensor:
        forward: Callable[[Tensor], Tensor] = module.forward  # without hooks
        return forward(row[None, None])[0, 0]

    bias = run(torch.zeros_like(x))
    probe = torch.ones_like(x)
    probe[1::2] = -1
    if len(x) % 2:
        probe[-1] = 0  # its mean is 0, so that it is scaled alike by all norms
    gain = (run(probe) - bias).double() * probe.double()
    if len(x) % 2:
        other = probe.roll(1)
        gain = torch.where(probe != 0, gain, (run(other) - bias).double() * other.double())
    wanted = (y - bias).double()
    best: tuple[float, Tensor, bool] | None = None
    for centred in (True, False):
        z = gain * ((x.double() - x.double().mean()) if centred else x.double())
        factor = (wanted @ z) / (z @ z).clamp(min=1e-300)
        away = (wanted - factor * z).norm().item()
        if best is None or away < best[0]:
            best = away, factor * gain, centred
    assert best is not None
    allowed = 3e-2 if y.dtype.itemsize < 4 else 1e-4
    if best[0] > allowed * (1e-6 + wanted.norm().item()):
        raise InputError(
            f"the norm {type(module).__name__} scales in a way that is not known here",
            hint="choose a model with LayerNorm or RMSNorm",
        )
    return best[1], best[2], bias
