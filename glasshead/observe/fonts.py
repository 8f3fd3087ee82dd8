"""A font for Chinese labels: matplotlib's own has none, so one of the system's must be found."""

from collections.abc import Iterable, Iterator
from functools import lru_cache

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

__all__ = ["chinese_font", "has_glyphs"]

# Faces made for screens and labels, best first; any other font that has the glyphs comes after.
PREFERRED = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Noto Sans CJK",
    "Source Han Sans",
    "PingFang",
    "Hiragino Sans GB",
    "Microsoft YaHei",
    "WenQuanYi",
    "SimHei",
    "Heiti",
)


@lru_cache
def chinese_font(text: str = "") -> str | None:
    """The family of an installed font that draws 它 and every character of the text, if any."""
    for path, _ in sorted(
        _installed_fonts(), key=lambda font: (_rank(font[1]), _is_variant(font[0]), font)
    ):
        if has_glyphs(path, text):
            known = font_manager.fontManager
            if path not in {entry.fname for entry in known.ttflist}:
                known.addfont(path)
            # One file may hold a face for each country.
            return min((e.name for e in known.ttflist if e.fname == path), key=_rank)
    return None


def has_glyphs(path: str, text: str) -> bool:
    """Whether the font can draw Chinese, and all of the text.

    A placeholder font has a glyph for every character, but the same one for 它 as for 她.
    """
    try:
        index = FT2Font(path).get_char_index
        return index(ord("它")) != index(ord("她")) and all(index(ord(c)) for c in f"它{text}")
    except (OSError, RuntimeError):  # a font that FreeType cannot read
        return False


def _installed_fonts() -> Iterator[tuple[str, str]]:
    """(path, family) of every font."""
    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    yield from ((entry.fname, entry.name) for entry in font_manager.fontManager.ttflist)
    # matplotlib remembers the fonts of its first run; one installed since is only on the disk.
    yield from _with_family_names(
        path for path in font_manager.findSystemFonts() if path not in known
    )


def _with_family_names(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    for path in paths:
        try:
            yield path, FT2Font(path).family_name
        except (OSError, RuntimeError):
            continue


def _is_variant(path: str) -> bool:
    """Whether this may be a bold or slanted face: the plain one is preferred."""
    return "regular" not in path.lower()


def _rank(name: str) -> int:
    return next((n for n, begin in enumerate(PREFERRED) if name.startswith(begin)), len(PREFERRED))
