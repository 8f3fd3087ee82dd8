"""What happens in the world and why. The notation is the lexicon's."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from glasshead.text.tinyworld.lexicon import Kinds, Noun, Trilingual, kinds

__all__ = ["VERBS", "Circumstance", "Manner", "Reason", "Verb"]

_NO_WORDS = Trilingual("", "", "")


class Reason(NamedTuple):
    """What follows "because it". It fits nouns of the kinds `of`, unless the story's other noun is
    of these kinds too."""

    zh: str
    en: str
    de: str
    of: Kinds

    def fits(self, noun: Noun, other: Noun) -> bool:
        return not self.of.isdisjoint(noun.kinds) and self.of.isdisjoint(other.kinds)


class Circumstance(NamedTuple):
    """What follows "because" before the story begins; `where`: the kind of place it fits."""

    zh: str
    en: str
    de: str
    where: str


class Manner(NamedTuple):
    zh: str
    en: str
    de: str
    finite: bool  # German: has a verb of its own; otherwise a second participle after "hat"


@dataclass(frozen=True, slots=True)
class Verb:
    zh: str
    en: str  # past tense
    de: str  # participle
    who: tuple[tuple[Kinds, Kinds], ...]  # (actors, things)
    zh_done: str = ""  # after 把 and 被; empty: neither occurs
    en_done: str = ""  # participle of the passive
    ba: bool = True  # 把 before a definite thing
    preposition: Trilingual = _NO_WORDS  # played with, mit ... gespielt
    of_actor: tuple[Reason, ...] = ()
    of_thing: tuple[Reason, ...] = ()
    manner: Manner | None = None
    absorbing: bool = False  # dinner may be forgotten over it
    given: tuple[Circumstance, ...] = ()
    where: Kinds = frozenset({"place"})
    weight: int = 1  # how often it is chosen among the verbs that fit


def _verb(
    words: tuple[str, str, str], who: str, done: tuple[str, str] = ("", ""), **rest: Any
) -> Verb:
    """`who` lists kinds: "actors > things", several separated by ";"."""
    sides = [[kinds(side) for side in pair.split(">")] for pair in who.split(";")]
    return Verb(*words, tuple((actors, things) for actors, things in sides), *done, **rest)


def _is(zh: str, en: str, de: str, of: str) -> Reason:
    """因为它很好奇, because it was so curious, weil es so neugierig war."""
    return Reason(f"很/s {zh}/a", f"was/w so/s {en}/a", f"so/s {de}/a war/w", kinds(of))


def _does(zh: str, en: str, de: str, of: str) -> Reason:
    """因为它飞得很高, because it flew so high, weil er so hoch flog."""
    (zh_verb, zh_how), (en_verb, en_how), (de_how, de_verb) = zh.split(), en.split(), de.split()
    return Reason(
        f"{zh_verb}/a 得 很/s {zh_how}/b",
        f"{en_verb}/a so/s {en_how}/b",
        f"so/s {de_how}/b {de_verb}/a",
        kinds(of),
    )


_THING = "food cloth metal machine ball paper plant fragile"
_CARRIED = "food cloth metal paper"

# fmt: off
_CURIOUS = _is("好奇", "curious", "neugierig", "land bird swimmer person")
_VISIBLE = Reason(
    "很/s 显眼/a", "was/w so/s easy/a to see/a", "so/s leicht/a zu sehen/a war/w", kinds(_THING))
_SMELLING = Reason(
    "闻起来/a 很/s 香/b", "smelled/a so/s good/b", "so/s gut/b roch/a", kinds("food plant"))
_LOW = _does("飞 低", "flew low", "tief flog", "insect bird")
_HIGH = _does("飞 高", "flew high", "hoch flog", "insect bird")
_FAST_FLIGHT = _does("飞 快", "flew fast", "schnell flog", "insect bird")
_FAST_RUN = _does("跑 快", "ran fast", "schnell lief", "land")
_FAST_SWIM = _does("游 快", "swam fast", "schnell schwamm", "swimmer")
_SLEPT = Reason(
    "睡/a 得 太/s 久/b", "had slept/a too/s long/b", "zu/s lange/b geschlafen/a hatte",
    kinds("land person"))

_FUN = Manner(
    "玩/a 得 不亦乐乎/b", "had/a a wonderful/b time/b", "viel/b Spaß/b dabei gehabt/a", False)
_JOY = Manner("高兴/a 得 不得了/a", "was overjoyed/a", "war überglücklich/a", True)

_FAIR = (
    Circumstance(
        "天气/n 很 好/a", "the/d weather/n was/w nice/a", "das/d Wetter/n schön/a war/w",
        "outdoor"),
    Circumstance("阳光/n 明媚/a", "the/d sun/n was shining/a", "die/d Sonne/n schien/a", "outdoor"),
)
_OPEN = Circumstance(
    "门/n 开着/a", "the/d door/n was/w open/a", "die/d Tür/n offen/a war/w", "indoor")
_DARK = Circumstance(
    "屋里/n 很/s 黑/a", "the/d room/n was/w so/s dark/a", "das/d Zimmer/n so/s dunkel/a war/w",
    "indoor")

VERBS = (
    _verb(("追逐/v", "chased/v", "gejagt/v"), "land > insect bird", ("追逐/v", "chased/v"),
        of_actor=(Reason("想/w 玩/a", "wanted/w to play/a", "spielen/a wollte/w", kinds("land")),),
        ba=False, of_thing=(_LOW,), manner=_FUN, absorbing=True, given=_FAIR, weight=4),
    _verb(("追逐/v", "chased/v", "gejagt/v"), "stinger > land person", ("追逐/v", "chased/v"),
        ba=False, of_actor=(_is("生气", "angry", "wütend", "stinger"),),
        of_thing=(Reason("靠/a 得 太/s 近/b", "came/a too/s close/b", "zu/s nah/b kam/a",
            kinds("land person")),),
        weight=3),
    _verb(("观察/v 了/t", "watched/v", "beobachtet/v"),
        "land person > insect bird swimmer; bird > land swimmer person; swimmer > insect bird land",
        ba=False, of_actor=(_CURIOUS,), of_thing=(_HIGH, _FAST_RUN, _FAST_SWIM),
        absorbing=True, given=_FAIR),
    _verb(("发现/v 了/t", "discovered/v", "entdeckt/v"),
        f"land person > {_THING} insect bird swimmer; bird > {_CARRIED} ball swimmer;"
        "insect > plant food; swimmer > ball metal insect",
        ("发现/v 了/t", "discovered/v"), ba=False,
        of_actor=(_CURIOUS, _LOW), of_thing=(_VISIBLE, _LOW), manner=_JOY, absorbing=True),
    _verb(("找到/v 了/t", "found/v", "gefunden/v"),
        f"land person > {_CARRIED} ball machine; bird > {_CARRIED} ball",
        ("找到/v 了/t", "found/v"),
        of_actor=(Reason("找/a 了 很/s 久/b", "had searched/a so/s long/b",
            "so/s lange/b gesucht/a hatte", kinds("land bird person")),),
        of_thing=(_VISIBLE,), manner=_JOY, absorbing=True),
    _verb(("遇到/v 了/t", "met/v", "getroffen/v"),
        "land insect bird swimmer > land insect bird swimmer; person > person",
        ba=False, absorbing=True, given=_FAIR),
    _verb(("吵醒/v 了/t", "woke/v", "geweckt/v"),
        "bird stinger > land person; land > bird; person > person", ("吵醒/v 了/t", "woken/v"),
        of_actor=(_does("叫 响", "called loudly", "laut rief", "bird"),
            _does("嗡嗡叫 响", "buzzed loudly", "laut summte", "stinger")),
        of_thing=(_SLEPT,), given=(_OPEN,)),
    _verb(("吓到/v 了/t", "frightened/v", "erschreckt/v"),
        "land > bird swimmer; bird stinger > land; person > bird person",
        ("吓到/v 了/t", "frightened/v"), of_actor=(_FAST_RUN, _FAST_FLIGHT), given=(_DARK,)),
    _verb(("救/v 了/t", "rescued/v", "gerettet/v"),
        "land > insect bird; person > insect bird swimmer", ("救/v 了/t", "rescued/v"),
        of_actor=(_is("勇敢", "brave", "mutig", "land person"),),
        of_thing=(Reason("飞/a 不动/b 了", "could/b no/b longer/b fly/a",
            "nicht/b mehr/b fliegen/a konnte/b", kinds("insect bird")),),
        manner=_JOY, weight=2),
    _verb(("偷走/v 了/t", "stole/v", "gestohlen/v"),
        f"land > {_CARRIED}; bird > food metal paper", ("偷走/v 了/t", "stolen/v"),
        of_actor=(_is("调皮", "naughty", "frech", "land bird"),),
        of_thing=(_is("漂亮", "pretty", "hübsch", "cloth metal"), _SMELLING),
        manner=_JOY, given=(_OPEN,), weight=2),
    _verb(("藏/v 了/t", "hid/v", "versteckt/v"),
        f"land > {_CARRIED} ball; bird > food metal paper; person > {_CARRIED} ball machine",
        ("藏/v 起来/v 了/t", "hidden/v"),
        of_actor=(_is("聪明", "clever", "schlau", "land bird person"),),
        of_thing=(_is("珍贵", "precious", "wertvoll", "metal machine paper"), _SMELLING)),
    _verb(("打翻/v 了/t", "knocked/v over/v", "umgestoßen/v"), "land bird person > fragile",
        ("打翻/v 了/t", "knocked/v over/v"),
        of_actor=(_is("粗心", "careless", "unvorsichtig", "land bird person"),),
        of_thing=(Reason("放/a 得 太/s 靠边/b", "stood/a too/s close/b to the edge/n",
            "zu/s nah/b am Rand/n stand/a", kinds("fragile")),),
        given=(_DARK,), where=kinds("indoor")),
    _verb(("玩/v", "played/v", "gespielt/v"), "land > ball", ba=False,
        preposition=Trilingual("", "with/w", "mit/w"),
        of_actor=(
            Reason("很/s 无聊/a", "was so/s bored/a", "sich so/s langweilte/a", kinds("land")),),
        of_thing=(_is("圆", "round", "rund", "ball"),),
        manner=_FUN, absorbing=True, given=_FAIR, weight=4),
    _verb(("闻/v 了/t", "sniffed/v", "gerochen/v"), "land > plant", ba=False,
        preposition=Trilingual("", "at/w", "an/w"), of_actor=(_CURIOUS,), of_thing=(_SMELLING,),
        manner=_JOY, absorbing=True, given=_FAIR, weight=2),
    _verb(("买下/v 了/t", "bought/v", "gekauft/v"), f"person > {_THING}",
        ("买下/v 了/t", "bought/v"),
        of_actor=(Reason("有/h 足够/s 的 钱/n", "had/h enough/s money/n", "genug/s Geld/n hatte/h",
            kinds("person")),),
        of_thing=(_is("便宜", "cheap", "billig", _THING),),
        manner=_JOY, given=_FAIR, where=kinds("trade"), weight=2),
    _verb(("浇/v 了/t", "watered/v", "gegossen/v"), "person > plant", ("浇/v 了/t", "watered/v"),
        ba=False, of_actor=(Reason("有空/ab", "had/a time/b", "Zeit/b hatte/a", kinds("person")),),
        of_thing=(_is("干", "dry", "trocken", "plant"),),
        given=_FAIR, where=kinds("green"), weight=3),
    _verb(("看望/v 了/t", "visited/v", "besucht/v"), "person > person", ba=False, absorbing=True,
        given=_FAIR, where=kinds("village school library restaurant museum zoo")),
    _verb(("邀请/v 了/t", "invited/v", "eingeladen/v"), "person > person",
        ("邀请/v 了/t", "invited/v"), ba=False, where=kinds("town")),
)
# fmt: on
