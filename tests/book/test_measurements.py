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


def test_reading_time_counts_what_is_in_sight():
    """Words, formulas, displays, figures and lines of code that are not folded, up to the exercises; no dropdown."""
    counted = measurements.reading(PAGE)
    assert counted == {"words": 6, "formulas": 1, "displayed": 2, "lines": 2, "figures": 1}
    alone = {kind: measurements.minutes({kind: 60}) for kind in measurements.MINUTES}
    assert alone == {"words": 0.4, "formulas": 9, "displayed": 30, "figures": 40.2, "lines": 1.5}
    assert measurements.minutes(counted | {"figures": 3}) == 6 / 150 + 0.15 + 1 + 3 * 0.67 + 2 / 40
