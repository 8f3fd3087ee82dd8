"""What the torch calls of an attention module computed, as a call with mask and scoring."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from glasshead.attention.hooks import AttentionCall
from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring
from glasshead.observe.trace_storage import masked_scores
from glasshead.observe.transformers_hooks import ParsedMask, parse_mask

__all__ = [
    "Product", "SoftmaxCall", "describe_fused", "describe_softmax", "describe_torch_module",
    "find_heads",
]  # fmt: skip

HIDDEN = -9e3  # what a mask adds to hide a pair, less the largest score
CLOSE = 2e-6  # between weights that were computed and those that follow from the parts
ABSORBED = -1e6  # numbers beside which float32 keeps little of a score
NAMES = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "num_head", "h", "nhead")
Described = AttentionCall | str  # or why it cannot be recorded


@dataclass(frozen=True, eq=False)
class Product:
    """A product of matrices that may be q @ k^T."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    options: dict[str, Any]

    def factors(self) -> tuple[Tensor, Tensor] | None:
        """Return q (..., T, D) and k (..., S, D); None if the call is of another form."""
        args = self.args + tuple(v for v in self.options.values() if isinstance(v, Tensor))
        if self.func is torch.einsum:
            return _factors_of_einsum(args)
        if len(args) >= 3 and "baddbmm" in self.func.__name__:
            args = args[1:3]
        if len(args) != 2 or not all(isinstance(x, Tensor) and x.dim() >= 3 for x in args):
            return None
        return args[0], args[1].mT


def _factors_of_einsum(args: tuple[Any, ...]) -> tuple[Tensor, Tensor] | None:
    equation, operands = args[0], args[1:]
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    left, arrow, out = equation.replace(" ", "").partition("->")
    names = left.split(",")
    if not arrow or len(names) != 2 or len(operands) != 2:
        return None
    summed = (set(names[0]) & set(names[1])) - set(out)
    batch, i, j = out[:-2], out[-2], out[-1]
    if len(summed) != 1 or i not in names[0] or j not in names[1] or i in names[1]:
        return None
    (d,) = summed
    q, k = operands
    return torch.einsum(f"{names[0]}->{batch}{i}{d}", q), torch.einsum(
        f"{names[1]}->{batch}{j}{d}", k
    )


@dataclass(eq=False)
class SoftmaxCall:
    """A softmax: its input, its result, and the product that its input comes from."""

    scores: Tensor
    weights: Tensor
    product: Product | None
    used: bool = False  # whether values were weighed with the result


def find_heads(module: nn.Module) -> int | None:
    """Return the number of heads of an attention module, if one of its attributes has it."""
    places = (module, getattr(module, "config", None))
    found = (getattr(place, name, None) for name in NAMES for place in places)
    return next((n for n in found if isinstance(n, int) and n > 0), None)


def describe_softmax(call: SoftmaxCall, used: Tensor, heads: int | None) -> Described:
    """Describe a softmax whose result, as `used`, was multiplied with values."""
    weights = call.weights.detach()
    shape = _layout(weights, heads)
    if shape is None:
        return f"its weights have shape {tuple(weights.shape)}"
    scores = call.scores.detach()
    if used.shape[-1] != weights.shape[-1]:
        return "it weighs values in blocks, so its columns are no positions"
    if used.data_ptr() != weights.data_ptr():
        flat = used.detach().flatten()
        if not torch.equal(flat, weights.to(used.dtype).flatten()):
            return "it changes its weights after the softmax"
    W, Y = shape(weights), shape(scores).to(_float(scores))
    B, H, T, S = W.shape
    q, k = _queries_and_keys(call.product, Y.shape, shape) or (
        W.new_zeros(B, H, T, 1), W.new_zeros(B, H, S, 1)
    )  # fmt: skip
    raw = q.to(Y.dtype) @ k.to(Y.dtype).mT
    for scale, rest in _splits(q, raw, Y):
        found = _join(q, k, scale, rest, Y)
        if _gives(W, found):
            break
    else:
        logs = W.log()
        found = _join(q, k, 1.0, torch.where(W == 0, -torch.inf, logs - raw), logs)
    nothing = W.new_zeros(B, H, 1, 1)
    return AttentionCall(
        found.q, found.k, nothing.expand(B, H, S, 1), nothing.expand(B, H, T, 1),
        lambda: (found.rule, found.scoring), cross=False,
        rounded_scores=scores.dtype != torch.float32, weights=W, flat=lambda: found.flat,
    )  # fmt: skip


class _Parts(NamedTuple):
    """Queries, keys and what makes scores and weights of them."""

    q: Tensor
    k: Tensor
    rule: Mask
    scoring: Scoring
    flat: Tensor | None


def _join(q: Tensor, k: Tensor, scale: float, rest: Tensor, scores: Tensor) -> _Parts:
    """Turn what the scores are besides scale * q @ k^T into a mask and a bias."""
    # Where all keys of a row are hidden by large numbers, those with the largest share it evenly.
    top = scores.amax(-1, keepdim=True)
    some = (top <= ABSORBED) & (top > -torch.inf) & ~(scores == top).all(-1, keepdim=True)
    rest = torch.where(some, torch.where(scores == top, 0, -torch.inf), rest)
    q = q.masked_fill(some, 0)
    hides = rest <= HIDDEN
    # Rounding beside large numbers is no bias.
    coarse = torch.where(rest <= ABSORBED, rest, (rest / 1000).round() * 1000)
    masks = torch.where(hides, coarse, 0)
    if bool((masks == masks[:, :1]).all()):
        masks = masks[:, :1]
    rule, _, flat = parse_mask(masks) if bool(hides.any()) else ParsedMask(Mask(), None, None)
    rest = rest.masked_fill(hides, 0)
    bias = _narrow(rest, hides) if bool(rest.any()) else None
    return _Parts(q, k, rule, Scoring(scale, bias=bias), flat)


def _gives(weights: Tensor, parts: _Parts) -> bool:
    """Whether these parts give these weights."""
    T, S = weights.shape[2:]
    every = slice(0, T), slice(0, S)
    found = masked_scores(parts.q, parts.k, parts.rule, parts.scoring, *every).softmax(-1)
    if parts.flat is not None:
        found = found.masked_fill(parts.flat.expand(*parts.flat.shape[:2], T)[..., None], 1 / S)
    of_weights = 8 * torch.finfo(weights.dtype).eps
    return bool(((found.nan_to_num() - weights).abs() <= CLOSE + of_weights * weights).all())


def _queries_and_keys(
    product: Product | None, size: torch.Size, shape: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor] | None:
    """Return the queries and keys of a product in the form (B, H, T, D), if it has such."""
    B, H, T, S = size
    found = None if product is None else product.factors()
    if found is None:
        return None
    q, k = (x.detach() for x in found)
    lead = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    if (q.shape[-2], k.shape[-2]) != (T, S) or lead.numel() != B * H:
        return None
    q, k = (x.expand(*lead, *x.shape[-2:]) for x in (q, k))
    if shape(q).shape[:2] == (B, H):
        return shape(q), shape(k)
    return q.reshape(B, H, T, -1), k.reshape(B, H, S, -1)


def _splits(q: Tensor, raw: Tensor, scores: Tensor) -> Iterator[tuple[float, Tensor]]:
    """Yield scales, and what the scores are besides scale * raw, which should be little: nothing
    but a mask, a number for each key, or anything."""
    seen = scores > HIDDEN
    x, y = raw[seen].double(), scores[seen].double()
    norm = float(x @ x)
    size = max(1.0, float(_top(y)), float(_top(x)))
    tolerance = 32 * size * max(torch.finfo(one.dtype).eps for one in (q, scores))
    fitted = float(x @ y) / norm if norm else 1.0
    candidates = [fitted, 1.0, q.shape[-1] ** -0.5]
    for scale in candidates:
        rest = torch.where(scores <= ABSORBED, scores, scores - scale * raw)
        left = rest.masked_fill(~seen, 0)
        if float(_top(left)) <= tolerance:
            yield scale, torch.where(seen, 0, rest)
            break
    for scale in candidates[1:]:
        rest = torch.where(scores <= ABSORBED, scores, scores - scale * raw)
        least, most = (_over_rows(rest, seen, how) for how in ("amin", "amax"))
        if float(_top(most - least)) <= tolerance:
            yield scale, torch.where(seen, ((least + most) / 2).expand_as(rest), rest)
            break
    yield 1.0, torch.where(scores <= ABSORBED, scores, scores - raw)


def _over_rows(rest: Tensor, seen: Tensor, how: str) -> Tensor:
    """Return the least or largest number of each key, over the rows that see it; 0 if none does."""
    away = torch.inf if how == "amin" else -torch.inf
    found: Tensor = getattr(rest.masked_fill(~seen, away), how)(2, keepdim=True)
    return found.masked_fill(found.abs() == torch.inf, 0)


def _narrow(bias: Tensor, hides: Tensor) -> Tensor:
    """Return a bias without the dimensions along which its visible part is the same."""
    for dim in (0, 2):
        most = bias.masked_fill(hides, -torch.inf).amax(dim, keepdim=True)
        if bool(((bias == most) | hides).all()):
            bias, hides = most.masked_fill(most == -torch.inf, 0), hides.all(dim, keepdim=True)
    return bias.contiguous()


def _top(x: Tensor) -> Tensor:
    return x.abs().amax() if x.numel() else x.new_zeros(())


def _float(x: Tensor) -> torch.dtype:
    return x.dtype if x.dtype == torch.float64 else torch.float32


def _layout(weights: Tensor, heads: int | None) -> Callable[[Tensor], Tensor] | None:
    """Return a function that brings (..., T, n) into the form (B, H, T, n)."""
    shape = weights.shape
    if weights.dim() == 2:
        return lambda x: x[None, None]
    if weights.dim() == 3:
        H = heads if heads and shape[0] % heads == 0 else 1
        return lambda x: x.unflatten(0, (-1, H))
    if weights.dim() == 4:
        if heads and shape[1] != heads and shape[2] == heads:
            return lambda x: x.transpose(1, 2)
        return lambda x: x
    # Blocks or windows of a text, each a sequence of its own.
    return (lambda x: x.flatten(0, -4)) if weights.dim() > 4 else None


def describe_fused(
    args: tuple[Any, ...], options: dict[str, Any], out: Tensor, heads: int | None
) -> Described:
    """Describe a call of scaled_dot_product_attention."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    given = dict(zip(names, args, strict=False)) | options
    q, k, v = (given[name].detach() for name in names[:3])
    if given.get("dropout_p"):
        return "it drops weights at random: call model.eval() before observing it"
    mask, context = given.get("attn_mask"), out.detach()
    shape = _layout(q, heads)
    if shape is None:
        return f"its queries have shape {tuple(q.shape)}"
    if q.dim() != 4:
        q, k, v, context = (shape(x) for x in (q, k, v, context))
        mask = None if mask is None else shape(mask.expand(*out.shape[:-1], mask.shape[-1]))
    causal = mask is None and bool(given.get("is_causal"))
    if causal:
        k, v = k[:, :, : q.shape[2]], v[:, :, : q.shape[2]]
    mask = None if mask is None else mask.reshape((1,) * (4 - mask.dim()) + mask.shape)
    rule, bias, flat = ParsedMask(Mask(causal), None, None) if mask is None else parse_mask(mask)
    return AttentionCall(
        q, k, v, context, lambda: (rule, Scoring(given.get("scale"), bias=bias)),
        cross=False, rounded_scores=False, flat=lambda: flat,
    )  # fmt: skip


def describe_torch_module(
    module: nn.Module, args: tuple[Any, ...], options: dict[str, Any], out: Any
) -> Described:
    """Describe a call of nn.MultiheadAttention: its queries and keys are projected again."""
    assert isinstance(module, nn.MultiheadAttention)
    names = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")
    given = dict(zip(names, args, strict=False)) | options
    query, key, value = (given[name].detach() for name in names[:3])
    if module.bias_k is not None or module.add_zero_attn or query.dim() != 3:
        return "it adds keys of its own, or has no batch"
    if module.training and module.dropout:
        return "it drops weights at random: call model.eval() before observing it"
    if not module.batch_first:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    packed = module.in_proj_weight is not None
    weights = module.in_proj_weight.chunk(3) if packed else (
        module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
    )  # fmt: skip
    biases = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    q, k, v = (
        torch.nn.functional.linear(x, w, b).unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
        for x, w, b in zip((query, key, value), weights, biases, strict=True)
    )
    q, k, v = q.detach(), k.detach(), v.detach()
    B, H = q.shape[:2]
    added: Tensor | None = None
    padding, mask = given.get("key_padding_mask"), given.get("attn_mask")
    if padding is not None:
        added = _added(padding, q.dtype)[:, None, None]
    if mask is not None:
        mask = _added(mask, q.dtype)
        mask = mask[None, None] if mask.dim() == 2 else mask.unflatten(0, (B, H))
        added = mask if added is None else added + mask
    rule, bias, flat = ParsedMask(Mask(), None, None) if added is None else parse_mask(added)
    context = torch.nn.functional.scaled_dot_product_attention(q, k, v, added)
    expected = module.out_proj(context.transpose(1, 2).flatten(2)).detach()
    result = out[0].detach() if module.batch_first else out[0].detach().transpose(0, 1)
    size = float(_top(result)) + 1e-3
    if not torch.allclose(expected, result, rtol=0, atol=size * 64 * torch.finfo(q.dtype).eps):
        return "its output is not that of its queries and keys"
    return AttentionCall(
        q, k, v, context, lambda: (rule, Scoring(bias=bias)),
        cross=given["key"] is not given["query"], rounded_scores=False, flat=lambda: flat,
    )  # fmt: skip


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask of nn.MultiheadAttention as numbers that are added; True hides there."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -torch.inf)
