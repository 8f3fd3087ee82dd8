"""The embedded world: its language, its truth, and that no position gives the truth away."""

import pickle
from collections import Counter
from itertools import islice, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glasshead.text.tinyworld import LANGUAGES, World, corpus, tokenize
from glasshead.text.tinyworld.lexicon import NOUNS, PLACES
from glasshead.text.tinyworld.world import pairs, split_of

SEED_SENTENCE = (
    "那个小猫，它昨天在公园里追逐一只蝴蝶，玩得不亦乐乎，结果把晚餐都忘了，现在它饿坏了。"
)

stories = st.builds(
    lambda seed, split, index: World(seed).story(split, index),
    st.integers(0, 10**6),
    st.sampled_from(["train", "test"]),
    st.integers(0, 10**9),
)
languages = st.sampled_from(LANGUAGES)


@pytest.fixture(scope="module")
def many():
    return list(islice(World(seed=3).stories("train"), 2000))


@pytest.fixture(scope="module")
def unseen():
    return list(islice(World(seed=3).stories("test"), 2000))


# The seed's sentence


def test_the_seeds_sentence_is_in_the_language():
    story = World.seed_story()
    assert story.text("zh") == SEED_SENTENCE
    assert story.text("en") == (
        "That kitten, it chased a butterfly in the park yesterday, had a wonderful time and so "
        "forgot all about dinner. Now it is starving."
    )
    assert story.text("de") == (
        "Das Kätzchen dort, es hat gestern im Park einen Schmetterling gejagt, viel Spaß dabei "
        "gehabt und darüber das Abendessen ganz vergessen. Jetzt ist es völlig ausgehungert."
    )
    assert tokenize(SEED_SENTENCE, "zh") == story.tokens["zh"]
    assert {p.word for p in story.pronouns["zh"]} == {"小猫"}


def test_two_other_words_at_the_end_make_it_the_butterfly():
    story, twin = World.seed_story(), World.seed_story().flip()
    assert twin.text("zh") == SEED_SENTENCE.replace("饿坏了", "飞走了")
    assert twin.text("en").endswith("Now it has flown away.")
    assert twin.text("de").endswith("Jetzt ist er weggeflogen.")
    assert [p.word for p in twin.pronouns["zh"]] == ["小猫", "蝴蝶"]
    assert [p.word for p in twin.pronouns["de"]] == ["Kätzchen", "Schmetterling"]
    changed = [a for a, b in zip(story.tokens["zh"], twin.tokens["zh"], strict=True) if a != b]
    assert changed == ["饿坏"]


def test_the_seeds_sentence_is_a_combination_not_trained_on():
    assert split_of(World.seed_story().actor, World.seed_story().thing) == "test"


# Truth


@given(stories, languages)
def test_every_pronoun_points_back_at_the_noun_of_its_entity(story, lang):
    tokens = story.tokens[lang]
    pronouns = story.pronouns[lang]
    assert [p.index for p in pronouns] == sorted(p.index for p in pronouns)
    known = {
        "zh": {"它", "他", "她"},
        "en": {"it", "he", "she"},
        "de": {"er", "sie", "es", "ihn", "ihm", "ihr"},
    }[lang]
    assert [i for i, t in enumerate(tokens) if t in known] == [p.index for p in pronouns]
    for p in pronouns:
        assert tokens[p.referent_index] == p.word
        assert p.word in {p.entity.word(lang), p.entity.de_oblique}
        assert p.referent_index in story.nouns[lang]
        assert p.referent_index < p.index
    assert pronouns[-1].entity == story.referent


@given(stories)
def test_a_pronoun_has_the_form_of_what_it_stands_for(story):
    german = {"m": {"er", "ihn", "ihm"}, "f": {"sie", "ihr"}, "n": {"es", "ihm"}}
    people = {"m": {"他", "he"}, "f": {"她", "she"}}
    for lang in LANGUAGES:
        for p in story.pronouns[lang]:
            word = story.tokens[lang][p.index]
            if lang == "de":
                assert word in german[p.entity.gender]
            elif "person" in p.entity.kinds:
                assert word in people[p.entity.gender]
            else:
                assert word in {"它", "it"}


@given(stories)
def test_the_ending_could_be_said_of_no_other_noun_of_the_story(story):
    others = {story.actor, story.thing, story.place} - {story.referent, None}
    assert story.ending.typical_of(story.referent)
    assert not any(story.ending.possible_of(noun) for noun in others)


@given(stories)
def test_a_flip_changes_the_ending_and_the_last_referent_and_nothing_before(story):
    flipped = story.flip()
    assert flipped.referent != story.referent
    assert flipped.flip().referent in {story.actor, story.thing}
    assert (flipped.actor, flipped.thing, flipped.verb) == (story.actor, story.thing, story.verb)
    assert flipped.ending.typical_of(flipped.referent)
    assert not flipped.ending.possible_of(story.referent)
    for lang in LANGUAGES:
        assert len(flipped.pronouns[lang]) == len(story.pronouns[lang])
        assert flipped.pronouns[lang][:-1] == story.pronouns[lang][:-1]
        assert flipped.pronouns[lang][-1].word != story.pronouns[lang][-1].word


@given(stories, st.sampled_from(list(permutations(LANGUAGES, 2))))
def test_alignments_join_nouns_to_nouns_and_pronouns_to_pronouns(story, direction):
    source, target = direction
    alignment = story.alignment(source, target)
    assert alignment == {(j, i) for i, j in story.alignment(target, source)}
    for a, b in zip(story.pronouns[source], story.pronouns[target], strict=True):
        assert {j for i, j in alignment if i == a.index} == {b.index}
        assert (a.referent_index, b.referent_index) in alignment
        assert {j for i, j in alignment if i == a.referent_index} == {b.referent_index}


def test_the_alignment_of_the_seeds_sentence():
    story = World.seed_story()
    zh, de = story.tokens["zh"], story.tokens["de"]
    aligned = {(zh[i], de[j]) for i, j in story.alignment("zh", "de")}
    assert aligned >= {
        *(("那", "das"), ("个", "das"), ("小猫", "Kätzchen"), ("它", "es"), ("昨天", "gestern")),
        *(("在", "im"), ("里", "im"), ("公园", "Park"), ("追逐", "gejagt"), ("一", "einen")),
        *(("只", "einen"), ("蝴蝶", "Schmetterling"), ("晚餐", "Abendessen"), ("忘", "vergessen")),
        *(("现在", "jetzt"), ("饿坏", "ausgehungert"), ("。", ".")),
    }
    assert not {"把", "得", "dort", "hat"} & {word for pair in aligned for word in pair}


def test_a_story_and_its_words_survive_pickling():
    story = World(5).story("test", 7)
    story.text("de")
    again = pickle.loads(pickle.dumps(story))
    assert again == story
    assert again.text("zh") == story.text("zh")


# No shortcut


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("split", ["many", "unseen"])
def test_no_position_gives_the_answer_away(split, lang, request):
    """Each rule that looks only at where nouns stand is right about as often as chance."""
    right: Counter[str] = Counter()
    told = request.getfixturevalue(split)
    for story in told:
        last = story.pronouns[lang][-1]
        nouns = [i for i in story.nouns[lang] if i < last.index]
        for n in range(4):
            right[f"noun {n + 1}"] += nouns[n : n + 1] == [last.referent_index]
            right[f"noun {n + 1} from the end"] += nouns[-n - 1 :][:1] == [last.referent_index]
    assert max(right.values()) / len(told) < 0.55, right


@pytest.mark.parametrize("split", ["many", "unseen"])
def test_stories_end_with_the_actor_as_often_as_with_the_thing(split, request):
    told = request.getfixturevalue(split)
    share = {role: n / len(told) for role, n in Counter(s.about for s in told).items()}
    assert share["actor"] == pytest.approx(share["thing"], abs=0.05)
    assert 0.04 < share["place"] < 0.15


def test_the_pronoun_itself_seldom_tells_actor_from_thing(many):
    """他 and 它 differ only where a person meets something else."""
    telling = sum(("person" in s.actor.kinds) != ("person" in s.thing.kinds) for s in many)
    assert telling / len(many) < 0.15


def test_endings_are_not_tied_to_a_role(many):
    """Whoever knows only that something flew away does not know whether it acted."""
    roles: dict[str, Counter[str]] = {}
    for story in many:
        if story.about != "place":
            roles.setdefault(story.ending.words("en"), Counter())[story.about] += 1
    for ending in ("has flown away", "is snoring", "has swum away", "is kneading dough again"):
        common = roles[ending].most_common(1)[0][1]
        assert common / roles[ending].total() < 0.8, (ending, roles[ending])


def test_the_ending_alone_does_not_name_the_word(many):
    """The best guess from the ending and the pronoun, without reading the story."""
    named: dict[tuple[str, str], Counter[str]] = {}
    for story in many:
        pronoun = story.tokens["zh"][story.pronouns["zh"][-1].index]
        named.setdefault((story.ending.zh, pronoun), Counter())[story.referent.en] += 1
    assert sum(max(c.values()) for c in named.values()) / len(many) < 0.35
    assert all(len(c) > 1 for c in named.values())


def test_no_kind_is_called_like_a_thing_of_another_kind():
    kinds = {kind for noun in (*NOUNS, *PLACES) for kind in noun.kinds - {noun.en}}
    assert kinds & {noun.en for noun in (*NOUNS, *PLACES)} == {"ball"}
    assert "ball" in next(noun for noun in NOUNS if noun.en == "ball").kinds


# Splits and seeds


def test_train_and_test_share_no_pair_whoever_acts(many, unseen):
    seen = {frozenset((s.actor, s.thing)) for s in many}
    held_out = {frozenset((s.actor, s.thing)) for s in unseen}
    assert not seen & held_out
    for story in unseen:
        assert split_of(story.flip().actor, story.flip().thing) == "test"


def test_about_a_tenth_of_the_pairs_is_held_out_and_every_noun_is_trained_on():
    train = [pair for group in pairs("train").values() for pair in group]
    test = [pair for group in pairs("test").values() for pair in group]
    assert 0.08 < len(test) / len(train + test) < 0.14
    assert {noun for pair in train for noun in pair} == set(NOUNS)


@given(st.integers(0, 10**6), st.sampled_from(["train", "test"]), st.integers(0, 10**6))
def test_a_story_depends_on_seed_split_and_index_only(seed, split, index):
    assert World(seed).story(split, index) == next(World(seed).stories(split, start=index))


def test_stories_stay_what_they_are():
    """The numbers of Random.random() are the same in every Python; so are the stories."""
    assert World(0).story("train", 2).text("en") == (
        "In the kitchen, the cake was discovered by a hedgehog on Sunday. Now it has been eaten."
    )
    assert World(1).story("test", 4).text("de") == (
        "Am Montag wurde die Libelle im Wald von einem Kaninchen gerettet. Jetzt füttern wir es."
    )


def test_other_seeds_tell_other_stories(many):
    other = {s.text("en") for s in islice(World(seed=4).stories("train"), 2000)}
    mine = {s.text("en") for s in many}
    assert len(mine) > 1990
    assert len(mine & other) < 20


def test_the_corpus_is_lines_of_training_stories():
    lines = list(corpus(7, "de", seed=5))
    assert lines == [World(5).story("train", i).text("de") for i in range(7)]
