"""Names as SQL are those that SQLAlchemy renders, and none stays in memory."""

import tracemalloc

import pytest
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.sql import quoted_name

from collections_store.sql.dialects import named

THEIRS = {"sqlite": SQLiteDialect_pysqlite, "postgresql": PGDialect_psycopg}
NAMES = ["cs_1_a", "A", "select", 'a"b', "a%b", "", "$a", "a$b", "1a", "a b", "ä"]


@pytest.mark.parametrize("dialect", THEIRS)
def test_names_are_quoted_as_by_sqlalchemy(dialect: str) -> None:
    compiler = named(dialect).compiler
    for ours in (compiler.dialect, compiler.row_dialect):
        theirs = THEIRS[dialect](paramstyle=ours.paramstyle).identifier_preparer
        for name in NAMES:
            for each in (name, *(quoted_name(name, quote) for quote in (None, True, False))):
                assert ours.identifier_preparer.quote(each) == theirs.quote(each)


@pytest.mark.parametrize("dialect", THEIRS)
def test_no_name_stays_in_memory(dialect: str) -> None:
    compiler = named(dialect).compiler
    for ours in (compiler.dialect, compiler.row_dialect):
        ours.identifier_preparer.quote("cs_1_a")
        tracemalloc.start()
        try:
            for number in range(10_000):
                ours.identifier_preparer.quote(f"cs_{number}_a")
            assert tracemalloc.get_traced_memory()[0] < 100_000
        finally:
            tracemalloc.stop()
