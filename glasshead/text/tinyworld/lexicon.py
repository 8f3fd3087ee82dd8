"""The words of the world, each in Chinese, English and German.

Phrases are written `word/letters`. Words of one phrase that share a letter mean the same in all
languages: `很/s 好奇/a`, `was so/s curious/a`, `so/s neugierig/a war`. A word without letters has
no counterpart. `n` marks a noun, `p` a pronoun, and `@` is the place of the pronoun.
"""

from dataclasses import dataclass
from typing import NamedTuple

from glasshead.errors import InputError, did_you_mean

LANGUAGES = ("zh", "en", "de")

Kinds = frozenset[str]


def kinds(words: str) -> Kinds:
    return frozenset(words.split())


def check_language(lang: str) -> str:
    if lang not in LANGUAGES:
        raise InputError(f"the world has no language '{lang}'", hint=did_you_mean(lang, LANGUAGES))
    return lang


@dataclass(frozen=True, slots=True)
class Noun:
    zh: str
    en: str
    de: str
    de_oblique: str  # accusative and dative: der Bär, den Bären
    gender: str  # German: m, f, n; of a person also whether he or she
    measure: str  # 一只小猫
    that_measure: str  # 那个小猫
    kinds: Kinds  # its own English name among them

    def word(self, lang: str) -> str:
        return str(getattr(self, lang))


@dataclass(frozen=True, slots=True)
class Place(Noun):
    zh_phrase: str
    en_phrase: str
    de_phrase: str


class Trilingual(NamedTuple):
    zh: str
    en: str
    de: str


def _nouns(table: str) -> tuple[Noun, ...]:
    found = []
    for row in table.strip().splitlines():
        belongs, zh, measures, en, gender, de, *oblique = row.split()
        measure, *that = measures.split(",")
        found.append(
            Noun(
                *(zh, en, de, oblique[0] if oblique else de, gender),
                *(measure, that[0] if that else measure, frozenset([en, *belongs.split(",")])),
            )
        )
    return tuple(found)


# kinds, Chinese, measure word (and the one after 那), English, gender, German (oblique)
NOUNS = _nouns("""
    land            小猫    只,个  kitten     n  Kätzchen
    land            小狗    只     puppy      m  Welpe         Welpen
    land            兔子    只     rabbit     n  Kaninchen
    land            狐狸    只     fox        m  Fuchs
    land            松鼠    只     squirrel   n  Eichhörnchen
    land            熊      头     bear       m  Bär           Bären
    land            猴子    只     monkey     m  Affe          Affen
    land            刺猬    只     hedgehog   m  Igel
    land            老鼠    只     mouse      f  Maus
    land            山羊    只     goat       f  Ziege
    land            小猪    只     piglet     n  Ferkel
    insect          蝴蝶    只     butterfly  m  Schmetterling
    insect          瓢虫    只     ladybird   m  Marienkäfer
    insect          蜻蜓    只     dragonfly  f  Libelle
    insect          萤火虫  只     firefly    n  Glühwürmchen
    insect,stinger  蜜蜂    只     bee        f  Biene
    insect,stinger  黄蜂    只     wasp       f  Wespe
    insect,stinger  蚊子    只     mosquito   f  Mücke
    bird            麻雀    只     sparrow    m  Spatz         Spatzen
    bird            鹦鹉    只     parrot     m  Papagei
    bird            乌鸦    只     crow       f  Krähe
    bird            猫头鹰  只     owl        f  Eule
    bird            喜鹊    只     magpie     f  Elster
    bird            知更鸟  只     robin      n  Rotkehlchen
    swimmer         鱼      条     fish       m  Fisch
    swimmer         青蛙    只     frog       m  Frosch
    swimmer         乌龟    只     turtle     f  Schildkröte
    swimmer         鳄鱼    条     crocodile  n  Krokodil
    person,artist   演员    位     actor      m  Schauspieler
    person,artist   钢琴家  位     pianist    m  Pianist       Pianisten
    person,artist   歌手    位     singer     f  Sängerin
    person,artist   舞蹈家  位     dancer     f  Tänzerin
    person,medic    牙医    位     dentist    m  Zahnarzt
    person,medic    兽医    位     vet        m  Tierarzt
    person,medic    医生    位     doctor     f  Ärztin
    person,medic    护士    位     nurse      f  Pflegerin
    person,chef     厨师    位     cook       m  Koch
    person,chef     面包师  位     baker      m  Bäcker
    person,grower   农夫    位     farmer     m  Bauer         Bauern
    person,grower   牧羊人  位     shepherd   m  Schäfer
    person,grower   园丁    位     gardener   f  Gärtnerin
    person,grower   养蜂人  位     beekeeper  f  Imkerin
    food            苹果    个     apple      m  Apfel
    food            蛋糕    块     cake       m  Kuchen
    food            香肠    根     sausage    f  Wurst
    food            香蕉    根     banana     f  Banane
    food            梨      个     pear       f  Birne
    food            小面包  个     roll       n  Brötchen
    food            三明治  个     sandwich   n  Sandwich
    fragile         水壶    个     jug        m  Krug
    fragile         花瓶    个     vase       f  Vase
    fragile         杯子    个     cup        f  Tasse
    fragile         台灯    盏     lamp       f  Lampe
    fragile         玻璃杯  个     glass      n  Glas
    cloth           帽子    顶     hat        m  Hut
    cloth           围巾    条     scarf      m  Schal
    cloth           毯子    条     blanket    f  Decke
    cloth           袜子    只     sock       f  Socke
    cloth           衬衫    件     shirt      n  Hemd
    cloth           毛巾    条     towel      n  Handtuch
    metal           钥匙    把     key        m  Schlüssel
    metal           勺子    把     spoon      m  Löffel
    metal           硬币    枚     coin       f  Münze
    metal           叉子    把     fork       f  Gabel
    metal           小刀    把     knife      n  Messer
    machine         电脑    台     computer   m  Computer
    machine         相机    台     camera     f  Kamera
    machine         手表    块     watch      f  Uhr
    machine         收音机  台     radio      n  Radio
    machine         手机    部     phone      n  Handy
    ball            皮球    个     ball       m  Ball
    ball            气球    个     balloon    m  Luftballon
    ball            足球    个     football   m  Fußball
    paper           信      封     letter     m  Brief
    paper           报纸    份     newspaper  f  Zeitung
    paper           明信片  张     postcard   f  Postkarte
    paper           书      本     book       n  Buch
    plant           仙人掌  盆     cactus     m  Kaktus
    plant           玫瑰    朵     rose       f  Rose
    plant           郁金香  朵     tulip      f  Tulpe
    plant           雏菊    朵     daisy      n  Gänseblümchen
    plant           紫罗兰  朵     violet     n  Veilchen
""")


def _places(table: str) -> tuple[Place, ...]:
    found = []
    for row in table.strip().splitlines():
        zh, after, en_before, en, gender, de_before, de, *belongs = row.split()
        article = "" if de_before in ("im", "am") else {"f": "der"}.get(gender, "dem") + "/d "
        before = f"{de_before}/{'a' if article else 'ad'} {article}"
        found.append(
            Place(
                *(zh, en, de, de, gender, "", "", frozenset([en, "place", *belongs])),
                zh_phrase=f"在/a {zh}/n {after}/a",
                en_phrase=f"{en_before}/a the/d {en}/n",
                de_phrase=f"{before}{de}/n",
            )
        )
    return tuple(found)


# Chinese, word after it, English with preposition, gender, German with preposition, kinds
PLACES = _places("""
    公园    里  in  park        m  im   Park           outdoor town closing lonely green
    动物园  里  at  zoo         m  im   Zoo            outdoor town closing lonely
    花园    里  in  garden      m  im   Garten         outdoor green
    院子    里  in  yard        m  im   Hof            outdoor green
    森林    里  in  forest      m  im   Wald           outdoor
    市场    上  at  market      m  auf  Markt          outdoor town closing lonely trade
    湖      边  at  lake        m  am   See            outdoor wet
    河      边  at  river       m  am   Fluss          outdoor wet
    池塘    边  at  pond        m  am   Teich          outdoor wet
    海滩    上  on  beach       m  am   Strand         outdoor lonely
    街      上  in  street      f  auf  Straße         outdoor town lonely trade
    村子    里  in  village     n  im   Dorf           outdoor town lonely trade
    厨房    里  in  kitchen     f  in   Küche          indoor green
    卧室    里  in  bedroom     n  im   Schlafzimmer   indoor green
    图书馆  里  in  library     f  in   Bibliothek     indoor town closing
    学校    里  at  school      f  in   Schule         indoor town closing lonely green
    博物馆  里  in  museum      n  im   Museum         indoor town closing
    餐馆    里  in  restaurant  n  im   Restaurant     indoor town closing
""")

YESTERDAY = Trilingual("昨天/a", "yesterday/a", "gestern/a")
EVENING = Trilingual("昨天/a 晚上/b", "yesterday/a evening/b", "gestern/a Abend/b")
MORNING = Trilingual("今天/a 早上/b", "this/a morning/b", "heute/a Morgen/b")
TIMES = (
    YESTERDAY,
    EVENING,
    MORNING,
    Trilingual("上周/a", "last/a week/a", "letzte/a Woche/a"),
    Trilingual("星期天/a", "on Sunday/a", "am Sonntag/a"),
    Trilingual("星期一/a", "on Monday/a", "am Montag/a"),
)

DINNER = Trilingual("晚餐/n", "dinner/n", "das Abendessen/n")
LUNCH = Trilingual("午餐/n", "lunch/n", "das Mittagessen/n")
HOURS = Trilingual("时间/n", "the/d time/n", "die/d Zeit/n")
