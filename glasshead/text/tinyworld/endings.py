"""How stories end. The notation is the lexicon's.

The ending decides what the last pronoun refers to: it is typical of one noun of the story and
impossible for the others. By convention, insects are never hungry or tired.
"""

from dataclasses import dataclass
from functools import cache

from glasshead.text.tinyworld.lexicon import Kinds, Noun, check_language, kinds

__all__ = ["ENDINGS", "Ending", "endings_of"]


@dataclass(frozen=True, slots=True)
class Ending:
    """A main clause, with `@` for the pronoun. The grammar moves "now" and the German verb."""

    zh: str
    en: str
    de: str
    of: Kinds  # typical of these
    also: Kinds = frozenset()  # possible for these
    case: int = 0  # of the German pronoun: 0 nominative, 1 accusative, 2 dative
    de_last: str = ""  # verb-final form of a separable verb: wieder auftritt

    def words(self, lang: str) -> str:
        """Return it without the pronoun, … where that was inside: ist … völlig ausgehungert."""
        tokens = [token.partition("/")[0] for token in getattr(self, check_language(lang)).split()]
        text = ("" if lang == "zh" else " ").join(tokens).replace("@", "…")
        return text.removeprefix("…").strip()

    def typical_of(self, noun: Noun) -> bool:
        return not self.of.isdisjoint(noun.kinds)

    def possible_of(self, noun: Noun) -> bool:
        return self.typical_of(noun) or not self.also.isdisjoint(noun.kinds)


def _work(who: str, zh: str, en: str, de: str, de_last: str = "") -> Ending:
    """现在他又在排练了, now he is rehearsing again, jetzt probt er wieder."""
    verb, *rest = de.split()
    german = " ".join([verb, "@ wieder/r", *rest])
    last = de_last and f"wieder/r {de_last}"
    return Ending(f"@ 又/r 在 {zh} 了", f"@ is/x {en} again/r", german, kinds(who), de_last=last)


_HUNGRY, _LIVING = kinds("land bird"), kinds("swimmer person")
_LAND, _PERSON = kinds("land"), kinds("person")
_AIR, _BALLOON = kinds("insect bird"), kinds("balloon")

# fmt: off
ENDINGS = (
    Ending("@ 饿坏/a 了", "@ is/x starving/a", "ist/x @ völlig/a ausgehungert/a", _HUNGRY, _LIVING),
    Ending("@ 累坏/a 了", "@ is/x exhausted/a", "ist/x @ völlig/a erschöpft/a", _HUNGRY, _LIVING),
    Ending("@ 跑掉/ab 了", "@ has/x run/a away/b", "ist/x @ weggelaufen/ab", _LAND, _PERSON),
    Ending("@ 在 打呼噜/a", "@ is/x snoring/a", "schnarcht/a @", _LAND, _PERSON),
    Ending("@ 飞走/ab 了", "@ has/x flown/a away/b", "ist/x @ weggeflogen/ab", _AIR, _BALLOON),
    Ending("@ 又/r 在 飞/a 了", "@ is/x flying/a again/r", "fliegt/a @ wieder/r", _AIR, _BALLOON),
    Ending("@ 游走/ab 了", "@ has/x swum/a away/b", "ist/x @ weggeschwommen/ab", kinds("swimmer")),
    Ending("@ 在/i 水/n 里/i 游/a", "@ is/x swimming/a in/i the/d water/n",
        "schwimmt/a @ im/id Wasser/n", kinds("swimmer")),
    _work("artist", "表演/ab", "performing/ab", "tritt/a auf/b", "auftritt/ab"),
    _work("artist", "排练/a", "rehearsing/a", "probt/a"),
    _work("medic", "照顾/a 病人/n", "caring/a for/a patients/n", "versorgt/a Patienten/n"),
    Ending("@ 又/r 穿上/a 白大褂/wn 了", "@ is/x wearing/a a/d white/w coat/n again/r",
        "trägt/a @ wieder/r einen/d weißen/w Kittel/n", kinds("medic"), kinds("chef")),
    _work("chef", "揉/a 面团/n", "kneading/a dough/n", "knetet/a Teig/n"),
    _work("chef", "烤/a 蛋糕/n", "baking/a cakes/n", "backt/a Kuchen/n"),
    _work("grower", "户外/b 干活/a", "working/a outdoors/b", "arbeitet/a im Freien/b"),
    Ending("@ 又/r 戴上/a 草帽/wn 了", "@ is/x wearing/a a/d straw/w hat/n again/r",
        "trägt/a @ wieder/r einen/d Strohhut/wn", kinds("grower")),
    Ending("@ 被 吃掉/a 了", "@ has/x been eaten/a", "ist/x @ aufgegessen/a",
        kinds("food"), kinds("swimmer")),
    Ending("@ 发霉/a 了", "@ is/x mouldy/a", "ist/x @ verschimmelt/a", kinds("food")),
    Ending("@ 碎/a 了", "@ is/x broken/a", "ist/x @ zerbrochen/a", kinds("fragile")),
    Ending("@ 有/h 裂缝/n 了", "@ has/h a crack/n", "hat/h @ einen Sprung/n", kinds("fragile")),
    Ending("@ 破/a 了", "@ is/x torn/a", "ist/x @ zerrissen/a", kinds("cloth paper")),
    Ending("@ 缩水/a 了", "@ has/x shrunk/a", "ist/x @ eingelaufen/a", kinds("cloth")),
    Ending("@ 发黄/a 了", "@ has/x turned yellow/a", "ist/x @ vergilbt/a", kinds("paper")),
    Ending("@ 生锈/a 了", "@ is/x rusty/a", "ist/x @ verrostet/a", kinds("metal")),
    Ending("@ 闪闪发亮/a", "@ is/x gleaming/a", "glänzt/a @", kinds("metal"), kinds("firefly")),
    Ending("@ 坏/a 了", "@ is/x out/a of/a order/a", "ist/x @ kaputt/a", kinds("machine")),
    Ending("@ 没/k 电/n 了", "@ has/x no/k power/n left/e", "hat/x @ keinen/k Strom/n mehr/e",
        kinds("machine")),
    Ending("@ 爆/a 了", "@ has/x burst/a", "ist/x @ geplatzt/a", kinds("ball")),
    Ending("@ 没/k 气/n 了", "@ has/x no/k air/n left/e", "hat/x @ keine/k Luft/n mehr/e",
        kinds("ball")),
    Ending("@ 枯萎/a 了", "@ has/x withered/a", "ist/x @ vertrocknet/a", kinds("plant")),
    Ending("@ 开花/a 了", "@ is/x blooming/a", "blüht/a @", kinds("plant")),
    Ending("@ 关门/a 了", "@ is/x closed/a", "ist/x @ geschlossen/a",
        kinds("closing"), kinds("paper")),
    Ending("@ 空无一人/a", "@ is/x deserted/a", "ist/x @ menschenleer/a", kinds("lonely")),
    Ending("我们/w 在 喂/a @", "we/w are feeding/a @", "füttern/a wir/w @",
        kinds("land bird swimmer"), kinds("person"), case=1),
    Ending("我们/w 给/a @ 一点/b 水/n", "we/w are giving/a @ some/b water/n",
        "geben/a wir/w @ etwas/b Wasser/n",
        kinds("land bird plant"), kinds("insect swimmer person"), case=2),
    Ending("我们/w 在 读/a @", "we/w are reading/a @", "lesen/a wir/w @", kinds("paper"), case=1),
    Ending("我们/w 在 吃/a @", "we/w are eating/a @", "essen/a wir/w @",
        kinds("food"), kinds("swimmer"), case=1),
    Ending("我们/w 在 擦/a @", "we/w are polishing/a @", "polieren/a wir/w @",
        kinds("metal"), case=1),
    Ending("我们/w 在 给 @ 打气/ab", "we/w are pumping/a @ up/b", "pumpen/a wir/w @ auf/b",
        kinds("ball"), case=1),
)
# fmt: on


@cache
def endings_of(noun: Noun, *others: Noun) -> tuple[Ending, ...]:
    """Return the endings that are typical of `noun` and impossible for the others."""
    return tuple(
        ending
        for ending in ENDINGS
        if ending.typical_of(noun) and not any(ending.possible_of(other) for other in others)
    )
