"""What a page card says of a page: how long it takes to read."""

import measurements

PAGE = """# A page

Four words and $x$ here.

$$y = 1$$

\\begin{equation*}
z = 2
\\end{equation*}

```{code-cell}
a = 1

b = 2
```

```{code-cell}
:tags: [hide-input]

claim("one")
charts.lines(table)
```

```{dropdown} Beside the line
Words that only those read who open it, and $z$.
```

## Exercises

Much more to do, with $w$ and

```{code-cell}
charts.dots(table)
```
"""


LINE = """# A page

Six words and `code` ({py:func}`icl.a`) of $x$, [a label](elsewhere.md).

| a | table |
|---|---|
| not | counted |

$$y = 1$$

```{code-cell}
:tags: [hide-input]

def drawn(table):
    return charts.lines(table)


claim("one").holds(True)
```

Four words come now.

```{code-cell}
drawn(table)
drawn(other, explorable=charts.Explorable("f", []))
```

```{code-cell}
table.round(2)
```

More.

```{code-cell}
row.holds(True)
```

## Exercises

No more.
"""


def test_pace_counts_words_between_figures():
    """Words without formulas, tables and targets of links; each call of a function that draws; sliders; the stretch."""
    assert measurements.pace(LINE) == {
        "words": 15,
        "figures": 2,
        "explorables": 1,
        "displays": 1,
        "tables": 2,
        "stretch": 14,
    }
    assert measurements.pace("# Bare\n\nThree words here.\n") == {
        "words": 4,
        "figures": 0,
        "explorables": 0,
        "displays": 0,
        "tables": 0,
        "stretch": 4,
    }


def test_reading_time_counts_what_is_in_sight():
    """Words, formulas, displays, figures and lines of code that are not folded, up to the exercises; no dropdown."""
    counted = measurements.reading(PAGE)
    assert counted == {"words": 6, "formulas": 1, "displayed": 2, "lines": 2, "figures": 1}
    alone = {kind: measurements.minutes({kind: 60}) for kind in measurements.MINUTES}
    assert alone == {"words": 0.4, "formulas": 9, "displayed": 30, "figures": 40.2, "lines": 1.5}
    assert measurements.minutes(counted | {"figures": 3}) == 6 / 150 + 0.15 + 1 + 3 * 0.67 + 2 / 40
