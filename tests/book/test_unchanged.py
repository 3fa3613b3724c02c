"""A build that would make what is there is not made; one that would make anything else is."""

import subprocess

import chapters
import pytest
import unchanged


def is_current():
    """Whether nothing would be built."""
    return unchanged.since_the_last_build(unchanged.sources())


@pytest.fixture
def built(tmp_path, monkeypatch):
    """A folder under git with one source and one page built from it; its path."""
    monkeypatch.setattr(chapters, "ROOT", tmp_path)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("_build\n")
    (tmp_path / "a.md").write_text("one")
    (tmp_path / "_build" / "html").mkdir(parents=True)
    (tmp_path / "_build" / "html" / "a.html").write_text("one")
    unchanged.remember(unchanged.sources())
    assert is_current()
    return tmp_path


def test_what_git_ignores_and_times_of_sources_do_not_matter(built):
    """Another file in an ignored folder, or a source written anew with the same text, changes nothing."""
    (built / "_build" / "log").write_text("line")
    (built / "a.md").write_text("one")
    assert is_current()


@pytest.mark.parametrize(
    ("name", "text"), [("a.md", "two"), ("b.md", "new"), ("a.md", None), ("_build/html/a.html", None)]
)
def test_a_change_is_seen(built, name, text):
    """A source with another text, a new one, a lost one, a lost page: each is built again; so it stays until it is."""
    path = built / name
    path.unlink() if text is None else path.write_text(text)
    assert not is_current()
    unchanged.remember(unchanged.sources())
    assert is_current()


def test_a_page_altered_by_hand_is_seen(built):
    """A page of the same size, but written since."""
    (built / "_build" / "html" / "a.html").write_text("two")
    assert not is_current()


def test_a_source_that_changed_while_the_build_ran_is_seen(built):
    """What is remembered are the sources as the build began."""
    before = unchanged.sources()
    (built / "a.md").write_text("two")
    unchanged.remember(before)
    assert not is_current()


def test_without_git_it_is_always_built(built):
    """In a folder that git does not know nothing is remembered, and what was is forgotten."""
    (built / ".git").rename(built / "git")
    assert unchanged.sources() is None
    assert not is_current()
    unchanged.remember(unchanged.sources())
    assert not (built / "_build" / "state").exists()


def test_what_was_lost_or_altered_of_the_site_is_told_from_what_changed(built):
    """Another source is no harm to the pages that are there; a page cut short, or gone, is."""
    (built / "a.md").write_text("two")
    (built / "_build" / "runs").mkdir()
    assert not is_current()
    assert unchanged.site_is_as_built()
    (built / "_build" / "html" / "a.html").write_text("on")
    assert not unchanged.site_is_as_built()
    unchanged.remember(unchanged.sources())
    assert unchanged.site_is_as_built()
    (built / "_build" / "html" / "a.html").unlink()
    assert not unchanged.site_is_as_built()
