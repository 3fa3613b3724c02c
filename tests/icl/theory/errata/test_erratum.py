"""What an entry of a list of errata says, whatever the paper."""

import dataclasses
import typing

import pytest

from icl.tasks import DriftingRegression
from icl.theory.errata import (
    ADAPTATION,
    ADAPTATION_STATEMENTS,
    MEMORY,
    MEMORY_STATEMENTS,
    SELECTION,
    SELECTION_STATEMENTS,
    Erratum,
    Statement,
)


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


@pytest.mark.parametrize(
    "listed",
    [ADAPTATION_STATEMENTS, MEMORY_STATEMENTS, SELECTION_STATEMENTS],
    ids=["adaptation", "memory", "selection"],
)
def test_every_statement_is_complete(listed):
    """Statements name their place, what is said and what holds, and are listed once."""
    assert len({statement.says for statement in listed}) == len(listed) > 0
    for statement in listed:
        assert isinstance(statement, Statement)
        assert all(text.strip() for text in (statement.where, statement.says, statement.holds))
        assert statement.says != statement.holds


def test_the_drift_knows_no_forgetting_factor():
    """What the first statement of the first paper overlooks: lambda is no parameter of the data."""
    names = {field.name for field in dataclasses.fields(DriftingRegression)}
    assert {"gamma", "sigma_e"} <= names
    assert not names & {"lam", "lambda_"}
