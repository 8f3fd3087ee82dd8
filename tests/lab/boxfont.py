"""A font made on the spot, for machines that have none with Chinese characters."""

from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen


def make_font(path, glyphs):
    """A font whose characters are boxes: {character: width}."""
    names = {c: f"u{ord(c):X}" for c in glyphs}
    pens = {".notdef": TTGlyphPen(None)}
    for char, width in glyphs.items():
        pen = pens[names[char]] = TTGlyphPen(None)
        pen.moveTo((50, 0))
        for corner in ((50, 700), (width, 700), (width, 0)):
            pen.lineTo(corner)
        pen.closePath()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(list(pens))
    builder.setupCharacterMap({ord(c): name for c, name in names.items()})
    builder.setupGlyf({name: pen.glyph() for name, pen in pens.items()})
    builder.setupHorizontalMetrics(dict.fromkeys(pens, (1000, 50)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": path.stem, "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(path)
    return str(path)
