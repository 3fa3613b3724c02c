"""The scripts and styles that the pages use, the site's own and those of others: nothing is fetched from elsewhere."""

import importlib.metadata
import json
from pathlib import Path

import chapters
import vl_convert

from icl import _files
from icl_book import charts

#: What TeX input and CommonHTML output load, and no more: about a quarter of the package.
MATHJAX = ("tex-chtml.js", "output/chtml/fonts", "input/tex/extensions", "a11y", "sre")


def lay(static: Path) -> None:
    """Have MathJax and Vega in a folder, every file whole, whatever a build that was stopped has left there."""
    _copy_assets(static)
    _mathjax(static / "mathjax")
    _vega(static / "vega" / "vega-bundle.js")


def _copy_assets(static: Path) -> None:
    # Sphinx copies them when a page has changed, too; where a style sheet alone has, it leaves the older one.
    for path in (chapters.ROOT / "book/_assets").iterdir():
        copy = static / path.name
        if not (copy.is_file() and copy.read_bytes() == path.read_bytes()):
            _write(copy, path.read_bytes())


def _mathjax(folder: Path) -> None:
    packed = importlib.metadata.files("sphinx-mathjax-offline") or []
    origin = Path(next(file for file in packed if file.name == MATHJAX[0]).locate()).parent
    for part in MATHJAX:
        for path in (origin / part, *(origin / part).rglob("*")):
            copy = folder / path.relative_to(origin)
            if path.is_file() and not (copy.is_file() and copy.read_bytes() == path.read_bytes()):
                _mend(copy, path.read_bytes())


def _vega(bundle: Path) -> None:
    # Making it takes seconds: it is told by its first line, and by its last that it is whole.
    versions = f"Vega-Lite {charts._VEGALITE} by vl-convert {importlib.metadata.version('vl-convert-python')}"
    first = f"// {versions}\n(() => {{".encode()
    # With what draws the charts comes the font that measures them.
    last = f"}})();\nwindow.iclFont = {json.dumps(charts.font_face(400) + charts.font_face(500))};\n".encode()
    content = bundle.read_bytes() if bundle.is_file() else b""
    if not (content.startswith(first) and content.endswith(last)):
        script = vl_convert.javascript_bundle(vl_version=charts._VEGALITE)
        _mend(bundle, first + script.encode() + b"\n" + last)


def _mend(path: Path, content: bytes) -> None:
    if path.exists():
        print(f"   mended  {path.name} of the site, which was not whole or is of another version now", flush=True)
    _write(path, content)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    _files.write(path, content)
