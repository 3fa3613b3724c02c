"""Files that are whole or not there, whoever else writes them and whatever the disk says."""

import errno
import os
import subprocess
import sys
import threading
import time

import pytest

from icl import _files


def test_those_who_write_at_once_do_not_spoil_each_others(tmp_path):
    """Four threads write a file each in their own letters; whoever reads it finds one letter, in full, and no error.

    Planted: with one draft for all and no lock, a rename found no draft, and a reader half a file.
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
        time.sleep(0.001)
    assert faults == []
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_writing_left_is_written_over(tmp_path):
    """A longer draft of a process that is gone leaves no byte in the file, and is gone."""
    (tmp_path / "a.part").write_bytes(b"half of something long")
    _files.write(tmp_path / "a", b"short")
    assert (tmp_path / "a").read_bytes() == b"short"
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_a_full_disk_is_told_with_the_path_and_keeps_the_old_file(tmp_path, monkeypatch):
    """No space at any point: the error names the file, which is as it was, and the draft is gone."""
    path = tmp_path / "a"
    _files.write(path, b"old")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        _files.write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_named(tmp_path):
    """In the error, as whoever asked knows it."""
    with pytest.raises(FileNotFoundError, match="gone/a'"):
        _files.write(tmp_path / "gone" / "a", b"")


def test_the_library_is_imported_without_what_windows_lacks(tmp_path):
    """No `fcntl` and no `os.sysconf`: all is imported, tasks are made, and a write says what it lacks."""
    program = f"""
import os, pathlib, sys
import joblib, scipy, torch  # what they ask of this system is their own affair
sys.modules["fcntl"] = None
del os.sysconf
import icl_bench.running, icl_book.records, icl.theory
from icl import _files
from icl.tasks import DriftingRegression
print(DriftingRegression(3, 5, 0.9).d)
try:
    _files.write(pathlib.Path({str(tmp_path)!r}) / "a", b"")
except NotImplementedError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["3", "files are written under POSIX locks: on Windows, use WSL"]
