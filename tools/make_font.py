"""Make the figures' font, lib/icl_book/fonts, from Roboto as Debian's package fonts-roboto-unhinted has it.

python tools/make_font.py /usr/share/fonts/truetype/roboto/unhinted/RobotoTTF
"""

import sys
from pathlib import Path

from fontTools import subset
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib import TTFont

#: Latin, Greek, subscripts and superscripts, punctuation, signs of mathematics.
CHARACTERS = (
    "U+20-7E,U+A0-FF,U+2B2,U+302-304,U+391-3A9,U+3B1-3C9,U+1D40,U+1D62,U+2010-2026,U+2032,U+2033,U+2070-209C,"
    "U+2200-22FF,U+27E8,U+27E9,U+2C7C"
)

for weight in ("Regular", "Medium"):
    target = Path(__file__).parents[1] / f"lib/icl_book/fonts/ChartSans-{weight}.ttf"
    # No kerning: a text is as wide as its letters, for everything that measures it.
    options = ["--no-hinting", "--layout-features=", "--drop-tables+=GDEF,GPOS,GSUB", "--no-glyph-names"]
    subset.main([f"{sys.argv[1]}/Roboto-{weight}.ttf", f"--unicodes={CHARACTERS}", f"--output-file={target}", *options])
    font = TTFont(target, recalcTimestamp=False)
    # Roboto has no arrow; it gets one, of its minus sign and a head.
    shaft = font["glyf"][font.getBestCmap()[ord("−")]]
    low, high, left, tip = shaft.yMin, shaft.yMax, shaft.xMin, 1500
    pen, middle = TTGlyphPen(None), (low + high) // 2
    for outline in (
        [(left, low), (left, high), (tip - 300, high), (tip - 300, low)],
        [(tip - 430, middle - 330), (tip - 430, middle + 330), (tip, middle)],
    ):
        pen.moveTo(outline[0])
        for point in outline[1:]:
            pen.lineTo(point)
        pen.closePath()
    font.setGlyphOrder([*font.getGlyphOrder(), "arrow"])
    font["glyf"]["arrow"], font["hmtx"]["arrow"] = pen.glyph(), (tip + left, left)
    for table in font["cmap"].tables:
        table.cmap[ord("→")] = "arrow"
    # A name that no machine has another font under.
    for entry, name in {1: "Chart Sans", 4: f"Chart Sans {weight}", 6: f"ChartSans-{weight}", 16: "Chart Sans"}.items():
        font["name"].setName(name, entry, 3, 1, 0x409)
    font["name"].setName(weight, 17, 3, 1, 0x409)
    font["name"].setName("Regular", 2, 3, 1, 0x409)
    font.save(target)
