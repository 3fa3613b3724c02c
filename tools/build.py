"""Build a page alone, or make the recorded runs; the whole book is `make book`, which is jupyter-book build.

python tools/build.py --page adaptation/depth   run a chapter if it changed, and render its page without the others;
                                                a warning is an error, but for names of the library
python tools/build.py --records                 run the chapters with records that are missing or stale at the profile
                                                paper; each writes its own into book/results
python tools/build.py --records --all           run all of them
"""

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))

import chapters
import runs
import yaml

from icl_book import records

#: An explicit target in a page's source: `(label)=`, or the label of an exercise or an equation.
TARGET = re.compile(r"^(?:\((\S+)\)=|:label: *(\S+))$", re.M)


def elsewhere(page: str) -> dict[str, Any]:
    """Settings of Sphinx that excuse links from a page to the book's other pages, which are not built with it.

    Links to nothing (a missing page, label or citation) stay errors. The library's names are those of other pages.
    """
    others = [each for each in chapters.pages() if each != page]
    labels = [a or b for each in others for a, b in TARGET.findall(chapters.source(each))]
    return {
        "nitpicky": True,
        "nitpick_ignore": [(kind, name) for kind in ("myst", "std:ref") for name in (*others, *labels)],
        # A figure of another page is `chapter/fig-...`, and `transclude` has looked for it there.
        "nitpick_ignore_regex": [("py:.*", ".*"), ("std:numref", rf"(?!{Path(page).name}/)[\w-]+/(fig|tab)-.*")],
        "suppress_warnings": ["mystnb.unknown_mime_type", "toc", "etoc"],
    }


def one_page(name: str) -> int:
    """Render one page with what it cites, in `_build/page`; return an exit status."""
    from jupyter_book.sphinx import build_sphinx

    page = f"book/{name.removeprefix('book/').removesuffix('.md')}"
    if page not in chapters.pages():
        raise chapters.Broken(f"_toc.yml: it has no page {page!r}")
    os.environ["ICL_PAGE"] = page
    site = chapters.built() / "page" / "html"
    contents = site.parent / "_toc.yml"
    contents.parent.mkdir(parents=True, exist_ok=True)
    cited = [{"file": each} for each in chapters.pages() if each.endswith("/bibliography") and each != page]
    contents.write_text(yaml.safe_dump({"format": "jb-book", "root": page, "chapters": cited}), encoding="utf-8")
    status = build_sphinx(
        str(chapters.ROOT),
        str(site),
        path_config=chapters.ROOT / "_config.yml",
        noconfig=True,
        confoverrides={
            "latex_individualpages": False,
            "external_toc_path": str(contents),
            **elsewhere(page),
        },
        quiet=True,
        warningiserror=True,
        keep_going=True,
    )
    if not status:
        print(f"Open {site / page}.html (alone: its links lead nowhere)")
    return int(bool(status))


def make_records(*, anew: bool) -> int:
    """Run chapters that record, one after another, in their own folders; return an exit status."""
    status = 0
    for page in chapters.with_cells():
        text = chapters.source(page)
        if not chapters.makes_records(text) or not (anew or any(map(_stale, chapters.records_of(text)))):
            continue
        how = {"place": (chapters.ROOT / page).parent, "timeout": runs.TIMEOUT["paper"]}
        work = {page: runs.download(page)}
        status |= any(error for *_, error in runs.execute_in_parallel(work, runs.kernel_environment("paper"), 1, **how))
    return status


def _stale(name: str) -> bool:
    """True for a record that is missing, and for a stale one that this command makes: benchmarks make others."""
    try:
        record = records.recorded(name)
    except ValueError:
        return True
    return record.provenance["command"] == "make paper" and not record.current


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and build."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--page", help="one chapter, such as adaptation/depth")
    what.add_argument("--records", action="store_true", help="make the recorded runs")
    parser.add_argument("--all", action="store_true", help="with --records: those too that are current")
    options = parser.parse_args(arguments)
    if options.page:
        return chapters.run_command(lambda: one_page(options.page), chapters.built() / "page")
    return chapters.run_command(lambda: make_records(anew=options.all))


if __name__ == "__main__":
    sys.exit(main())
