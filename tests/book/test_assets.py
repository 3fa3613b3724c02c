"""Scripts and styles are whole on the site, whatever a build that was stopped has left there."""

import shutil

import assets
import pytest
import vl_convert


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """Everything, laid once; the bundle, which takes seconds to make, in a short form."""
    place = tmp_path_factory.mktemp("static")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vl_convert, "javascript_bundle", lambda vl_version: "const all = 'of Vega';")
        assets.lay(place)
        yield place


@pytest.fixture
def laid(once, tmp_path):
    """A folder with everything in it."""
    return shutil.copytree(once, tmp_path / "static")


def contents(folder):
    """Every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("mathjax/tex-chtml.js", "gone"),
        ("mathjax/tex-chtml.js", "cut short"),
        ("mathjax/tex-chtml.js", "altered"),
        ("mathjax/output/chtml/fonts", "gone"),
        ("vega/vega-bundle.js", "gone"),
        ("vega/vega-bundle.js", "cut short"),
        ("vega/vega-bundle.js", "of another version"),
        ("vega", "gone"),
        ("style.css", "cut short"),
    ],
)
def test_what_is_not_whole_is_laid_again(laid, name, damage, capsys):
    """A file that is missing, cut short or of another version is replaced; nothing else is left behind.

    A script of others that was there and is not whole is named in a line.
    """
    whole = contents(laid)
    assert len(whole) > 50
    path = laid / name
    if damage == "gone":
        for file in [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]:
            file.unlink()
    elif damage == "cut short":
        path.write_bytes(path.read_bytes()[:-7])
    elif damage == "altered":
        path.write_bytes(bytes(100) + path.read_bytes()[100:])
    else:
        path.write_bytes(path.read_bytes().replace(b"Vega-Lite", b"Vega-Lite of old"))
    assert contents(laid) != whole
    assets.lay(laid)
    assert contents(laid) == whole
    said = f"   mended  {path.name} of the site" if damage != "gone" and name != "style.css" else ""
    assert capsys.readouterr().out[: len(said) or None] == said


def test_what_is_whole_is_left_alone(laid):
    """The second build writes nothing."""
    times = {path: path.stat().st_mtime_ns for path in laid.rglob("*")}
    assets.lay(laid)
    assert {path: path.stat().st_mtime_ns for path in laid.rglob("*")} == times
