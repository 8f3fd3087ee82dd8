"""What one pass through a GPT does, operation by operation, as `model/` and `attention/` do it.

Each knows its arithmetic, the bytes it moves and the bytes it keeps for the backward pass. Sums
over the list are what a plan is made of:

    >>> from glasshead.lab.plan.shapes import find_shape
    >>> ops = operations(Setting(find_shape("gpt2", {}), B=1, T=1024))
    >>> round(sum(op.flops for op in ops) / 1024 / 1e6)  # millions a token, forward
    266
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from glasshead.lab.plan.devices import ROW_KEYS
from glasshead.model.gpt import GPTConfig
from glasshead.model.layers import ff_width
from glasshead.model.loss import BLOCK, LARGE

__all__ = ["Operation", "Setting", "operations", "pairs"]

WIDE = 4  # bytes of a number in float32
# Calls of torch for each kernel, views and casts counted: forward, and with its gradients. A test
# counts them. AdamW's are counted in `update.py`.
CALLS, CALLS_BACK = 3, 4
ATTENTION_BACK = 2.5  # fused attention makes its scores again: five products for two


@dataclass(frozen=True)
class Setting:
    """A model and what one device is given of it."""

    config: GPTConfig
    B: int  # sequences at a time
    T: int  # tokens of a sequence that this device has
    S: int | None = None  # keys that they look at; T when None
    itemsize: int = 4  # bytes of a number in the products: 2 under autocast to bf16
    compiled: bool = False
    cuda: bool = False
    training: bool = True
    captured: bool = False  # as a CUDA graph, so that nobody waits for Python
    tensor: int = 1  # devices that share each matrix
    last_only: bool = False  # logits of the last token alone

    @property
    def tokens(self) -> int:
        return self.B * self.T

    @property
    def heads(self) -> tuple[int, int, int]:
        """H, H_kv and D on this device."""
        c = self.config
        H, H_kv = c.n_heads, c.n_kv_heads or c.n_heads
        return H // self.tensor, max(1, H_kv // self.tensor), c.d_head or c.d_model // H

    @property
    def writing(self) -> bool:
        """One token a text on a GPU, where kernels of our own leave nothing but products."""
        return self.cuda and self.T == 1 and not self.training

    @property
    def stream(self) -> int:
        """Bytes of a number in the residual stream: a GPU keeps it in bf16 too."""
        return self.itemsize if self.cuda else WIDE

    @property
    def loss(self) -> str:
        """How `model/loss.py` goes about it: in blocks, by a kernel in place, or as torch does."""
        plain = self.config.logit_softcap is None
        if plain and not self.cuda and self.itemsize == WIDE and not self.compiled:
            return "blocks"
        large = self.config.vocab_size >= LARGE
        return "in place" if plain and self.cuda and self.itemsize == 2 and large else "torch"


@dataclass(frozen=True)
class Operation:
    name: str
    kind: str  # matmul, attention, pointwise
    flops: float = 0.0  # forward
    moved: float = 0.0  # bytes read and written, forward
    moved_back: float = 0.0  # and backward
    saves: float = 0.0  # bytes kept until the backward pass
    passing: float = 0.0  # bytes that exist only while this operation runs, or its backward
    calls: int = 1  # kernels, forward
    matrix: int = 0  # parameters that are multiplied with
    depth: int = 0  # products that each number of the result sums up
    rows: float = 0.0  # operations in whose time a GPU begins and ends rows of attention

    def work(self, back: bool = False) -> float:
        """Operations that it takes the time of."""
        times = (ATTENTION_BACK if self.kind == "attention" else 2) if back else 1
        return times * (self.flops + self.rows)

    def host_calls(self, back: bool = False) -> int:
        """Calls of torch that Python makes for it."""
        if not back:
            return CALLS * self.calls
        # A gradient for the input and one for the matrix.
        return CALLS_BACK * self.calls * (2 if self.kind == "matmul" else 1)


def operations(s: Setting) -> list[Operation]:
    """The forward pass of one batch, from ids to the loss."""
    block = list(_block(s))
    ops = [*_entry(s), *(block * s.config.n_layers), *_exit(s)]
    return [op for op in ops if op.kind != "pointwise"] if s.writing else ops


def pairs(T: int, S: int, window: int | None = None) -> int:
    """How many pairs of query and key a causal mask lets through, the last T of S queries.

    >>> pairs(3, 3), pairs(1, 5), pairs(3, 3, window=2)
    (6, 5, 5)
    """
    first = S - T + 1  # keys that the first query sees
    if window is None or window >= S:
        return T * (first + S) // 2
    short = max(0, min(T, window - first))  # queries that see less than the window
    return short * (2 * first + short - 1) // 2 + (T - short) * window


def _entry(s: Setting) -> Iterator[Operation]:
    N, C = s.tokens, s.config.d_model
    wide = 2 * WIDE * N * C
    yield Operation("embedding", "pointwise", moved=wide, moved_back=wide)
    if s.config.positions in ("learned", "sinusoidal", "sinusoidal-split"):
        yield Operation("positions", "pointwise", moved=3 * WIDE * N * C, calls=3)
    if s.config.positions == "rotary":
        # cos and sin, which every layer's gradient needs
        yield Operation("angles", "pointwise", saves=2 * WIDE * s.T * s.heads[2], calls=3)


def _block(s: Setting) -> Iterator[Operation]:
    c, N, C, e = s.config, s.tokens, s.config.d_model, s.itemsize
    H, H_kv, D = s.heads
    if c.norm_place == "pre":
        yield _norm(s)
    yield _linear(s, "qkv", C, (H + 2 * H_kv) * D)
    turned = N * (H + H_kv) * D  # numbers in q and k
    if c.qk_norm:
        # Without our own gradient (float32 on a CPU) what was normed is kept for the scale's.
        kept = e * turned if s.itemsize == 2 and not s.compiled else 0
        moved = 0 if s.compiled else 6 * e * turned
        yield Operation(
            "qk_norm",
            "pointwise",
            0,
            moved,
            2 * moved,
            kept + WIDE * turned / D,
            calls=6 if s.training else 4,
        )
    if c.positions == "rotary":
        moved = 2 * e * turned if s.compiled else turned * (32 + (12 if e == 2 else 0))
        yield Operation(
            "rotary",
            "pointwise",
            0,
            moved,
            moved,
            e * turned,
            calls=1 if s.compiled else 6 if s.training else 3,
        )
    yield from _attention(s)
    yield from _bias(s, c.qkv_bias, (H + 2 * H_kv) * D)
    if c.project:
        yield _linear(s, "out", H * D, C, shared=True)
        yield from _bias(s, c.bias if c.out_bias is None else c.out_bias, C)
    yield from _around(s, c.dropout if c.project else 0.0)
    if c.feed_forward != "none":
        if c.norm_place == "pre":
            yield _norm(s)
        yield from _feed_forward(s)
        yield from _around(s, c.dropout)


def _norm(s: Setting) -> Operation:
    """Keeps what came in, and a number or two a token."""
    N, C, e, r = s.tokens, s.config.d_model, s.itemsize, s.stream
    layer = s.config.norm == "layer"
    if s.compiled:  # one kernel with the addition before it, which has read x already
        return Operation("norm", "pointwise", 0, e * N * C, (2 * e + r) * N * C, r * N * C)
    # Autocast, in training, makes LayerNorm cast to float32, and its output is cast back.
    inner = WIDE if layer and s.training else r
    cast = (r + inner if r != inner else 0) + (inner + e if inner != e else 0)
    return Operation(
        "norm",
        "pointwise",
        moved=(2 * inner + cast) * N * C,
        moved_back=(5 * inner + cast) * N * C,
        saves=inner * N * C + WIDE * N * (2 if layer else 1),
        calls=1 + (r != inner) + (inner != e),
    )


def _linear(s: Setting, name: str, wide: int, out: int, *, shared: bool = False) -> Operation:
    """Keeps its input, unless whoever made that keeps it too."""
    N, e = s.tokens, s.itemsize
    moved = e * (N * (wide + out) + wide * out)
    remade = s.compiled and name not in ("out", "head")  # cheap to make from what is kept
    saves = 0 if shared or remade else e * N * wide
    return Operation(
        name, "matmul", 2.0 * N * wide * out, moved, 2 * moved, saves, matrix=wide * out, depth=wide
    )


def _bias(s: Setting, there: bool, out: int) -> Iterator[Operation]:
    """The gradient of a bias is a sum over all tokens: another pass, unless it is fused."""
    if there and not s.compiled:
        yield Operation("bias", "pointwise", 0, 0, s.itemsize * s.tokens * out, calls=0)


def _attention(s: Setting) -> Iterator[Operation]:
    c, e, S = s.config, s.itemsize, s.S or s.T
    H, H_kv, D = s.heads
    queries, keys = s.tokens * H * D, s.B * S * H_kv * D
    seen = s.B * H * pairs(s.T, S, c.window) if S >= s.T else s.B * H * s.T * S
    flops = 4.0 * seen * D
    explicit = not s.cuda and (c.softcap is not None or (c.dropout and s.training))
    if explicit:
        everything = s.B * H * s.T * S
        # Weights, what is dropped of them, and scores before they were capped.
        kept = e * everything * (1 + (2 if c.dropout else 0) + (1 if c.softcap else 0))
        yield Operation(
            "attention", "attention", flops, 8 * e * everything, 12 * e * everything,
            e * (2 * queries + 2 * keys) + kept, passing=2 * e * everything, calls=6,
        )  # fmt: skip
        return
    # Kernels of GPUs want as many heads of keys as of queries.
    copied = 2 * e * s.B * S * H * D if s.cuda and H_kv != H and s.T > 1 else 0
    if copied and not s.compiled:
        yield Operation("copies of k, v", "pointwise", 0, 2 * copied, 2 * copied, copied, calls=2)
    moved = e * (2 * queries + 2 * keys)
    # q, k, v (one tensor), the context, and a number a row
    saves = e * (2 * queries + 2 * s.tokens * H_kv * D) + WIDE * s.tokens * H
    rows = 4.0 * D * ROW_KEYS * s.tokens * H if s.cuda else 0.0
    yield Operation("attention", "attention", flops, moved, 2 * moved, saves, rows=rows)
    if not s.compiled:  # gradients of q, k, v put side by side, that of the context in order
        again = 2 * e * s.tokens * (2 * H + 2 * H_kv) * D
        yield Operation("side by side", "pointwise", 0, 0, again, calls=0)


def _around(s: Setting, dropout: float) -> Iterator[Operation]:
    """Dropout, the residual sum, and a norm behind it."""
    c, N, C, e = s.config, s.tokens, s.config.d_model, s.itemsize
    if dropout and s.training:
        moved = 0 if s.compiled else (2 * e + 1) * N * C
        # What was dropped: a byte for each, but a CPU keeps it as numbers.
        yield Operation("dropout", "pointwise", 0, moved, moved, (1 if s.cuda else e) * N * C)
    if c.residual:
        r = s.stream
        back = r + e if s.compiled else 3 * r + (r + e if r != e else 0)
        yield Operation("residual", "pointwise", 0, (2 * r + e) * N * C, back * N * C)
    if c.norm_place == "post":
        yield _norm(s)


def _feed_forward(s: Setting) -> Iterator[Operation]:
    c, N, C, e = s.config, s.tokens, s.config.d_model, s.itemsize
    if c.feed_forward == "linear-relu":
        yield _linear(s, "up", C, C)
        yield Operation("relu", "pointwise", 0, 2 * e * N * C, 3 * e * N * C, e * N * C)
        return
    F = ff_width(c) // s.tensor
    wide = e * N * F
    if c.feed_forward == "swiglu":
        yield _linear(s, "gate", C, F)
        yield _linear(s, "up", C, F, shared=True)
        saves = 2 * wide if s.compiled else 3 * wide
        moved = (3 * wide, 6 * wide) if s.compiled else (5 * wide, 9 * wide)
        yield Operation("swiglu", "pointwise", 0, *moved, saves, 3 * wide, calls=2)
    else:
        yield _linear(s, "up", C, F)
        name = c.feed_forward
        saves = 0 if name == "relu" and not s.compiled else wide
        back = (4 if s.compiled else 3) * wide
        yield Operation(name, "pointwise", 0, 2 * wide, back, saves, 2 * wide)
        yield from _bias(s, c.bias, F)
    yield _linear(s, "down", F, C)
    yield from _bias(s, c.bias, C)


def _exit(s: Setting) -> Iterator[Operation]:
    c, N, C, e, V = s.config, s.tokens, s.config.d_model, s.itemsize, s.config.vocab_size
    V //= s.tensor
    if c.norm_place == "pre" and c.n_layers:
        yield _norm(s)
    if s.last_only:
        moved = e * (s.B * (C + V) + C * V)
        yield Operation("head", "matmul", 2.0 * s.B * C * V, moved, matrix=C * V, depth=C)
        return
    yield from _loss(s, _linear(s, "head", C, V), N * V)


def _loss(s: Setting, head: Operation, logits: int) -> Iterator[Operation]:
    e = s.itemsize
    match s.loss:
        case "blocks":
            # Gradients of the features are made with the loss, and logits are never whole.
            yield replace(head, saves=WIDE * s.tokens * s.config.d_model)
            block = WIDE * min(max(BLOCK, s.config.vocab_size), logits)
            yield Operation("loss", "pointwise", 0, 5 * WIDE * logits, 0, 0, block, calls=8)
        case "in place":
            yield head
            yield Operation("loss", "pointwise", 0, 2 * e * logits, 0, e * logits)
        case _:
            # The logarithms of the softmax are kept; its gradient and its input's come and go.
            capped = e * logits if s.config.logit_softcap is not None else 0
            yield replace(head, saves=head.saves + capped)
            cast = (WIDE + e) * logits if e != WIDE else 0
            wide = WIDE * logits
            yield Operation(
                "loss", "pointwise", 0, cast + 2 * wide, cast + 4 * wide, wide, 2 * wide, calls=4
            )
