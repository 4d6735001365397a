"""The tables of docs/reference/indexes.md, row by row, as both databases explain them."""

import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from backends import Backend
from transaction_pooler import POOLER_VARIABLE

from collections_store import Collection, Explanation, Store
from collections_store.expressions.classes import value_class
from collections_store.operations.operation import Operation

pytestmark = pytest.mark.each_backend

DOCS = Path(__file__).parents[2] / "docs" / "reference"
PAGE = (DOCS / "indexes.md").read_text(encoding="utf-8")
DOCUMENTS = 20_000
_ROW = re.compile(r"^\| (?P<asked>`.+`) \| (?P<sqlite>.+) \| (?P<postgresql>.+) \|$", re.MULTILINE)
_SETUP = re.compile(r"^```python\n(def thing.*?)^```$", re.MULTILINE | re.DOTALL)


def queries() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each query of the tables, with the expected strategy of each database."""
    for row in _ROW.finditer(PAGE):
        for query in re.findall(r"`([^`]+)`", row["asked"]):
            yield query, {name: row[name] for name in ("sqlite", "postgresql")}


QUERIES = list(queries())
PART_OF_AN_ORDER = '{}, sort=[("kind", 1), ("at", 1)], limit=10'


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    with Store(f"sqlite:///{tmp_path_factory.mktemp('plans') / 'store.db'}") as store:
        yield filled(store["things"])


@pytest.fixture(scope="module")
def on_postgresql(module_postgres_backend: Backend) -> Iterator[Collection]:
    with Store(module_postgres_backend.url, **module_postgres_backend.options) as store:
        things = filled(store["things"])
        with psycopg.connect(module_postgres_backend.url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
        yield things


def filled(things: Collection) -> Collection:
    """Fill a collection as the page says."""
    setup = _SETUP.search(PAGE)
    assert setup is not None
    namespace: dict[str, Any] = {}
    exec(setup[1], namespace)
    things.put_many((str(n), namespace["thing"](n)) for n in range(DOCUMENTS))
    namespace["index"](things)
    return things


def strategy(things: Collection, query: str) -> str:
    """Return the strategy of the database, in the words of the tables."""
    explained = eval(f"explain({query})", {"explain": things.explain, "re": re})
    if "sort=" in query:
        words = kind_of(explained, things.indexes()) if explained.order == "index" else ""
        return {"index": words, "database": "database", "python": "Python"}[explained.order]
    words = serves(explained, things.indexes())
    return words if explained.in_matcher is None else f"{words} and matcher"


def serves(explained: Explanation, indexes: Sequence[Any]) -> str:
    """Return the kind of the index that is used; documents with arrays may be found by another."""
    return "none" if explained.scans else kind_of(explained, indexes)


def kind_of(explained: Explanation, indexes: Sequence[Any]) -> str:
    """Return the kind of the index that is used."""
    kinds = {each.name: "index of arrays" if each.arrays else "index" for each in indexes}
    kinds |= {"$body": "index over bodies", "$id": "index of ids"}
    kinds["$expires_at"] = "index of expiry times"
    used = {kinds[name] for name in explained.indexes}
    return next(kind for kind in dict.fromkeys(kinds.values()) if kind in used)


@pytest.mark.parametrize(("query", "expected"), QUERIES, ids=[query for query, _ in QUERIES])
def test_sqlite_plans_match_the_table(
    on_sqlite: Collection, query: str, expected: dict[str, str]
) -> None:
    if query == PART_OF_AN_ORDER and sqlite3.sqlite_version_info >= (3, 45):
        pytest.skip("a newer SQLite sorts all where an index has the first part of an order only")
    assert strategy(on_sqlite, query) == expected["sqlite"]


@pytest.mark.parametrize(("query", "expected"), QUERIES, ids=[query for query, _ in QUERIES])
def test_postgresql_plans_match_the_table(
    on_postgresql: Collection, query: str, expected: dict[str, str]
) -> None:
    assert strategy(on_postgresql, query) == expected["postgresql"]


def test_an_explanation_has_about_the_number_of_documents_that_a_query_reads(
    on_sqlite: Collection, on_postgresql: Collection
) -> None:
    scan = {"$nor": [{"kind": "x"}]}
    for things, by_index in (on_sqlite, None), (on_postgresql, 1):
        scanning, found = things.explain(scan), things.explain({"$id": "7"})
        assert scanning.scans
        assert scanning.documents is not None
        assert 0.9 * DOCUMENTS < scanning.documents < 1.1 * DOCUMENTS
        assert f"\ndocuments: about {scanning.documents:,}\n" in str(scanning)
        assert (found.scans, found.documents) == (False, by_index)
        first = things.explain(skip=5, limit=10)
        assert (first.scans, first.documents) == (False, 15)


def test_every_operator_has_a_plan() -> None:
    tables = re.findall(
        r"^\| (`.+?) \|", (DOCS / "filters.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    operators = set(re.findall(r'"(\$\w+)"', "".join(tables)))
    assert {"$gt", "$elemMatch", "$bitsAnyClear", "$jsonSchema", "$nor"} <= operators
    text = " ".join(query for query, _ in QUERIES)
    assert not {name for name in operators if f'"{name}"' not in text}


# -- counting --------------------------------------------------------------------------------

COUNTED: dict[str, tuple[Any, Any]] = {
    "equal": ({"n": 0}, {"n": 9}),
    "one of some": ({"n": {"$in": [0, 1]}}, {"n": {"$in": [8, 9]}}),
    "a range": ({"n": {"$lt": 2}}, {"n": {"$lt": 8}}),
    "all": ({"n": {"$lt": 1}}, {}),
}
"""Pairs of filters of which the second matches more documents."""


def steps_of(connection: sa.Connection, things: Collection, query: Any) -> tuple[int, int]:
    """Return the count, and the steps of SQLite's virtual machine for it."""
    driver: Any = connection.connection.driver_connection
    things.count(query)  # caches the table and the statement
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    driver.set_progress_handler(step, 1)
    number = things.count(query)
    driver.set_progress_handler(None, 1)
    return number, steps


@pytest.mark.parametrize("query", COUNTED.values(), ids=COUNTED)
def test_sqlite_counts_with_a_covering_index(tmp_path: Path, query: Any) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'store.db'}")
    with Store(engine=engine) as store, engine.connect() as connection:
        store["things"].put_many((str(n), {"n": int(n**0.5) // 4}) for n in range(1600))
        store["things"].create_index("n")
        things = store.bind(connection)["things"]
        (few, steps), (many, more) = (steps_of(connection, things, each) for each in query)
    engine.dispose()
    assert few < many
    # the steps of an entry of the index: tested, recorded as a candidate, counted, skipped; no row is read
    assert more - steps <= 5 * (many - few)


@pytest.mark.parametrize("operator", ["$in", "$nin"])
def test_a_long_list_is_hashed(
    on_postgresql: Collection, module_postgres_backend: Backend, operator: str
) -> None:
    query = {"free": {operator: list(range(100))}}
    explained = on_postgresql.explain(query)
    schema = module_postgres_backend.options["schema"]
    with psycopg.connect(module_postgres_backend.url) as connection:
        connection.execute(f"SET search_path = {schema}")
        plan = connection.execute(f"EXPLAIN {explained.sql}", explained.parameters).fetchall()
    assert "hashed SubPlan" in str(plan)
    assert on_postgresql.count(query) == (2_000 if operator == "$in" else 18_000)


@pytest.mark.parametrize("never", [{"free": {"$in": []}}, {"kind": 1, "free": {"$in": []}}])
def test_a_branch_that_never_holds_leaves_the_others_their_index(
    on_sqlite: Collection, on_postgresql: Collection, never: dict[str, Any]
) -> None:
    for things in (on_sqlite, on_postgresql):
        alone, joined = things.explain({"n": 5}), things.explain({"$or": [never, {"n": 5}]})
        assert alone.indexes
        assert (joined.indexes, joined.sql) == (alone.indexes, alone.sql)


def test_a_filter_that_never_holds_scans_nothing(
    on_sqlite: Collection, on_postgresql: Collection
) -> None:
    for things in (on_sqlite, on_postgresql):
        explained = things.explain({"kind": 1, "free": {"$in": []}})
        assert (explained.scans, explained.advice) == (False, None)


@value_class
class PreparedSelects(Operation[list[Any]]):
    """Return how often the connection's prepared SELECTs were executed with one plan for all values, and with others."""

    collections = ()

    def __call__(self, session: Any) -> list[Any]:
        plans = "SELECT generic_plans, custom_plans FROM pg_prepared_statements"
        found: list[Any] = session.rows(f"{plans} WHERE statement LIKE 'SELECT guarded%%'")
        return found


@pytest.mark.skipif(POOLER_VARIABLE in os.environ, reason="each transaction has a connection")
@pytest.mark.usefixtures("on_postgresql")
@pytest.mark.parametrize(
    ("filter", "plans"),
    [
        ({"n": {"$gte": 5}}, (10, 5)),
        ({"n": {"$gte": 5, "$lt": 5000}}, (10, 5)),
        # the index of n has many entries before the first one of such a document
        ({"n": {"$gte": 5}, "free": 900}, (0, 15)),
    ],
)
def test_postgresql_plans_find_one_in_a_range_once(
    module_postgres_backend: Backend, filter: Any, plans: tuple[int, int]
) -> None:
    with Store(
        module_postgres_backend.url, pool_size=1, **module_postgres_backend.options
    ) as store:
        found = {store["things"].find_one(filter).id for _ in range(20)}  # type: ignore[union-attr]
        assert found == {"900" if "free" in filter else "5"}
        assert [tuple(each) for each in store.run(PreparedSelects())] == [plans]
