"""Batches: a pure function of seed and step, and every pair once an epoch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glasshead.errors import ConfigError, InputError
from glasshead.text.batches import CHUNK, PairBatches, TextBatches

PAD, BOS, EOS = 0, 1, 2


def text_batches(n=997, batch_size=5, block=7, seed=3):
    return TextBatches(np.arange(n, dtype=np.uint16), batch_size=batch_size, block=block, seed=seed)


def same(one, other):
    pairs = zip(vars(one).values(), vars(other).values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@given(
    n=st.integers(2, 300),
    batch_size=st.integers(1, 7),
    block=st.integers(1, 40),
    seed=st.integers(0, 2**64 - 1),
    step=st.integers(0, 10**9),
)
def test_a_batch_is_windows_of_the_text_and_their_next_ids(n, batch_size, block, seed, step):
    block = min(block, n - 1)
    batch = text_batches(n, batch_size, block, seed).at(step)
    assert batch.ids.shape == batch.targets.shape == (batch_size, block)
    assert batch.ids.dtype == batch.targets.dtype == torch.int64
    assert batch.ids.is_contiguous()
    assert batch.targets.is_contiguous()
    # The text counts up, so each window does, and its targets are one more.
    assert torch.equal(batch.ids, batch.ids[:, :1] + torch.arange(block))
    assert torch.equal(batch.targets, batch.ids + 1)
    assert batch.ids.min() >= 0
    assert batch.targets.max() < n


@given(st.lists(st.integers(0, 5 * CHUNK), min_size=1, max_size=20))
def test_a_batch_does_not_depend_on_what_was_asked_before(steps):
    used = text_batches()
    for step in steps:
        assert same(used.at(step), text_batches().at(step))


def test_every_window_is_drawn_about_equally_often():
    batches = text_batches(n=23, batch_size=11, block=4)
    starts = torch.cat([batches.at(step).ids[:, 0] for step in range(1000)])
    counts = torch.bincount(starts)
    assert len(counts) == 19
    assert counts.min() > 0.8 * 11_000 / 19
    assert counts.max() < 1.2 * 11_000 / 19


def test_steps_and_seeds_differ():
    batches = text_batches()
    seen = {tuple(batches.at(step).ids[:, 0].tolist()) for step in range(3 * CHUNK)}
    assert len(seen) == 3 * CHUNK
    assert not same(batches.at(0), text_batches(seed=4).at(0))


def philox(key, n):
    """Philox4x64-10 in whole numbers, by its published rounds; NumPy counts from 1."""
    words, full = [], 2**64
    for counter in range(1, -(-n // 4) + 1):
        c, (k0, k1) = [counter, 0, 0, 0], key
        for _ in range(10):
            left, right = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
            c = [right // full ^ c[1] ^ k0, right % full, left // full ^ c[3] ^ k1, left % full]
            k0, k1 = (k0 + 0x9E3779B97F4A7C15) % full, (k1 + 0xBB67AE8584CAA73B) % full
        words += c
    return words[:n]


@pytest.mark.parametrize("step", [0, 1, CHUNK - 1, CHUNK, 3 * CHUNK + 5])
def test_offsets_are_philox_numbers_and_so_the_same_on_every_machine(step):
    chunk, row = divmod(step, CHUNK)
    words = philox((3, chunk), CHUNK * 5)[row * 5 : row * 5 + 5]
    assert text_batches().at(step).ids[:, 0].tolist() == [word % (997 - 7) for word in words]


def test_a_memory_mapped_text_gives_the_same_batches(tmp_path):
    ids = np.arange(997, dtype=np.uint16)
    ids.tofile(tmp_path / "ids")
    mapped = np.memmap(tmp_path / "ids", np.uint16, "r")
    batches = TextBatches(mapped, batch_size=5, block=7, seed=3)
    assert same(batches.at(13), text_batches().at(13))


def test_fixed_batches_span_the_text_and_stay():
    batches = text_batches()
    fixed = batches.evenly_spaced(3)
    assert len(fixed) == 3
    starts = torch.cat([batch.ids[:, 0] for batch in fixed])
    assert starts[0] == 0
    assert fixed[-1].targets[-1, -1] == 996
    gaps = starts.diff()
    assert gaps.max() - gaps.min() <= 1
    batches.at(17)
    other = text_batches(seed=99).evenly_spaced(3)
    assert all(same(one, again) for one, again in zip(fixed, other, strict=True))


def test_fixed_batches_of_a_text_of_one_window_repeat_it():
    fixed = text_batches(n=8, batch_size=2).evenly_spaced(2)
    assert all(batch.ids.tolist() == [[*range(7)]] * 2 for batch in fixed)


def test_a_text_that_is_too_short_is_an_error_with_its_numbers():
    with pytest.raises(InputError, match=r"has 7 ids, but a block of 7 .* need 8") as caught:
        text_batches(n=7)
    assert "at most 6" in caught.value.hint
    with pytest.raises(ConfigError, match=r"block \(0\)"):
        text_batches(block=0)
    with pytest.raises(ConfigError, match=r"step \(-1\)"):
        text_batches().at(-1)


rows = st.lists(
    st.tuples(
        st.lists(st.integers(3, 99), min_size=1, max_size=12),
        st.lists(st.integers(3, 99), max_size=12),
    ),
    min_size=1,
    max_size=60,
)


def pair_batches(pairs, max_tokens=40, seed=3, **options):
    source, target = zip(*pairs, strict=True)
    return PairBatches(
        *(source, target), max_tokens=max_tokens, seed=seed, pad=PAD, bos=BOS, eos=EOS, **options
    )


def unpadded(row):
    """The ids before the padding, which may only stand at the end."""
    ids = row.tolist()
    length = ids.index(PAD) if PAD in ids else len(ids)
    assert set(ids[length:]) <= {PAD}
    return ids[:length]


@given(pairs=rows, epoch=st.integers(0, 3), seed=st.integers(0, 2**64 - 1))
def test_every_pair_comes_once_an_epoch_whole(pairs, epoch, seed):
    batches = pair_batches(pairs, seed=seed)
    seen = []
    for index in range(batches.steps_per_epoch):
        step = epoch * batches.steps_per_epoch + index
        batch = batches.at(step)
        assert {t.dtype for t in vars(batch).values()} == {torch.int64}
        for source, inside, outside in zip(
            batch.source, batch.target_in, batch.target_out, strict=True
        ):
            target = unpadded(inside)
            assert target[0] == BOS
            assert unpadded(outside) == [*target[1:], EOS]
            seen.append((unpadded(source), target[1:]))
    assert sorted(seen) == sorted(pairs)


@given(pairs=rows, max_tokens=st.integers(13, 99))
def test_a_batch_keeps_to_its_budget_and_wastes_none(pairs, max_tokens):
    batches = pair_batches(pairs, max_tokens)
    found = [batches.at(step) for step in range(batches.steps_per_epoch)]
    costs = [max(b.source.shape[1], b.target_in.shape[1]) * len(b.source) for b in found]
    assert max(costs) <= max_tokens
    for batch in found:  # no wider than its longest row
        assert max(len(unpadded(row)) for row in batch.source) == batch.source.shape[1]
        assert max(len(unpadded(row)) for row in batch.target_in) == batch.target_in.shape[1]
    sizes = sorted(max(len(source), len(target) + 1) for source, target in pairs)
    assert sorted(len(batch.source) for batch in found) == sorted(filled(sizes, max_tokens))


def filled(sizes, max_tokens):
    """The rows of each batch, one pair at a time: the plain way to fill a budget."""
    rows_of, rows_now = [], 0
    for size in sizes:
        if rows_now and size * (rows_now + 1) > max_tokens:
            rows_of.append(rows_now)
            rows_now = 0
        rows_now += 1
    return [*rows_of, rows_now]


@given(pairs=rows, steps=st.lists(st.integers(0, 40), min_size=1, max_size=9))
def test_a_pair_batch_does_not_depend_on_what_was_asked_before(pairs, steps):
    used = pair_batches(pairs)
    for step in steps:
        assert same(used.at(step), pair_batches(pairs).at(step))


def many(n):
    """Pairs of 1 to 29 ids, all different."""
    draw = np.random.default_rng(0)
    lengths = draw.integers(1, 30, size=(n, 2))
    return [
        (draw.integers(3, 9999, left), draw.integers(3, 9999, right)) for left, right in lengths
    ]


def test_epochs_differ_in_order_and_in_company():
    batches = pair_batches(many(499), max_tokens=300)
    n = batches.steps_per_epoch
    first, second = ([batches.at(e * n + i) for i in range(n)] for e in (0, 1))

    def widths(epoch):
        return [max(batch.source.shape[1], batch.target_in.shape[1]) for batch in epoch]

    def companies(epoch):
        return {frozenset(tuple(unpadded(row)) for row in batch.source) for batch in epoch}

    assert widths(first) != widths(second)
    assert widths(first) != sorted(widths(first))
    assert len(companies(first) & companies(second)) < n / 2


def test_many_pairs_fill_their_batches_well():
    pairs = many(5_000) * 10
    batches = pair_batches(pairs, max_tokens=4096)
    batches.at(0)
    used = sum(max(len(source), len(target) + 1) for source, target in pairs)
    assert used / (batches.steps_per_epoch * 4096) > 0.97


def test_a_pair_over_the_budget_is_named_by_its_line():
    pairs = [([3], [4]), ([3] * 5, [4] * 12), ([3], [4])]
    with pytest.raises(InputError, match=r"line 2 is longer than max_tokens \(12\): 5 and 13 ids"):
        pair_batches(pairs, 12)
    with pytest.raises(InputError, match="line 171 is longer"):
        pair_batches(pairs, 12, lines=[170, 171, 172])
    assert pair_batches(pairs, 13).steps_per_epoch == 2


def test_pairs_that_cannot_be_are_errors():
    with pytest.raises(InputError, match="line 2 has an empty source"):
        pair_batches([([3], [4]), ([], [4])])
    with pytest.raises(InputError, match="2 sources and 1 targets"):
        PairBatches([[3], [4]], [[5]], max_tokens=9, seed=0, pad=0, bos=1, eos=2)
    with pytest.raises(InputError, match="0 sources and 0 targets"):
        PairBatches([], [], max_tokens=9, seed=0, pad=0, bos=1, eos=2)
