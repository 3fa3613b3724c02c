"""What a page card says of a page: how long it takes to read."""

import measurements
import nbformat
import runs

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
charts.curves(x, table)
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


def test_what_is_known_is_not_written_again(tiny):
    """A run says the same when it has just ended and when it is read from its file.

    Planted: with keys in the order in which a kernel said them, the page of a chapter that had just run was read and
    written again by the next build.
    """
    tiny.chapters(a=["x = 1"])
    said = {runs.CHECK: {"id": "gla.x", "verdict": "correct", "measured": "1", "a": 1}}
    cell = nbformat.v4.new_code_cell("x = 1", outputs=[nbformat.v4.new_output("display_data", said)])
    run = nbformat.v4.new_notebook(cells=[cell], metadata={"icl": {"seconds": 2.5}})
    measurements.collect(["book/a"], {"book/a": run})
    assert measurements.of("book/a")["seconds"] == 2.5
    assert measurements.of("book/a")["checks"] == [said[runs.CHECK]]
    before = measurements.place("book/a").stat().st_mtime_ns
    measurements.collect(["book/a"], {"book/a": nbformat.reads(nbformat.writes(run), as_version=4)})
    assert measurements.place("book/a").stat().st_mtime_ns == before
    run.metadata.icl.seconds = 3.5
    measurements.collect(["book/a"], {"book/a": run})
    assert measurements.of("book/a")["seconds"] == 3.5
