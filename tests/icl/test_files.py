"""Files that are whole or not there, whoever else writes them and whatever the disk says."""

import errno
import math
import os
import subprocess
import sys
import threading

import pytest

from icl import _files


@pytest.mark.parametrize("fails_at", ["fsync", "replace"])
@pytest.mark.parametrize("there", [True, False])
def test_a_writing_that_fails_leaves_what_was_there(tmp_path, monkeypatch, fails_at, there):
    """A full disk: the error names the file, which is as it was, and no draft is left."""
    path = tmp_path / "a"
    if there:
        _files.write(path, b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*((os, "fsync") if fails_at == "fsync" else (type(path), "replace")), full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        _files.write(path, b"new")
    assert [(each, each.read_bytes()) for each in tmp_path.iterdir()] == [(path, b"old")] * there


def test_a_writing_that_is_interrupted_leaves_no_draft(tmp_path, monkeypatch):
    """By whoever stops the program, in the middle of it."""

    def stopped(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", stopped)
    with pytest.raises(KeyboardInterrupt):
        _files.write(tmp_path / "a", b"new")
    assert list(tmp_path.iterdir()) == []


def test_those_who_write_at_once_leave_one_whole_file(tmp_path):
    """Four threads write a file each in their own letters; whoever reads it finds one letter, in full, and no error.

    Injected: with one draft for all, a rename finds no draft, or a reader half a file.
    """
    path, size, faults = tmp_path / "a", 100_000, []
    _files.write(path, b"a" * size)

    def write(letter):
        try:
            for _ in range(15):
                _files.write(path, letter * size)
        except OSError as error:
            faults.append(error)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"b", b"c", b"d", b"e")]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        found = path.read_bytes()
        assert found == found[:1] * size
    assert faults == []
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_named(tmp_path):
    """In the error, as whoever asked knows it."""
    with pytest.raises(FileNotFoundError, match="gone/a'"):
        _files.write(tmp_path / "gone" / "a", b"")


def test_a_file_is_written_without_what_windows_lacks(tmp_path):
    """No `fcntl` and no `os.sysconf`: the library is imported, and a file written."""
    program = f"""
import os, pathlib, sys
import joblib, scipy, torch  # what they ask of this system is their own affair
sys.modules["fcntl"] = None
del os.sysconf
import icl_bench.runner, icl_book.records, icl.theory
from icl import _files
_files.write(pathlib.Path({str(tmp_path)!r}) / "a", b"new")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_checksum_is_of_what_json_keeps():
    """Of values and names, to the last bit; not of their order, nor of what JSON makes a list or a string."""
    content = {"b": [0.1, float("inf")], "a": {1: "é", 10: None, 2: True}}
    read = {"a": {"10": None, "2": True, "1": "é"}, "b": (0.1, float("inf"))}
    assert _files.checksum(read) == _files.checksum(content)
    for other in ({"b": [0.1, 1.0]}, {"b": [math.nextafter(0.1, 1), float("inf")]}, {"c": 1}):
        assert _files.checksum(content | other) != _files.checksum(content)
