"""Searching: by the book, the same in a batch, with caches and padding, and over when it can be."""

import functools
import itertools
import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glasshead.errors import ConfigError, InputError, NotFiniteError
from glasshead.generation.beam import (
    LONGER,
    Hypothesis,
    SearchConfig,
    greedy,
    greedy_decoder,
    penalty,
    search,
)
from glasshead.generation.translation_rows import SpecialTokens
from glasshead.model.transformer import Transformer
from glasshead.text.tokenizer import ByteTokenizer
from tests.generation.translators import (
    BOS,
    EOS,
    MARKS,
    MAX_LEN,
    PAD,
    SPECIALS,
    VOCAB,
    models,
    sources,
    tiny,
)

SHORT = 9
configs = st.builds(
    SearchConfig,
    beam=st.integers(1, 5),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 2.5]),
    max_tokens=st.sampled_from([1, 2, SHORT]),
)


@torch.no_grad()
def log_probs(model: Transformer, source: Sequence[int], ids: tuple[int, ...]) -> list[float]:
    """Of every next id, by nothing but a forward pass."""
    logits = model.eval()(torch.tensor([source]), torch.tensor([[BOS, *ids]]))[0, -1]
    return logits.log_softmax(-1).tolist()


def by_the_book(
    model: Transformer, source: list[int], config: SearchConfig, n_best: int
) -> list[Hypothesis]:
    """Beam search of one source that keeps every translation to the end and drops none."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    done: list[Hypothesis] = []
    for n in range(1, config.max_tokens + 1):
        longer = []
        for total, ids in live:
            each = log_probs(model, source, ids)
            longer += [(total + each[i], ids, i) for i in range(VOCAB) if i not in MARKS.never]
        longer.sort(key=lambda one: -one[0])
        live = []
        for total, ids, token in longer[: config.beam]:
            if token == EOS or n == config.max_tokens:
                ended = token == EOS
                kept = ids if ended else (*ids, token)
                score = total / ((5 + n) / 6) ** config.alpha
                done.append(Hypothesis(kept, total, score, ended))
            else:
                live.append((total, (*ids, token)))
    return sorted(done, key=lambda one: (not one.ended, -one.score))[:n_best]


def same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> bool:
    """Equal ids; numbers to the rounding of another order of sums."""
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one, other, strict=True):
            assert (a.ids, a.ended) == (b.ids, b.ended)
            assert a.log_prob == pytest.approx(b.log_prob, abs=1e-9)
            assert a.score == pytest.approx(b.score, abs=1e-9)
    return True


@settings(max_examples=20)
@given(models, sources, configs, st.data())
def test_the_search_is_that_of_the_book_though_it_stops_early(model, source, config, data):
    n_best = data.draw(st.integers(1, config.beam))
    found = search(model, [source], MARKS, config, n_best)
    assert same(found, [by_the_book(model, source, config, n_best)])


@settings(max_examples=20)
@given(models, st.lists(sources, min_size=1, max_size=5), configs)
def test_greedy_equals_a_beam_of_one(model, batch, config):
    one = SearchConfig(1, config.alpha, config.max_tokens)
    assert [[best] for best in greedy(model, batch, MARKS, config)] == search(
        model, batch, MARKS, one
    )


@settings(max_examples=20)
@given(models, st.lists(sources, min_size=2, max_size=6), configs, st.sampled_from([None, 1, 40]))
def test_a_batch_of_any_lengths_equals_one_by_one(model, batch, config, read):
    alone = [search(model, [source], MARKS, config, config.beam)[0] for source in batch]
    assert same(search(model, batch, MARKS, config, config.beam, read=read), alone)
    alone = [greedy(model, [source], MARKS, config) for source in batch]
    assert same([[best] for best in greedy(model, batch, MARKS, config, read=read)], alone)


@settings(max_examples=20)
@given(models, st.lists(sources, min_size=1, max_size=4), configs)
def test_the_caches_change_no_translation(model, batch, config):
    cached = search(model, batch, MARKS, config, config.beam)
    assert same(cached, search(model, batch, MARKS, config, config.beam, cached=False))
    cached = greedy(model, batch, MARKS, config)
    slow = greedy(model, batch, MARKS, config, cached=False)
    assert same([cached], [slow])


@settings(max_examples=20)
@given(models, st.lists(st.tuples(sources, st.integers(0, 7), st.integers(0, 7)), min_size=1,
                        max_size=4), configs)  # fmt: skip
def test_padding_on_either_side_changes_no_translation(model, padded, config):
    bare = [source for source, _, _ in padded]
    batch = [[PAD] * left + source + [PAD] * right for source, left, right in padded]
    assert same(search(model, batch, MARKS, config), search(model, bare, MARKS, config))
    assert same([greedy(model, batch, MARKS, config)], [greedy(model, bare, MARKS, config)])


@settings(max_examples=20)
@given(models, sources, configs)
def test_the_best_are_distinct_sorted_and_true_to_the_model(model, source, config):
    [found] = search(model, [source], MARKS, config, config.beam)
    assert len({(one.ids, one.ended) for one in found}) == len(found)
    assert found == sorted(found, key=lambda one: (not one.ended, -one.score))
    for one in found:
        whole = (*one.ids, EOS) if one.ended else one.ids
        each = [log_probs(model, source, whole[:n])[token] for n, token in enumerate(whole)]
        assert one.log_prob == pytest.approx(math.fsum(each), abs=1e-9)
        assert one.score == pytest.approx(one.log_prob / penalty(len(whole), config.alpha))
        assert not {PAD, BOS, EOS} & {*one.ids}


@settings(max_examples=10)
@given(
    st.builds(tiny, st.integers(0, 999), st.sampled_from([1.0, 3.0]), vocab_size=st.just(6)),
    st.lists(st.integers(3, 5), min_size=1, max_size=5),
    st.sampled_from([0.0, 0.6, 3.0]),
)
def test_a_beam_as_wide_as_everything_finds_the_best_of_all(model, source, alpha):
    """All translations of three words and at most four tokens, one by one, are the judge."""
    length, every = 4, []
    each = functools.cache(functools.partial(log_probs, model, tuple(source)))
    for n in range(length):
        for ids in itertools.product(range(3, 6), repeat=n):
            whole = (*ids, EOS)
            total = math.fsum(each(whole[:i])[token] for i, token in enumerate(whole))
            every.append((total / penalty(n + 1, alpha), ids))
    every.sort(key=lambda one: -one[0])
    config = SearchConfig(4**length, alpha, length)
    [found] = search(model, [source], MARKS, config, n_best=7)
    assert [one.ids for one in found] == [ids for _, ids in every[:7]]
    assert [one.score for one in found] == pytest.approx([score for score, _ in every[:7]])
    [first] = greedy(model, [source], MARKS, config)
    assert not first.ended or first.score <= found[0].score + 1e-12


def test_a_wider_beam_finds_what_greedy_misses():
    better = 0
    for seed in range(20):
        model = tiny(seed, sharp=3.0)
        bare = SearchConfig(8, 0.0, SHORT)
        [one], [[wide]] = greedy(model, [[5, 7]], MARKS, bare), search(model, [[5, 7]], MARKS, bare)
        better += wide.ended and one.ended and wide.score > one.score + 1e-9
    assert better


def test_a_larger_alpha_favours_longer_translations():
    lengths = {}
    for alpha in (0.0, 2.0):
        config = SearchConfig(5, alpha, MAX_LEN)
        found = [search(tiny(seed), [[3, 4, 5]], MARKS, config)[0][0] for seed in range(20)]
        lengths[alpha] = sum(len(one.ids) for one in found)
    assert lengths[2.0] > lengths[0.0]


@pytest.fixture
def rows_of():
    """How many rows the decoder was given at each step of what is run."""

    def watch(model, run):
        seen: list[int] = []
        hook = model.decoder.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
        result = run()
        hook.remove()
        return result, seen

    return watch


def test_what_has_ended_is_not_computed_any_more(rows_of):
    model = tiny(3, sharp=3.0)
    batch = [[3], [4, 5], [6, 7, 8], [9, 10], [3, 3, 3]]
    found, seen = rows_of(model, lambda: greedy(model, batch, MARKS))
    steps = [len(one.ids) + one.ended for one in found]
    assert len(set(steps)) > 1
    assert seen == [sum(n > step for n in steps) for step in range(max(steps))]


def test_a_search_ends_long_before_the_limit_when_nothing_can_win(rows_of):
    model = tiny(12, sharp=6.0)
    config = SearchConfig(4, 0.0)
    [[best]], seen = rows_of(model, lambda: search(model, [[5, 7]], MARKS, config))
    assert best.ended
    assert len(best.ids) < len(seen) < 2 + LONGER
    assert max(seen) <= 4


def test_a_translation_may_have_fifty_tokens_more_than_its_source():
    model = tiny(max_len=200)
    marks = SpecialTokens(BOS, EOS, (PAD, BOS, EOS))  # it can never end
    found = greedy(model, [[3], [4, 5, PAD, PAD], [PAD, 6]], marks)
    assert [len(one.ids) for one in found] == [1 + LONGER, 2 + LONGER, 1 + LONGER]
    assert not any(one.ended for one in found)
    [[best]] = search(model, [[3]], marks)
    assert len(best.ids) == 1 + LONGER
    assert not best.ended


def test_learned_positions_bound_a_translation_too():
    marks = SpecialTokens(BOS, EOS, (PAD, BOS, EOS))
    model = tiny(positions="learned")
    assert len(greedy(model, [[3]], marks)[0].ids) == MAX_LEN
    assert len(search(model, [[3]], marks, SearchConfig(3))[0][0].ids) == MAX_LEN


def test_what_ended_ranks_before_what_was_cut():
    found = search(tiny(1), [[3, 4]], MARKS, SearchConfig(41, 0.0, 2), 41)[0]
    assert [one.ended for one in found] == sorted((one.ended for one in found), reverse=True)
    assert {one.ended for one in found} == {True, False}
    cut = [one for one in found if not one.ended]
    assert max(one.score for one in cut) > min(one.score for one in found if one.ended)


def test_ids_without_text_are_never_written():
    tokenizer = ByteTokenizer(["<pad>", "<bos>", "<eos>", "<extra>"])
    model = tiny(vocab_size=300, pad=tokenizer.specials["<pad>"])
    marks = SpecialTokens.of(tokenizer, model)
    assert marks.never == (256, 257, 259, *range(260, 300))
    with torch.no_grad():
        model.head.weight[260:] = 0
        model.head.weight[:256] *= 1e-3
    [found] = search(model, [[5]], marks, SearchConfig(5, max_tokens=SHORT), 5)
    assert all(token < 256 for one in found for token in one.ids)


def test_the_decoder_for_others_gives_the_ids_of_greedy():
    tokenizer = ByteTokenizer(SPECIALS)
    model = tiny(vocab_size=tokenizer.vocab_size, pad=256)
    batch = [[5, 6, 7], [8]]
    decode = greedy_decoder(tokenizer, max_tokens=SHORT)
    expected = greedy(
        model, batch, SpecialTokens.of(tokenizer, model), SearchConfig(max_tokens=SHORT)
    )
    assert decode(model, batch) == [list(one.ids) for one in expected]
    assert decode(model, []) == []


def test_float32_and_bfloat16_are_searched_alike():
    model = tiny(2, sharp=2.0)
    batch = [[3], [4, 5, 6]]
    config = SearchConfig(3, max_tokens=SHORT)
    single = search(model.float(), batch, MARKS, config)
    assert [[one.ids for one in best] for best in single] == [
        [one.ids for one in best] for best in search(model.double(), batch, MARKS, config)
    ]
    half = model.bfloat16()
    one = SearchConfig(1, max_tokens=SHORT)
    assert [[best] for best in greedy(half, batch, MARKS)] == search(
        half, batch, MARKS, SearchConfig(1)
    )
    assert len(search(half, batch, MARKS, one)) == 2


def test_dropout_is_off_and_every_flag_is_as_it_was():
    model = tiny().train()
    model.encoder.eval()
    before = [module.training for module in model.modules()]
    first = search(model, [[3, 4]], MARKS, SearchConfig(2, max_tokens=SHORT))
    assert first == search(model, [[3, 4]], MARKS, SearchConfig(2, max_tokens=SHORT))
    assert [module.training for module in model.modules()] == before
    assert not torch.is_inference_mode_enabled()
    with torch.no_grad():
        model.head.weight[5] = torch.nan
    for run in (search, greedy):
        with pytest.raises(NotFiniteError, match="NaN"):
            run(model, [[3]], MARKS)
    assert [module.training for module in model.modules()] == before


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"beam": 0}, r"beam \(0\) must be at least 1"),
        ({"beam": 10**6}, r"beam \(1000000\) must be at least 1 and at most 1000"),
        ({"alpha": -0.1}, r"alpha \(-0.1\)"),
        ({"alpha": math.nan}, r"alpha \(nan\)"),
        ({"alpha": 1000.0}, r"alpha \(1000.0\)"),
        ({"max_tokens": 0}, r"max_tokens \(0\)"),
    ],
)
def test_settings_that_cannot_work_are_named(fields, message):
    with pytest.raises(ConfigError, match=message) as caught:
        SearchConfig(**fields)
    assert caught.value.hint


@pytest.mark.parametrize("n_best", [0, 4])
def test_more_translations_than_the_beam_are_refused(n_best):
    with pytest.raises(ConfigError, match=rf"n_best \({n_best}\) must lie between 1 and beam"):
        search(tiny(), [[3]], MARKS, SearchConfig(3), n_best)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([[3], []], "source 1 is empty"),
        ([[PAD, PAD]], "source 0 is empty"),
        ([[3, VOCAB]], f"source 0 holds id {VOCAB}, but the vocabulary has {VOCAB}"),
        ([[-1]], "source 0 holds id -1"),
    ],
)
def test_a_source_that_cannot_be_read_is_named(batch, message):
    for run in (search, greedy):
        with pytest.raises(InputError, match=message) as caught:
            run(tiny(), batch, MARKS)
        assert caught.value.hint


def test_a_tokenizer_without_an_end_cannot_translate():
    with pytest.raises(InputError, match="no <eos>"):
        SpecialTokens.of(ByteTokenizer(["<bos>"]), tiny())
