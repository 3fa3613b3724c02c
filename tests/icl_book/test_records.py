"""A record comes back as it was, says where it is from, and is refused when it is damaged or from elsewhere."""

import dataclasses
import json
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from icl import _files
from icl_book import claims, closure, records
from icl_book.claims import VerdictChanged
from icl_book.records import Record, record, recorded

TABLE = pd.DataFrame({"gamma": [0.8, 0.95], "model": ["GLA", "Kalman"], "mean": [1 / 3, 2e-300], "se": [0.1, 0.1]})
CONFIG = {"sizes": [5, 100], "seed": 0}


def test_a_record_comes_back_as_it_was(book):
    """A table that is recorded and read again is the same to the last bit, with the configuration that made it."""
    path = record("run", TABLE, config=CONFIG, seconds=12.34)
    assert path == book / "results" / "run.json"
    back = recorded("run")
    pd.testing.assert_frame_equal(back.table, TABLE, check_exact=True)
    assert back.provenance["config"] == CONFIG
    assert back.provenance["seconds"] == 12.3
    # Those that compute: what shows it, and what writes it to the disk, are none of them.
    computing = closure.modules("from icl.tasks import blocks")
    assert back.provenance["modules"] == {name: closure.file_hash(name) for name in computing}
    assert "icl.tasks.core" in computing
    assert set(back.provenance["versions"]) == {"torch", "numpy", "scipy", "pandas", "python"}
    assert back.provenance["command"] == "make paper"
    assert back.current
    assert [p.name for p in (book / "results").iterdir()] == ["run.json"]


@pytest.mark.parametrize(("used", "device"), [(False, "CPU, "), (True, "a GPU's name")])
def test_a_record_names_the_gpu_that_made_it(book, monkeypatch, used, device):
    """One that was used, under the profile `paper`; one that is there and was not is not named."""
    monkeypatch.setenv("ICL_PROFILE", "paper")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: used)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU's name")
    record("run", TABLE, config=CONFIG, seconds=1)
    assert recorded("run").provenance["device"].startswith(device)


@pytest.mark.parametrize("seconds", [0, -1.0, np.nan, np.inf])
def test_a_record_took_some_time(book, seconds):
    """A wall time that is not positive and finite is refused by name, and nothing is written."""
    with pytest.raises(ValueError, match=f"seconds must be positive and finite, got {seconds}"):
        record("run", TABLE, config=CONFIG, seconds=seconds)
    assert not list((book / "results").iterdir())


@pytest.mark.parametrize("name", ["", ".", "..", "../run", "a/b", "a b"])
def test_a_record_stays_in_its_folder(book, name):
    """A name that is no plain file's is refused, and nothing is written, in the folder of results or beside it."""
    with pytest.raises(ValueError, match="id must be a file's name"):
        record(name, TABLE, config=CONFIG, seconds=1)
    assert {path.name for path in book.rglob("*")} == {"claims", "results"}


def test_a_record_of_an_older_library_says_so(book):
    """A record is shown as older if a module of those that made it has changed or is gone, or if it does not name them;
    one made with what is there now is not."""
    record("run", TABLE, config={"model": "<b>"}, seconds=1, command="make <b>")
    fresh = recorded("run")
    assert "has changed since" not in fresh._repr_html_()
    assert "<b>" not in fresh._repr_html_()
    assert fresh._repr_html_().count("&lt;b&gt;") == 2
    made_by = fresh.provenance["modules"]
    for other in (made_by | {"icl.tasks.core": "0" * 16}, made_by | {"icl.gone": "0" * 16}, None):
        older = dataclasses.replace(fresh, provenance=fresh.provenance | {"modules": other})
        assert not older.current
        assert older._repr_html_().count("The library has changed since (commit ") == 1
    assert dataclasses.replace(fresh, provenance=fresh.provenance | {"modules": {}}).current


def test_records_that_are_not_current_are_listed(book):
    """By id, day and commit, and no others."""
    record("fresh", TABLE, config=CONFIG, seconds=1)
    path = record("older", TABLE, config=CONFIG, seconds=1)
    assert list(records._stale()) == []
    content = json.loads(path.read_text())
    content["provenance"] |= {"date": "2026-01-02", "commit": "0123456789ab", "modules": {"icl.tasks": "0"}}
    del content["checksum"]
    path.write_text(json.dumps(content | {"checksum": _files.checksum(content)}))
    assert list(records._stale()) == ["older  2026-01-02  01234567"]


def test_a_quick_run_is_not_recorded(book, monkeypatch):
    """A call that forgot to ask for the profile is refused where a build runs it, and nothing is written."""
    monkeypatch.setenv("ICL_PROFILE", "quick")
    with pytest.raises(ValueError, match="record must be called at the profile paper alone"):
        record("run", TABLE, config=CONFIG, seconds=1)
    assert not list((book / "results").iterdir())


def test_the_origin_of_a_record_is_its_caption(book):
    """A record's origin shows where it comes from as the record does, and nothing of the table."""
    record("run", TABLE, config=CONFIG, seconds=1)
    shown = recorded("run")
    table, caption = shown._repr_html_().split("<p class='icl-record'>")
    assert "Kalman" in table
    assert shown.origin._repr_html_() == "<p class='icl-record'>" + caption
    assert shown.origin.provenance == shown.provenance


PROVENANCE = {
    "command": "",
    "config": {},
    "versions": {},
    "device": "",
    "seconds": 1,
    "date": "",
}
WHOLE = {"id": "run", "provenance": PROVENANCE, "table": [{"a": 1}]}
WHOLE |= {"checksum": _files.checksum(WHOLE)}


@pytest.mark.parametrize("length", [0, 1, 20, 100, -2])
def test_a_partly_written_record_is_refused(book, length):
    """A record that was cut short anywhere is refused, with its path."""
    text = json.dumps(WHOLE)
    (book / "results" / "run.json").write_text(text)
    assert list(recorded("run").table["a"]) == [1]
    (book / "results" / "run.json").write_text(text[:length])
    with pytest.raises(ValueError, match=r"cannot read the record .*results/run\.json"):
        recorded("run")


DAMAGED = {
    "of another run": WHOLE | {"id": "walk"},
    "without a name": {key: value for key, value in WHOLE.items() if key != "id"},
    "without a table": {key: value for key, value in WHOLE.items() if key != "table"},
    "without provenance": {key: value for key, value in WHOLE.items() if key != "provenance"},
    "with empty provenance": WHOLE | {"provenance": None},
    "with a table that is none": WHOLE | {"table": "text"},
    "of a list": [WHOLE],
    "of a number": 7,
} | {
    f"without its {key}": WHOLE | {"provenance": {k: v for k, v in PROVENANCE.items() if k != key}}
    for key in PROVENANCE
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_foreign_or_damaged_record_is_refused(book, content):
    """A record that is missing a part, or is another's, is refused, with its path."""
    (book / "results" / "run.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"cannot read the record .*results/run\.json: ."):
        recorded("run")


CHANGED = {
    "a cell": lambda content: content["table"][0].update(mean=0.4),
    "a cell's kind": lambda content: content["table"][0].update(gamma="0.8"),
    "a row": lambda content: content["table"].pop(),
    "the date": lambda content: content["provenance"].update(date="2020-01-01"),
    "the device": lambda content: content["provenance"].update(device="a supercomputer"),
    "a size": lambda content: content["provenance"]["config"].update(seed=1),
    "the modules": lambda content: content["provenance"].update(modules={}),
    "the checksum": lambda content: content.pop("checksum"),
}


@pytest.mark.parametrize("edit", CHANGED.values(), ids=CHANGED)
def test_a_record_that_is_not_as_written_is_refused(book, edit):
    """A cell that nothing else covers, a row, the provenance or the checksum itself: what the run did not write is
    refused, with its path; its layout may change.
    """
    path = record("run", TABLE, config=CONFIG, seconds=1)
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content, sort_keys=True))
    pd.testing.assert_frame_equal(recorded("run").table[list(TABLE)], TABLE, check_exact=True)
    edit(content)
    path.write_text(json.dumps(content, indent=1))
    with pytest.raises(ValueError, match=r"cannot read the record .*results/run\.json: its checksum is not that of"):
        recorded("run")


def test_unreadable_and_missing_records_are_refused(book):
    """A record that is not there, is a folder or is no text is refused, with its path."""
    with pytest.raises(ValueError, match=r"cannot read the record .*results/run\.json"):
        recorded("run")
    (book / "results" / "run.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"cannot read the record .*results/run\.json"):
        recorded("run")
    (book / "results" / "walk.json").mkdir()
    with pytest.raises(ValueError, match=r"cannot read the record .*results/walk\.json"):
        recorded("walk")


@pytest.mark.parametrize("broken", ["the table", "fsync", "replace"])
def test_the_old_record_survives_a_failed_write(book, monkeypatch, broken):
    """If writing a record fails at any point, what stood there before is still there, whole."""
    record("run", TABLE, config=CONFIG, seconds=1)

    def fail(*arguments, **named):
        raise OSError("no space left")

    table = TABLE.assign(model=[object(), object()]) if broken == "the table" else TABLE
    if broken == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    if broken == "replace":
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises((OSError, TypeError)):
        record("run", table, config={"sizes": "new"}, seconds=1)
    monkeypatch.undo()
    monkeypatch.setattr(records, "folder", lambda name: book / name)
    assert recorded("run").provenance["config"] == CONFIG
    pd.testing.assert_frame_equal(recorded("run").table, TABLE, check_exact=True)


def test_a_record_is_on_the_disk_before_it_takes_its_name(book, monkeypatch):
    """A record is written under another name, flushed to the disk, and renamed only then."""
    events = []
    fsync, replace = os.fsync, Path.replace
    path = book / "results" / "run.json"

    def synced(descriptor):
        events.append(("fsync", path.exists()))
        fsync(descriptor)

    def renamed(self, target):
        json.loads(self.read_text())
        events.append(("replace", self.parent == target.parent))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    record("run", TABLE, config=CONFIG, seconds=1)
    assert events == [("fsync", False), ("replace", True)]


def covers(live, **options):
    recorded = Record("run", TABLE, {})
    return recorded.covers(pd.DataFrame(live), on=["gamma", "model"], value="mean", standard_error="se", **options)


def test_a_quick_run_near_the_record_is_covered():
    """Rows in any order, and fewer than were recorded, are compared in combined standard errors; the
    worst is returned.
    """
    live = {"gamma": [0.95, 0.8], "model": ["Kalman", "GLA"], "mean": [0.2, 1 / 3], "se": [0.1, 0.1]}
    assert covers(live) == pytest.approx(0.2 / np.hypot(0.1, 0.1), rel=1e-12)
    assert covers({key: values[1:] for key, values in live.items()}) == 0


@pytest.mark.parametrize("mean", [1 / 3 + 0.75, 1 / 3 - 0.75, np.nan, np.inf])
def test_a_quick_run_that_strays_is_refused(mean):
    """A row more than five combined standard errors from the record is refused, and so is one that is no number.

    One row strays among one that does not.
    """
    with pytest.raises(VerdictChanged, match="strays"):
        covers({"gamma": [0.8, 0.95], "model": ["GLA", "Kalman"], "mean": [mean, 0.0], "se": [0.1, 0.1]})


def test_a_quick_run_that_the_record_does_not_know_is_refused():
    """Rows that the record lacks, and rows that stand twice, are refused; so is a run without rows."""
    with pytest.raises(ValueError, match="rows that the record lacks"):
        covers({"gamma": [0.8], "model": ["LMS"], "mean": [0.3], "se": [0.1]})
    with pytest.raises(ValueError, match="not unique"):
        covers({"gamma": [0.8] * 2, "model": ["GLA"] * 2, "mean": [0.3] * 2, "se": [0.1] * 2})
    with pytest.raises(VerdictChanged):
        covers({"gamma": np.zeros(0), "model": np.zeros(0, dtype=str), "mean": np.zeros(0), "se": np.zeros(0)})


FORMULAS = sorted(path.stem for path in claims.folder("results").glob("*.json") if '"simulated"' in path.read_text())


@pytest.mark.parametrize("name", FORMULAS)
def test_a_records_formula_is_computed_again(name):
    """In every record with a simulation beside its formula: columns that are exchanged, a formula that is changed and
    one that the quick run leaves out are refused, whatever the checksum; the formula that is right is not.
    """
    kept = recorded(name)
    (key, formula), live = kept.table.columns[:2], kept.table.copy()
    how = {"on": [key], "value": "simulated", "standard_error": "s.e."}
    assert kept.covers(live, **how) == 0
    exchanged = kept.table.rename(columns={formula: "simulated", "simulated": formula})
    off = kept.table.assign(**{formula: kept.table[formula] * (1 + 1e-8)})
    for table in (exchanged, off):
        with pytest.raises(VerdictChanged, match=re.escape(f"{name}: the recorded {formula} is not what the formula")):
            Record(name, table, {}).covers(live, **how)
    with pytest.raises(ValueError, match=re.escape(f"must compute {formula}")):
        kept.covers(live.drop(columns=formula), **how)


def test_records_with_a_formula_are_these():
    """A formula's column is named by its equation, so that the test above sees it."""
    assert FORMULAS == ["gla-testing-error", "gla-theorem-4", "gla-training-error"]
    columns = {path.stem: [*recorded(path.stem).table] for path in claims.folder("results").glob("*.json")}
    assert {name for name, of in columns.items() if any(c.startswith("(") for c in of)} == {*FORMULAS}
