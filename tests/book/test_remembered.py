"""What a build remembers of a text is what it would find out again."""

import pytest
import remembered


@pytest.fixture
def asked(tmp_path):
    """A question that counts how often it is answered, with a folder to remember in."""
    answered = []

    def ask(text, what="words"):
        def find(given):
            answered.append(given)
            return given.split()

        return remembered.of(what, text, find)

    ask.answered = answered
    with remembered.within(tmp_path / "remembered"):
        yield ask


def test_the_same_text_is_read_once(asked):
    """The second answer is the first one, and nobody looked."""
    assert asked("one two") == asked("one two") == ["one", "two"]
    assert asked.answered == ["one two"]


def test_another_text_or_question_is_not_taken_for_it(asked):
    """One letter more, or another thing asked of the same text, is found out anew."""
    asked("one two")
    assert asked("one twos") == ["one", "twos"]
    asked("one two", what="letters")
    assert asked.answered == ["one two", "one twos", "one two"]


def test_other_code_answers_anew(asked, monkeypatch):
    """What older code said of a text is not asked any more."""
    asked("one two")
    monkeypatch.setattr(remembered, "_code", lambda: "changed")
    asked("one two")
    assert asked.answered == ["one two", "one two"]


def test_the_code_is_all_that_may_answer(tmp_path, monkeypatch):
    """A file of the library, one of the book's own code, or the lock with another byte is other code."""
    for name in ("book/_ext/a.py", "lib/icl/tasks/b.py", "requirements.lock"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one")
    monkeypatch.setattr(remembered, "_ROOT", tmp_path)
    seen = []
    for name in ("book/_ext/a.py", "lib/icl/tasks/b.py", "requirements.lock"):
        remembered._code.cache_clear()
        seen.append(remembered._code())
        (tmp_path / name).write_text("two")
    remembered._code.cache_clear()
    assert len({*seen, remembered._code()}) == 4
    remembered._code.cache_clear()


def test_a_damaged_answer_is_found_out_anew(asked, tmp_path):
    """Half a file is no answer."""
    asked("one two")
    (path,) = (tmp_path / "remembered").iterdir()
    path.write_text(path.read_text()[:-2])
    assert asked("one two") == ["one", "two"]
    assert len(asked.answered) == 2


def test_a_whole_build_drops_what_other_code_said(asked, tmp_path, monkeypatch):
    """What the code as it is says stays, asked in this build or not; what other code said goes."""
    asked("old")
    monkeypatch.setattr(remembered, "_code", lambda: "changed")
    asked("new")
    remembered.tidy()
    assert len(list((tmp_path / "remembered").iterdir())) == 1
    asked("new")
    assert asked.answered == ["old", "new"]
    asked("another")
    with remembered.within(tmp_path / "remembered"):
        remembered.tidy()
        asked("new")
        asked("another")
    assert asked.answered == ["old", "new", "another"]


def test_outside_a_build_nothing_is_kept():
    """Tests and tools compute."""
    counted = []
    for _ in range(2):
        remembered.of("words", "text", counted.append)
    assert counted == ["text", "text"]
