"""Random attention problems, and the exact answer to each in NumPy float64."""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from glasshead.attention import steps
from glasshead.attention.mask import ALLOW_ALL, Mask
from glasshead.attention.scores import PLAIN, Scoring

HALF = (torch.bfloat16, torch.float16)
DTYPES = (torch.float64, torch.float32, *HALF)


@dataclass
class Case:
    """A problem, small enough to print when it fails."""

    B: int = 2
    H: int = 3
    H_kv: int = 3
    T: int = 5
    S: int = 7
    D: int = 11
    dtype: torch.dtype = torch.float32
    size: float = 1.0  # how large queries are: 1 is ordinary, 100 gives huge scores
    mask_parts: tuple[str, ...] = ()
    score_parts: tuple[str, ...] = ()
    seed: int = 0
    tensors: list[Tensor] = field(default_factory=list, repr=False)
    mask: Mask = field(default=ALLOW_ALL, repr=False)
    scoring: Scoring = field(default=PLAIN, repr=False)

    def __post_init__(self) -> None:
        g = torch.Generator().manual_seed(self.seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=g, dtype=torch.float64).to(self.dtype)

        self.tensors = [
            normal(self.B, self.H, self.T, self.D) * self.size,
            normal(self.B, self.H_kv, self.S, self.D),
            normal(self.B, self.H_kv, self.S, self.D),
        ]
        parts = {
            "causal": lambda: Mask(causal=True),
            "window": lambda: Mask(window=3),
            "keys": lambda: Mask(keys=torch.rand(self.B, self.S, generator=g) > 0.4),
            "documents": lambda: Mask(
                documents=torch.randint(2, (self.B, self.S), generator=g).cumsum(1)
            ),
            "dense": lambda: Mask(
                dense=torch.rand(self.B, self.H, self.T, self.S, generator=g) > 0.6
            ),
            "dense-rows": lambda: Mask(dense=torch.rand(self.T, 1, generator=g) > 0.3),
        }
        for part in self.mask_parts:
            self.mask = self.mask & parts[part]()
        self.scoring = Scoring(
            softcap=2.5 if "softcap" in self.score_parts else None,
            slopes=torch.rand(self.H, generator=g).to(self.dtype)
            if "slopes" in self.score_parts
            else None,
            bias=normal(self.H, self.T, self.S) if "bias" in self.score_parts else None,
            scale=0.3 if "scale" in self.score_parts else None,
        )

    def exact(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Context, weights and lse by the four steps, written apart from the code under test."""
        group = self.H // self.H_kv
        q, k, v = (t.double().numpy() for t in self.tensors)
        k, v = k.repeat(group, 1), v.repeat(group, 1)
        scale = self.scoring.scale or 1 / math.sqrt(self.D)
        s = steps.scores(q, k) * scale
        if self.scoring.softcap is not None:
            s = self.scoring.softcap * np.tanh(s / self.scoring.softcap)
        if self.scoring.slopes is not None:
            distance = np.abs(np.arange(self.T)[:, None] + self.S - self.T - np.arange(self.S))
            s = s - self.scoring.slopes.double().numpy()[:, None, None] * distance
        if self.scoring.bias is not None:
            s = s + self.scoring.bias.double().numpy()
        allowed = self.allowed_one_by_one()
        s = steps.mask(s, allowed)
        weights = steps.softmax(s)
        lse = np.logaddexp.reduce(s, axis=-1, initial=-np.inf)
        return steps.weighted_sum(weights, v), weights, lse

    def allowed_one_by_one(self) -> np.ndarray:
        """The mask by its definition, a pair at a time."""
        m = self.mask
        allowed = np.ones((self.B, self.H, self.T, self.S), dtype=bool)
        for b, h, t, j in np.ndindex(*allowed.shape):
            i = self.S - self.T + t
            if m.causal and j > i:
                allowed[b, h, t, j] = False
            if m.window is not None and abs(i - j) >= m.window:
                allowed[b, h, t, j] = False
            if m.keys is not None and not m.keys[b, j]:
                allowed[b, h, t, j] = False
            if m.documents is not None and m.documents[b, i] != m.documents[b, j]:
                allowed[b, h, t, j] = False
        if m.dense is not None:
            allowed &= np.broadcast_to(m.dense.numpy(), allowed.shape)
        return allowed


def cases(
    dtypes: tuple[torch.dtype, ...] = DTYPES,
    score_parts: tuple[str, ...] = ("softcap", "slopes", "bias", "scale"),
    least: int = 0,
) -> st.SearchStrategy[Case]:
    @st.composite
    def build(draw: st.DrawFn) -> Case:
        H_kv = draw(st.sampled_from([1, 2, 3]))
        T, S = (draw(st.sampled_from([n for n in (0, 1, 2, 5, 13) if n >= least])) for _ in "TS")
        mask_parts = draw(
            st.sets(
                st.sampled_from(["causal", "window", "keys", "documents", "dense", "dense-rows"]),
                max_size=3,
            )
        )
        if T > S:
            mask_parts -= {"documents"}
        dtype = draw(st.sampled_from(dtypes))
        return Case(
            B=draw(st.sampled_from([1, 2, 3])),
            H=H_kv * draw(st.sampled_from([1, 2, 5])),
            H_kv=H_kv,
            T=T,
            S=S,
            D=draw(st.sampled_from([1, 2, 7, 16])),
            dtype=dtype,
            size=draw(st.sampled_from([0.01, 1.0, 100.0])),
            mask_parts=tuple(sorted(mask_parts)),
            score_parts=tuple(sorted(draw(st.sets(st.sampled_from(score_parts), max_size=3))))
            if score_parts
            else (),
            seed=draw(st.integers(0, 2**16)),
        )

    return build()
