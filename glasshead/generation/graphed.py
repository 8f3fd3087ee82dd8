"""Decoding on a GPU: a step recorded once as a CUDA graph, and played for every token.

The graph embeds the last ids, runs the blocks over caches of fixed size (`linear_kernel.py`,
`attend_kernel.py`), picks the next ids and counts on. The host only asks for some steps at once
and then reads their ids: nothing waits for it in between.
"""

from collections import deque
from collections.abc import Collection, Sequence
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn

from glasshead.attention.cache import FixedCache
from glasshead.attention.mask import Mask
from glasshead.attention.norm import RMSNorm
from glasshead.attention.position import RotaryPositions
from glasshead.generation.decode import PlainDecoder, evaluating
from glasshead.generation.lean import LeanDecoder, lean_serves, touched
from glasshead.generation.sampling import GREEDY, PLAIN, SamplingConfig, choose, not_finite
from glasshead.machine import triton_works
from glasshead.model.gpt import GPT
from glasshead.model.layers import Block, FeedForward, GatedFeedForward

__all__ = ["GraphDecoder", "new_decoder", "serves"]

NOT_FINITE = -1  # in place of an id
FIRST_STEPS = 4  # asked for at once at first: the first words shall not wait; then twice as many
AHEAD = 32  # steps asked for at once: what a text that ends may have been continued too far
ROOMS = 128  # caches come in multiples of so many columns


def new_decoder(
    model: GPT,
    prompts: Sequence[Sequence[int]],
    config: SamplingConfig = PLAIN,
    *,
    max_tokens: int,
    stop_ids: Collection[int] = (),
    seed: int = 0,
) -> PlainDecoder:
    """The fastest decoder for this model where it is."""
    if serves(model):
        return GraphDecoder(
            model, prompts, config, max_tokens=max_tokens, stop_ids=stop_ids, seed=seed
        )
    kind = LeanDecoder if lean_serves(model) else PlainDecoder
    return kind(model, prompts, config, stop_ids=stop_ids, seed=seed)


def serves(model: GPT) -> bool:
    """Whether the kernels know all that the model is made of, and it is on a GPU with Triton.

    Not under autocast, where a model's parameters are not what it computes with.
    """
    c = model.config
    known = c.norm_place == "pre" and c.residual and c.project and c.feed_forward != "linear-relu"
    weight = model.embedding.weight
    in_training = torch.is_autocast_enabled("cuda")
    if not known or in_training or not weight.is_cuda or weight.dtype == torch.float64:
        return False
    plain = (nn.Linear, nn.LayerNorm, RMSNorm, nn.Embedding)
    parts = [m for m in model.modules() if next(m.parameters(recurse=False), None) is not None]
    gated = [m for m in model.modules() if isinstance(m, GatedFeedForward)]
    return (
        triton_works()
        and not touched(model)
        and all((m.gate.bias is None) == (m.up.bias is None) for m in gated)
        and all(type(part) in plain for part in parts)
        and all(part.weight.dtype == weight.dtype for part in parts)
    )


def _blocks(model: GPT) -> list[Block]:
    return [block for block in model.blocks if isinstance(block, Block)]


class GraphDecoder(PlainDecoder):
    """Gives what `PlainDecoder` gives, some steps of all texts at a time.

    In half precision the ids of near ties may differ: its logits are rounded less.
    """

    def __init__(
        self,
        model: GPT,
        prompts: Sequence[Sequence[int]],
        config: SamplingConfig = PLAIN,
        *,
        max_tokens: int,
        stop_ids: Collection[int] = (),
        seed: int = 0,
        recorded: bool = True,
    ) -> None:
        super().__init__(model, prompts, config, stop_ids=stop_ids, seed=seed)
        self._left, self._ahead = max_tokens, FIRST_STEPS
        self._ready: deque[list[int]] = deque()  # ids of steps that have been played
        longest = min(max(map(len, self.texts)) + max_tokens, model.config.max_len)
        room = -(-longest // ROOMS) * ROOMS
        self._player = _player(self, len(self.texts), room, recorded)

    def step(self) -> list[int | None]:
        new: list[int | None] = [None] * len(self.texts)
        if not self.live:
            return new
        if not self._ready:
            with (
                evaluating(self._modules),
                torch.autocast("cuda", enabled=False),
                torch.cuda.device_of(self.model.embedding.weight),
            ):
                self._play()
        chosen = self._ready.popleft()
        for row in tuple(self.live):
            token = chosen[row]
            if token == NOT_FINITE:
                raise not_finite()
            if token in self.stop_ids:
                self.finish(row)
                continue
            new[row] = token
            self.texts[row].append(token)
        return new

    def _play(self) -> None:
        """As many steps as are wanted, at most AHEAD, and at most up to where the room ends."""
        player, rows = self._player, range(len(self.texts))
        max_len = self.model.config.max_len
        if player.parameters != _parameters(self.model):  # what it recorded is void
            player = self._player = _player(self, player.rows, player.room, player.recorded)
        for row in self.live:
            if len(self.texts[row]) - self._starts[row] > max_len:
                self._starts[row] = len(self.texts[row]) - max(1, max_len // 2)
                player.columns = 0
        anew = player.columns in (0, max_len)
        # Texts that have ended are carried along, as short as can be.
        contexts = [
            self.texts[row][self._starts[row] :] if row in self.live else self.texts[row][-1:]
            for row in rows
        ]
        taken = max(map(len, contexts)) - 1 if anew else player.columns
        steps = min(self._ahead, self._left, max_len - taken)
        self._ahead = min(2 * self._ahead, AHEAD)
        uniform = [[self._streams[row].random() for row in rows] for _ in range(steps)]
        if anew:
            if self._seen is not None:
                for row in rows:
                    self._seen[row, self.texts[row]] = True
            player.read(contexts, self._seen, uniform)
        else:
            player.go_on(uniform)
        self._left -= steps
        self._ready.extend(player.ids(steps))


class _Player:
    """Caches, the state of a step on the device, and the step itself."""

    def __init__(
        self, model: GPT, rows: int, room: int, config: SamplingConfig, recorded: bool
    ) -> None:
        self.parameters = _parameters(model)
        self.owner: ref[GraphDecoder] | None = None
        device = model.embedding.weight.device
        c, dtype = model.config, model.embedding.weight.dtype
        self._model, self.config, self.recorded = ref(model), config, recorded
        self.columns = 0  # of the caches in use, as the host knows it
        self.rows, self.room = rows, room
        attention = _blocks(model)[0].attention if c.n_layers else None
        shape = (rows, attention.n_kv_heads, room, attention.d_head) if attention else (0,)
        self._keys, self._values = (
            [torch.zeros(shape, dtype=dtype, device=device) for _ in model.blocks] for _ in "kv"
        )
        self._last = torch.zeros(rows, dtype=torch.int64, device=device)
        self._length = torch.zeros((), dtype=torch.int32, device=device)
        self._pads = torch.zeros(rows, dtype=torch.int32, device=device)
        self._uniform = torch.zeros(AHEAD, rows, dtype=torch.float64, device=device)
        self._count = torch.zeros((), dtype=torch.int64, device=device)  # steps since the last look
        self._ids = torch.zeros(AHEAD, rows, dtype=torch.int64, device=device)
        self._seen: Tensor | None = None
        if config.repetition_penalty != 1:
            self._seen = torch.zeros(rows, c.vocab_size, dtype=torch.bool, device=device)
        self._turn: tuple[Tensor, Tensor] | None = None
        if isinstance(model.positions, RotaryPositions):
            rotation = model.positions.rotation(torch.arange(room, device=device))
            self._turn = rotation.cos.contiguous(), rotation.sin.contiguous()
        self._graph: torch.cuda.CUDAGraph | None = None

    @property
    def model(self) -> GPT:
        model = self._model()
        assert model is not None  # its decoder holds it
        return model

    def read(
        self, contexts: list[list[int]], seen: Tensor | None, uniform: list[list[float]]
    ) -> None:
        """Fill the caches from the texts, then pick the first ids, then go on."""
        device = self._last.device
        width = max(map(len, contexts))
        pads = [width - len(context) for context in contexts]
        padded = [[0] * pad + context for pad, context in zip(pads, contexts, strict=True)]
        self._pads.copy_(torch.tensor(pads, dtype=torch.int32))
        columns, mask = torch.arange(width, device=device), None
        positions = columns
        if any(pads):
            mask = Mask(keys=columns >= self._pads[:, None])
            positions = (columns - self._pads[:, None]).clamp(min=0)
        caches = [FixedCache(self.room) for _ in self.model.blocks]
        for cache, k, v in zip(caches, self._keys, self._values, strict=True):
            cache.k, cache.v = k, v
        ids = torch.tensor(padded, device=device)
        x = self.model.features(ids, mask=mask, positions=positions, caches=caches)
        if seen is not None and self._seen is not None:
            self._seen.copy_(seen)
        self.columns = width
        self._length.fill_(width)
        self._ask(uniform)
        self._pick(self._logits(x[:, -1].contiguous(), None))
        self._play(len(uniform) - 1)

    def go_on(self, uniform: list[list[float]]) -> None:
        self._ask(uniform)
        self._play(len(uniform))

    def ids(self, steps: int) -> list[list[int]]:
        """(steps, B) of what was played last; NOT_FINITE where the model could not say."""
        found: list[list[int]] = self._ids[:steps].tolist()
        return found

    def _ask(self, uniform: list[list[float]]) -> None:
        self._uniform[: len(uniform)] = torch.tensor(uniform, dtype=torch.float64)
        self._count.zero_()

    def _play(self, steps: int) -> None:
        if self.recorded and self._graph is None and steps:
            self._record()
        for _ in range(steps):
            self._step() if self._graph is None else self._graph.replay()
        self.columns += steps

    def _record(self) -> None:
        """Steps before and while recording change nothing that counts: the state is put back."""
        state = [self._last, self._length, self._count, self._ids]
        state += [] if self._seen is None else [self._seen]
        kept = [tensor.clone() for tensor in state]
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            self._step()
        here.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        # A stream of its own device; other threads may go on meanwhile.
        with torch.cuda.graph(graph, stream=aside, capture_error_mode="thread_local"):
            self._step()
        self._graph = graph
        for tensor, value in zip(state, kept, strict=True):
            tensor.copy_(value)

    def _step(self) -> None:
        """One more id for every text: read the last one, pick the next."""
        from glasshead.generation.attend_kernel import attend
        from glasshead.generation.linear_kernel import linear

        model, c = self.model, self.model.config
        places = (self._length - self._pads)[:, None]  # (B, 1)
        x = model.positions.embed(model.embedding(self._last[:, None]), places)[:, 0]  # (B, C)
        slopes = model.positions.slopes()
        for block, k, v in zip(_blocks(model), self._keys, self._values, strict=True):
            own = block.attention
            norms = (own.q_norm.weight, own.k_norm.weight, own.q_norm.eps) if own.qk_norm else None
            qkv = linear(x, own.qkv, norm=block.around_attention.before)
            context = attend(
                qkv, k, v, self._length, self._pads,
                scale=own.d_head**-0.5 if own.scale is None else own.scale,
                window=c.window, softcap=own.softcap, slopes=slopes, turn=self._turn, norms=norms,
            )  # fmt: skip
            assert isinstance(own.out, nn.Linear)
            x = linear(context, own.out, residual=x)
            think = block.feed_forward
            if think is None:
                continue
            norm = block.around_feed_forward.before
            if isinstance(think, GatedFeedForward):
                h = linear(x, think.up, norm=norm, gate=think.gate)
            else:
                assert isinstance(think, FeedForward)
                h = linear(x, think.up, norm=norm, activation=c.feed_forward)
            x = linear(h, think.down, residual=x)
        self._length += 1
        self._pick(self._logits(x, model.norm if c.n_layers else None))

    def _logits(self, x: Tensor, norm: nn.Module | None) -> Tensor:
        """(B, V) in float32."""
        from glasshead.generation.linear_kernel import linear

        cap = self.model.config.logit_softcap
        logits = linear(x, self.model.head, norm=norm, dtype=torch.float32)
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def _pick(self, logits: Tensor) -> None:
        from glasshead.generation.linear_kernel import pick_best

        if self.config == GREEDY:
            pick_best(logits, self._last, self._ids, self._count)
            self._count += 1
            return
        finite = logits.amax(-1).isfinite()  # (B,); NaN is larger than everything
        logits = torch.where(finite[:, None], logits, 0.0)
        uniform = self._uniform.index_select(0, self._count[None])[0]
        chosen = choose(logits, self.config, uniform, self._seen)
        self._last.copy_(chosen)
        told = torch.where(finite, chosen, NOT_FINITE)
        self._ids.index_copy_(0, self._count[None], told[None])
        if self._seen is not None:
            self._seen.scatter_(1, chosen[:, None], True)
        self._count += 1


_PLAYERS: WeakKeyDictionary[GPT, _Player] = WeakKeyDictionary()
_CHOOSING = Lock()


def _player(decoder: GraphDecoder, rows: int, room: int, recorded: bool) -> _Player:
    """The model's last player if it fits and its decoder is gone or done, otherwise a new one.

    Recording takes as long as some sentences.
    """
    model, config = decoder.model, decoder.config
    with _CHOOSING:
        last = _PLAYERS.pop(model, None)
        owner = None if last is None or last.owner is None else last.owner()
        free = owner is None or owner is decoder or not owner.live or owner._left == 0
        fits = last is not None and (rows, room, config, recorded, _parameters(model)) == (
            *(last.rows, last.room, last.config, last.recorded, last.parameters),
        )
        if last is None or not (free and fits):
            last = None  # its memory goes first
            last = _Player(model, rows, room, config, recorded)
        last.owner, last.columns = ref(decoder), 0
        _PLAYERS[model] = last
        return last


def _parameters(model: GPT) -> tuple[Any, ...]:
    """What a recorded step has baked in: where each tensor lies, and the shape of the model."""
    tensors = (*model.parameters(), *model.buffers())
    return model.config, *((t.data_ptr(), t.dtype) for t in tensors)
