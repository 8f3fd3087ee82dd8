"""Each named mistake: which steps of the reference it replaces, and where in a source it shows.

To add one: its ways in `_WAYS`, made of `wrong_steps.py`; its texts in `report.toml`; and an edit
that makes it in `tests/lab/check/sources.py`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from glasshead.lab.check import pipeline as p
from glasshead.lab.check import wrong_shapes as shapes
from glasshead.lab.check import wrong_steps as wrong
from glasshead.lab.check.pipeline import Step

__all__ = ["MISTAKES", "Mistake", "pairs"]


@dataclass(frozen=True)
class Mistake:
    name: str
    steps: Mapping[str, Step]
    family: str = ""  # "causal", "rotary", "alibi": shows only where the target is meant to be so

    def __add__(self, other: "Mistake") -> "Mistake":
        both = {**self.steps, **other.steps}
        return Mistake(f"{self.name}+{other.name}", both, _either(self.family, other.family))


ROTATIONS = ("halves", "pairs", "")

_WAYS: dict[str, list[dict[str, Step]]] = {
    "scale-missing": [
        {"scale": wrong.do_nothing},
    ],
    "scale-doubled": [
        {"scale": wrong.scale_by(lambda w: 1 / w.q.shape[-1])},
    ],
    "scale-multiplied": [
        {"scale": wrong.scale_by(lambda w: w.q.shape[-1] ** 0.5)},
    ],
    "scale-model-width": [
        {"scale": wrong.scale_by(lambda w: w.width**-0.5)},
        {"scale": wrong.scale_by(lambda w: w.case.q.shape[-1] ** -0.5)},
    ],
    "scale-length": [
        {"scale": wrong.scale_by(lambda w: w.case.sizes[2] ** -0.5)},
        {"scale": wrong.scale_by(lambda w: w.case.sizes[1] ** -0.5)},
    ],
    "scale-wrong": [
        {"scale": wrong.scale_by(lambda w: w.q.shape[1] ** -0.5)},
        {"scale": wrong.scale_by(lambda w: w.q.shape[-1] ** -2.0)},
        {"scale": wrong.scale_by(lambda w: 1 / w.width)},
        {"scale": wrong.scale_by(lambda w: float(w.q.shape[-1]))},
    ],
    "scale-after-softmax": [
        {"scale": wrong.do_nothing, "normalize": wrong.scale_after},
        {"normalize": wrong.scale_after},
    ],
    "causal-missing": [
        {"allow": wrong.causal_as(lambda w: np.array(True))},
    ],
    "causal-start-aligned": [
        {"allow": wrong.causal_as(wrong.align_to_start)},
    ],
    "causal-strict": [
        {"allow": wrong.causal_as(lambda w: p.causal_mask(w, -1))},
        {"allow": wrong.causal_as(lambda w: wrong.align_to_start(w, -1))},
    ],
    "causal-leaks-next": [
        {"allow": wrong.causal_as(lambda w: p.causal_mask(w, 1))},
        {"allow": wrong.causal_as(lambda w: wrong.align_to_start(w, 1))},
    ],
    "causal-inverted": [
        {"allow": wrong.causal_as(lambda w: ~p.causal_mask(w))},
        {"allow": wrong.causal_as(lambda w: ~p.causal_mask(w, -1))},
        {"allow": wrong.causal_as(lambda w: ~wrong.align_to_start(w))},
        {"allow": wrong.causal_as(lambda w: ~wrong.align_to_start(w, -1))},
    ],
    "mask-ignored": [
        {"allow": wrong.caller_as(lambda w: np.array(True))},
    ],
    "mask-inverted": [
        {"allow": wrong.caller_as(wrong.invert_mask)},
        *({"mask": wrong.mask_by(change(1e9), "caller")} for change in (wrong.fill, wrong.lower)),
    ],
    "padding-on-queries": [
        {"allow": wrong.caller_as(wrong.hide_padded_queries)},
    ],
    "mask-transposed": [
        {"allow": wrong.caller_as(wrong.transpose_mask)},
    ],
    "window-off-by-one": [
        {"allow": wrong.allow_by(wrong.widen_window)},
        {"allow": wrong.allow_by(wrong.narrow_window)},
    ],
    "mask-after-softmax": [
        {"mask": wrong.do_nothing, "normalize": wrong.mask_after(part)} for part in wrong.PARTS
    ],
    "mask-multiplied": [{"mask": wrong.mask_by(wrong.multiply, part)} for part in wrong.PARTS],
    "mask-added": [
        {"mask": wrong.mask_by(change, part)}
        for change in (wrong.add, wrong.add_inverted)
        for part in wrong.PARTS
    ],
    "mask-fill-weak": [
        {"mask": wrong.mask_by(change(value), part)}
        for value in (-1.0, -5.0, -10.0, 1.0)
        for change in (wrong.fill, wrong.lower)
        for part in wrong.PARTS
    ],
    "softmax-over-queries": [
        {"normalize": wrong.softmax_over(-2)},
        {"normalize": wrong.divide_by_sum_over(-2)},
    ],
    "mask-nan": [{"mask": wrong.nan_mask(part)} for part in wrong.PARTS],
    "mask-heads-order": [
        {"allow": wrong.caller_as(wrong.repeat_mask_by_batch)},
    ],
    "keys-skipped": [
        {"allow": wrong.allow_by(wrong.skip_key(0))},
        {"allow": wrong.allow_by(wrong.skip_key(-1))},
    ],
    "softmax-over-heads": [
        {"normalize": wrong.softmax_over(1, -1)},
        {"normalize": wrong.softmax_over(1)},
        {"normalize": wrong.divide_by_sum_over(1)},
    ],
    "softmax-over-batch": [
        {"normalize": wrong.softmax_over(0)},
        {"normalize": wrong.divide_by_sum_over(0)},
    ],
    "softmax-over-all": [
        {"normalize": wrong.softmax_over(-2, -1)},
    ],
    "softmax-missing": [
        {"normalize": wrong.softmax_missing},
        {"normalize": wrong.ratio},
        {"normalize": wrong.sum_missing},
    ],
    "softmax-twice": [
        {"normalize": wrong.softmax_twice},
    ],
    "heads-split": [
        {"split": wrong.split_by_view},
        {"split": wrong.split_by_view, "merge": wrong.merge_by_view},
    ],
    "heads-merge": [
        {"merge": wrong.merge_by_view},
    ],
    "heads-merge-order": [
        {"merge": wrong.merge_interleaved},
        {"split": wrong.split_interleaved},
    ],
    "heads-batch-mixed": [
        {"merge": wrong.merge_batch_last},
        {"merge": wrong.merge_heads_first},
        {
            "split": wrong.attend_across_batch,
            "allow": wrong.allow_all,
            "merge": wrong.merge_across_batch,
        },
        {"compare": wrong.compare_with_all_sequences},
        {"mix": wrong.mix_all_sequences},
    ],
    "heads-averaged": [
        {"normalize": wrong.average_weights},
        {"merge": wrong.average_heads},
        {"merge": wrong.sum_heads},
    ],
    "heads-mixed": [
        {"repeat": shapes.sum_key_heads},
        {"repeat": shapes.one_key_head("k")},
        {"repeat": shapes.one_key_head("v")},
        {"repeat": shapes.one_key_head("kv")},
    ],
    "heads-split-differs": [
        {"split": shapes.split_one_interleaved(of)} for of in ("q", "k", "v", "qk")
    ],
    "heads-for-positions": [
        {
            "repeat": shapes.swap_heads_and_positions,
            "allow": wrong.allow_all,
            "mix": shapes.mix_swapped,
        },
        {
            "split": shapes.split_without_swap,
            "allow": wrong.allow_all,
            "merge": shapes.merge_without_swap,
        },
    ],
    "gqa-order": [
        {"repeat": wrong.tile},
        {"repeat": wrong.tile_keys},
        {"repeat": wrong.tile_values},
    ],
    "qk-swapped": [
        {"compare": wrong.swap_queries_and_keys},
    ],
    "k-not-transposed": [
        {"compare": wrong.view_key},
        {"compare": wrong.features, "allow": wrong.do_nothing, "mix": wrong.mix_features},
    ],
    "weights-transposed": [
        {"mix": wrong.mix_transposed},
        {"mix": wrong.mix_transposed_if_square},
    ],
    "values-not-weighted": [
        {"mix": wrong.sum_values},
    ],
    "values-from-keys": [
        {"mix": wrong.values("k")},
        {"mix": wrong.values("q")},
        {"project": wrong.project_as(v="vk")},
        {"project": wrong.project_as(v="vq")},
    ],
    "keys-from-queries": [
        {"project": wrong.project_as(k="kq")},
        {"project": wrong.project_as(q="qk")},
    ],
    "kv-swapped": [
        {"project": wrong.project_as(k="vk", v="kv")},
        {"project": wrong.project_as(k="kv", v="vk")},
        {"project": wrong.project_as(k="vv", v="kk")},
        {"repeat": wrong.swap_keys_and_values},
    ],
    "inputs-not-projected": [
        {"project": wrong.project_as("q", "k", "v")},
        {"project": wrong.project_as("q", "k")},
        {"project": wrong.project_as(k="k", v="v")},
        {"project": wrong.project_as("q", v="v")},
    ],
    "rotary-mixed": [
        {"position": shapes.rotate_by(q, k)}
        for q in ROTATIONS
        for k in ROTATIONS
        if q != k and "" not in (q, k)
    ]
    + [
        {"position": shapes.rotate_by("mixed", "mixed")},
        {"position": shapes.rotate_by("mixed-pairs", "mixed-pairs")},
    ],
    "rotary-one-side": [
        {"position": shapes.rotate_by(*pair)}
        for turn in ROTATIONS
        if turn
        for pair in ((turn, ""), ("", turn))
    ],
    "rotary-on-values": [
        {"position": shapes.rotate_by(turn, turn, turn)} for turn in ROTATIONS if turn
    ],
    "rotary-opposite": [
        {"position": shapes.rotate_by(turn, turn, sign=-1.0)} for turn in ROTATIONS if turn
    ],
    "rotary-not-offset": [
        {"position": step}
        for turn in ROTATIONS
        if turn
        for step in (
            shapes.rotate_by(turn, turn, offset=False),
            shapes.rotate_from_zero(turn, of="qk"),
            shapes.rotate_from_zero(turn, of="k"),
        )
    ],
    "cache-order": [
        {"allow": shapes.new_keys_first},
    ],
    "cache-ignored": [
        {"allow": shapes.forget_cached_keys},
    ],
    "rotary-axis": [
        {"position": shapes.rotate_by(turn, turn, along_heads=True)} for turn in ROTATIONS if turn
    ],
    "alibi-sign": [
        {"bias": shapes.alibi_gains},
    ],
    "softcap-order": [
        {"bias": wrong.do_nothing, "mask": shapes.cap_after_mask},
        {"scale": shapes.cap_before_scale, "bias": wrong.do_nothing},
    ],
    "values-not-projected": [
        {"project": wrong.project_as(v="v")},
    ],
    "keys-not-projected": [
        {"project": wrong.project_as(k="k")},
    ],
    "queries-not-projected": [
        {"project": wrong.project_as(q="q")},
    ],
    "output-not-projected": [
        {"project_out": wrong.do_nothing},
    ],
    "cross-from-x": [
        wrong.cross_from_x(True, True),
        wrong.cross_from_x(True, False),
        wrong.cross_from_x(False, True),
    ],
    "cross-swapped": [
        {"project": wrong.project_as(q="kq", k="qk", v="qv")},
    ],
}
# The order matters: the first that explains what was seen is reported.
MISTAKES = [
    Mistake(name, steps, name.partition("-")[0]) for name, ways in _WAYS.items() for steps in ways
]


def _either(one: str, other: str) -> str:
    return next((each for each in (one, other) if each in _CONDITIONAL), one)


_CONDITIONAL = ("rotary", "alibi", "causal")


def pairs() -> Iterator[Mistake]:
    """Yield each two mistakes that replace different steps, made in their most usual ways."""
    usual = list({each.name: each for each in reversed(MISTAKES)}.values())[::-1]
    for n, one in enumerate(usual):
        for other in usual[n + 1 :]:
            if not (one.steps.keys() & other.steps.keys()):
                yield one + other
