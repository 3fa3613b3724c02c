"""Values that a text inserts, and sentences that stand beside what makes them true."""

import numpy as np
import pytest

from icl_book.claims import VerdictChanged
from icl_book.prose import GLUE_MIME, SAID_MIME, Said, glue, said


def test_what_is_said_is_kept_unseen(monkeypatch):
    """True words go into the notebook's output, where the build finds them and a reader sees nothing."""
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    said("3 of 10 starts", np.bool_(True))
    said("no condition")
    assert shown == [Said("3 of 10 starts"), Said("no condition")]
    bundle = shown[0]._repr_mimebundle_()
    assert bundle[SAID_MIME] == "3 of 10 starts"
    assert bundle["text/html"].startswith("<!--")


def test_what_is_not_so_stops_the_cell():
    """A condition that does not hold is an error that quotes the sentence."""
    with pytest.raises(VerdictChanged, match="the page says 'all arrive', and it is not so"):
        said("all arrive", np.bool_(False))


@pytest.mark.parametrize(
    ("words", "condition", "says"), [(" ", True, "words"), (3, True, "words"), ("so", 1, "condition")]
)
def test_what_is_no_sentence_is_refused(as_installed, words, condition, says):
    """No words, words that are no text, a condition that is no truth value."""
    with pytest.raises(ValueError, match=f"^{says} must"):
        said(words, condition)


def test_glue_names_a_value_out_of_sight(monkeypatch):
    """A value keeps all its digits, under the name and the type by which MyST-NB knows it; others are refused."""
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw, metadata: shown.append((data, metadata)))
    glue(worst=np.float64(2.3456789), turn=13, name="GLA")
    assert [data for data, _ in shown] == [{GLUE_MIME: text} for text in ("2.3456789", "13", "'GLA'")]
    assert [metadata["scrapbook"]["name"] for _, metadata in shown] == ["worst", "turn", "name"]
    for wrong in (True, None, [1], np.array([1.0]), np.inf, float("nan")):
        with pytest.raises(ValueError, match="worst must be"):
            glue(worst=wrong)
