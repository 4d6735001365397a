"""Statements over ids are compiled once for all tables, and are those that each table's own compilation gives."""

import pytest

from collections_store.options import CollectionOptions, Feed, Names
from collections_store.sql.by_id import IdStatements, Statement
from collections_store.sql.dialects import named
from collections_store.sql.schema import documents_table

OPTIONS = (
    CollectionOptions(),
    CollectionOptions(feed=Feed()),
    CollectionOptions(jsonb=True, sliding=True, feed=Feed(bodies="both")),
)
STATEMENTS = [name for name, each in vars(IdStatements).items() if isinstance(each, Statement)]


@pytest.mark.parametrize(("table", "schema"), [('cs_$1_we"ird', 'my "bots"'), ("<table>s", None)])
@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_templates_are_what_the_table_itself_gives(
    dialect: str, table: str, schema: str | None
) -> None:
    database, names = named(dialect), Names(schema=schema)
    for options in OPTIONS:
        documents = documents_table(table, names, database, jsonb=options.jsonb)
        usual, own = (IdStatements(documents, options, database) for _ in range(2))
        own.template = None
        for name in STATEMENTS:
            if name in ("put_lists", "insert_lists") and not database.takes_lists:
                continue
            assert getattr(usual, name) == getattr(own, name)
            assert "<table>" not in getattr(usual, name) or table == "<table>s"


def test_stores_share_templates() -> None:
    database = named("sqlite")
    first, second = (
        IdStatements(documents_table(name, Names(), database), CollectionOptions(), database)
        for name in ("cs_1_a", "cs_2_b")
    )
    assert first.template is second.template
    assert first.get != second.get
