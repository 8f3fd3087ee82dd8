"""Each named mistake: which steps of the reference it replaces, and where in a source it shows.

To add one: its ways in `_WAYS`, made of `wrong_steps.py`; its texts in `report.toml`; and an edit
that makes it in `tests/lab/check/sources.py`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from glasshead.lab.check import pipeline as p
from glasshead.lab.check import wrong_shapes as shapes
from glasshead.lab.check import wrong_softmax as sums
from glasshead.lab.check import wrong_steps as wrong
from glasshead.lab.check.pipeline import Step
from glasshead.lab.check.target import SIZES
from glasshead.lab.check.variants import rotary

__all__ = ["MISTAKES", "USUAL", "Mistake", "pairs"]


@dataclass(frozen=True)
class Mistake:
    name: str
    steps: Mapping[str, Step]
    family: str = ""  # "causal", "rotary", "alibi": shows only where the target is meant to be so

    def __add__(self, other: "Mistake") -> "Mistake":
        both = {**self.steps, **other.steps}
        return Mistake(f"{self.name}+{other.name}", both, _either(self.family, other.family))


ROTATIONS = ("halves", "pairs")
FUSED = ("3BHTD", "3BTHD", "B3HTD", "B3THD", "BHTD3", "BH3TD", "BHT3D", "BHD3T")

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
    "mask-multiplied": [
        {"mask": wrong.mask_by(change, part)}
        for change in (wrong.multiply, sums.multiply_added)
        for part in wrong.PARTS
    ],
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
    "empty-slots": [
        {"normalize": sums.empty_slots(SIZES["max_len"])},
    ],
    "keys-skipped": [
        {"allow": wrong.allow_by(wrong.skip_key(0))},
        {"allow": wrong.allow_by(wrong.skip_key(-1))},
        *({"allow": wrong.allow_by(shapes.keep_whole_blocks(n))} for n in range(2, 9)),
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
    "softmax-other-rows": [
        {"normalize": sums.divide_by_other_rows(whole)} for whole in (False, True)
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
    "softmax-not-rescaled": [
        {"normalize": sums.online(block, values, total)}
        for block in range(1, 5)
        for values, total in ((True, False), (False, True), (True, True))
    ],
    "sink-wrong": [
        {"normalize": sums.sink(counts, shifted)}
        for counts, shifted in ((True, False), (False, False), (False, True))
    ],
    "heads-split": [
        {"split": wrong.split_by_view},
        {"split": wrong.split_by_view, "merge": wrong.merge_by_view},
        *({"split": shapes.split_fused(axes)} for axes in FUSED),
        *({"split": shapes.split_as(axes)} for axes in ("HDT", "DHT", "DTH")),
    ],
    "heads-merge": [
        {"merge": wrong.merge_by_view},
        *({"merge": shapes.merge_as(axes)} for axes in ("BHDT", "BDTH", "BDHT")),
        *({"merge": shapes.merge_time_first(axes)} for axes in ("BHTD", "HBTD", "BTHD")),
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
        {"compare": shapes.sum_scores_of_heads},
        {"merge": shapes.first_head_only},
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
        {"position": shapes.rotate_by(q, k, offset=offset)}
        for q, k in (("halves", "pairs"), ("pairs", "halves"), ("mixed",) * 2, ("mixed-pairs",) * 2)
        for offset in (True, False)
    ],
    "rotary-one-side": [
        {"position": shapes.rotate_by(*pair, offset=offset)}
        for turn in ROTATIONS
        for pair in ((turn, ""), ("", turn))
        for offset in (True, False)
    ],
    "rotary-on-values": [
        {"position": shapes.rotate_by(turn, turn, turn, offset=offset)}
        for turn in ROTATIONS
        for offset in (True, False)
    ],
    "rotary-opposite": [
        {"position": shapes.rotate_by(turn, turn, sign=-1.0, offset=offset)}
        for turn in ROTATIONS
        for offset in (True, False)
    ],
    "rotary-no-rotation": [
        {"position": shapes.rotate_by(style, style, offset=offset)}
        for style in ("halves-plus", "pairs-plus")
        for offset in (True, False)
    ],
    "rotary-frequencies": [
        {"position": rotary(turn, base, offset)}
        for turn in ROTATIONS
        for base in (1e2, 1e8, 1e-4)
        for offset in (True, False)
    ],
    "rotary-not-offset": [
        {"position": step}
        for turn in ROTATIONS
        for step in (
            shapes.rotate_by(turn, turn, offset=False),
            shapes.rotate_from_zero(turn, of="qk"),
            shapes.rotate_from_zero(turn, of="k"),
        )
    ],
    "rotary-twice": [{"position": shapes.rotate_again(turn)} for turn in ROTATIONS],
    "cache-not-grown": [
        {"allow": shapes.forget_earlier_pieces},
    ],
    "cache-order": [
        {"allow": shapes.new_keys_first},
    ],
    "cache-ignored": [
        {"allow": shapes.forget_cached_keys},
    ],
    "rotary-axis": [
        {"position": shapes.rotate_by(turn, turn, along_heads=True)} for turn in ROTATIONS
    ],
    "alibi-sign": [
        {"bias": shapes.alibi_gains},
    ],
    "alibi-slopes": [
        {"bias": shapes.alibi_with(slopes)}
        for slopes in (
            lambda h, H: 2.0 ** (-8.0 * h / H),
            lambda h, H: 2.0 ** -(h + 1.0),
            lambda h, H: 2.0 ** -h.astype(float),
            lambda h, H: 2.0 ** (-8.0 / (h + 1)),
            lambda h, H: 1.0 / (h + 1),
            lambda h, H: np.full(H, 2.0 ** (-8.0 / H)),
            lambda h, H: 2.0 ** (-8.0 * (H - h) / H),
        )
    ],
    "relative-backwards": [
        {"bias": shapes.relative_backwards},
    ],
    "norm-axis": [
        {"position": shapes.normalize_positions},
    ],
    "softcap-formula": [
        {"bias": shapes.cap_as(lambda s, cap: np.tanh(s / cap))},
        {"bias": shapes.cap_as(lambda s, cap: np.tanh(s) * cap)},
        {"bias": shapes.cap_as(lambda s, cap: np.clip(s, -cap, cap))},
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
    "bias-mixed": [
        {"project": shapes.bias_from(**{to: source})}
        for to in "qv"  # the keys' bias has no effect
        for source in ("q", "k", "v", "")
        if to != source
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

USUAL = list({each.name: each for each in reversed(MISTAKES)}.values())[::-1]  # one way of each


def _either(one: str, other: str) -> str:
    return next((each for each in (one, other) if each in _CONDITIONAL), one)


_CONDITIONAL = ("rotary", "norm", "sink", "relative", "alibi", "causal")


def pairs(some: Iterable[Mistake], others: Iterable[Mistake]) -> Iterator[Mistake]:
    """Yield one mistake of each, together, where they replace different steps."""
    rest = list(others)
    seen: set[frozenset[int]] = set()
    for one in some:
        for other in rest:
            both = frozenset((id(one), id(other)))
            if both not in seen and not (one.steps.keys() & other.steps.keys()):
                seen.add(both)
                yield one + other
