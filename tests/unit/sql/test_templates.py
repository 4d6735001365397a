"""Statements are compiled once for all tables with equal options, and are those that each table's own compilation gives."""

from typing import Any

import pytest
import sqlalchemy as sa

from collections_store import Filter, Index, Sort
from collections_store.options import CollectionOptions, Feed, Names
from collections_store.sql.by_id import IdStatements
from collections_store.sql.catalogue import CatalogueStatements
from collections_store.sql.dialects import named
from collections_store.sql.dialects.protocols import Database
from collections_store.sql.feed import FeedStatements
from collections_store.sql.schema import documents_table, feed_table
from collections_store.sql.select import Statements
from collections_store.sql.statement import TEMPLATE, Statement

OPTIONS = (
    CollectionOptions(),
    CollectionOptions(feed=Feed(), indexes=(Index.parse("a.b"), Index.parse("n", unique=True))),
    CollectionOptions(jsonb=True, sliding=True, feed=Feed(bodies="both")),
)
ODD = f'"{TEMPLATE[:-1]}"'
FILTER = Filter.parse({"a.b": 1, "$or": [{"n": {"$gt": 2}}, {ODD: "x"}], "t": {"$exists": True}})
TABLES = pytest.mark.parametrize(
    ("table", "schema"), [('cs_$1_we"ird', 'my "bot\'s"'), ("<table>", None)]
)
DIALECTS = pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])


def both(
    table: str, schema: str | None, options: CollectionOptions, database: Database
) -> tuple[Statements, Statements]:
    """Return a table's statements as usual, and without a template."""
    documents = documents_table(table, Names(schema=schema), database, jsonb=options.jsonb)
    usual, own = (Statements(documents, options, database) for _ in range(2))
    assert usual.shared is not None
    own.shared = own.by_id.template = None
    return usual, own


@TABLES
@DIALECTS
def test_statements_over_ids_are_those_of_the_table(
    dialect: str, table: str, schema: str | None
) -> None:
    database = named(dialect)
    for options in OPTIONS:
        usual, own = both(table, schema, options, database)
        for name, each in vars(IdStatements).items():
            if isinstance(each, Statement) and (
                database.takes_lists or not name.endswith("_lists")
            ):
                assert getattr(usual.by_id, name) == getattr(own.by_id, name)
                assert TEMPLATE not in getattr(usual.by_id, name)


@TABLES
@DIALECTS
def test_statements_over_filters_are_those_of_the_table(
    dialect: str, table: str, schema: str | None
) -> None:
    for options in OPTIONS:
        usual, own = (all_queries(each) for each in both(table, schema, options, named(dialect)))
        assert usual == own
        assert TEMPLATE not in repr(usual)


@TABLES
@DIALECTS
def test_statements_over_feeds_are_those_of_the_table(
    dialect: str, table: str, schema: str | None
) -> None:
    names, database, feed = Names(schema=schema), named(dialect), Feed(physical=table)
    usual = CatalogueStatements(names, database).feed(feed)
    own = FeedStatements(feed, feed_table(table, names, database), database)
    for name, each in vars(FeedStatements).items():
        if isinstance(each, Statement):
            assert getattr(usual, name) == getattr(own, name)
            assert TEMPLATE not in getattr(usual, name)


def all_queries(s: Statements) -> list[Any]:
    """Compile everything over a filter; return texts and parameters."""
    sort, keys = Sort.parse([("n", -1), ("a.b", 1)]), ("a", "b")
    queries = [
        s.select(FILTER),
        s.select(FILTER, sort),
        s.select(FILTER, sort, 1),
        s.select(FILTER, sort, indexed=False),
        s.select_without_arrays(FILTER, sort),
        s.select_with_arrays(FILTER, sort),
        s.count(FILTER),
        s.count(FILTER, indexed=False),
        s.ids(FILTER),
        s.guard(FILTER),
        s.guard(Filter.parse()),
        s.delete(FILTER, indexed=True),
        s.distinct(FILTER, keys),
        s.bodies_with_array(FILTER, keys),
        s.has_array(FILTER, keys),
        s.group(FILTER, (keys, ("n",))),
    ]
    found = [
        each and (each.sql, each.parameters(FILTER, {"now": 0}), each.guard) for each in queries
    ]
    return [*found, s.statistics]


def test_stores_share_templates() -> None:
    database = named("sqlite")
    first, second = (both(name, None, CollectionOptions(), database)[0] for name in ("a", "b"))
    assert first.shared is second.shared
    assert first.by_id.template is second.by_id.template
    assert first.select(FILTER) != second.select(FILTER)


@pytest.mark.parametrize("index", [{"arrays": True}, {"where": {"b": True}}])
def test_options_that_sql_has_more_of_have_no_template(index: dict[str, Any]) -> None:
    database = named("sqlite")
    options = CollectionOptions(indexes=(Index.parse("a", **index),))
    table: sa.Table = documents_table("a", Names(), database)
    assert Statements(table, options, database).shared is None
