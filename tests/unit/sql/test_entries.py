"""The statements that open the arrays of indexes of arrays."""

import re

import pytest

from collections_store import Index
from collections_store.sql.dialects.sqlite.entries import entries
from collections_store.sql.entries import steps_of


@pytest.mark.parametrize("paths", [["a"], ["a.b", "a.c"], ["a.b.c", "a.d", "e"]])
def test_sqlite_opens_columns_not_values_computed_for_each_row(paths: list[str]) -> None:
    """An argument computed in place would be computed for each element of an array beside it: quadratic time."""
    index = Index.parse(paths, arrays=True, unique=True)
    statement = entries("NEW.body", "NEW.seq", index)
    opened = re.findall(r"json_each\((\w+)\)", statement)
    assert sorted(opened) == [f"o{n}" for n in range(len(steps_of(index)))]
    assert statement.count("json_each(") == len(opened)
