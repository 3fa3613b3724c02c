"""What an entry of a list of errata says, whatever the paper."""

import dataclasses
import typing

import pytest

from icl.theory.errata import ADAPTATION, MEMORY, SELECTION, Erratum


@pytest.mark.parametrize("listed", [ADAPTATION, MEMORY, SELECTION], ids=["adaptation", "memory", "selection"])
def test_every_entry_is_complete(listed):
    """Entries are numbered from 1; each is of one of two kinds, names its place, prints one thing and means another,
    and cannot be changed.
    """
    assert list(listed) == list(range(1, len(listed) + 1))
    kinds = typing.get_args(typing.get_type_hints(Erratum)["kind"])
    for entry in listed.values():
        assert isinstance(entry, Erratum)
        assert entry.kind in kinds
        assert all(text.strip() for text in (entry.where, entry.printed, entry.corrected))
        assert entry.printed != entry.corrected
        with pytest.raises(dataclasses.FrozenInstanceError):
            entry.printed = entry.corrected
