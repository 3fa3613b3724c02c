"""A book of its own for the tests of its ledger and its records."""

import pytest

from icl import _source
from icl_book import claims, records

#: A program that a record is made by.
RUNNING = "from icl.tasks import blocks\nfrom icl_book import records"


@pytest.fixture
def book(tmp_path, monkeypatch):
    """An empty book: folders for the ledger and the records, and nothing in them."""
    for name in ("claims", "results"):
        (tmp_path / name).mkdir()
    for module in (claims, records):
        monkeypatch.setattr(module, "folder", lambda name: tmp_path / name)
    monkeypatch.setattr(_source, "program", lambda: RUNNING)
    claims.ledger.cache_clear()
    yield tmp_path
    claims.ledger.cache_clear()
