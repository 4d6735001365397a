"""Vector indexes of the method "hnsw": pgvector on PostgreSQL, sync and async. Small indexes find what exact ones find."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from backends import VARIANTS, Backend, Opener, has_pgvector
from psycopg import sql

from collections_store import DatabaseError, IndexExists, InvalidIndex, Store, VectorIndex
from collections_store.operations import nearest as searching

METRICS = ("cosine", "l2", "dot")
DIMENSIONS = 24


@pytest.fixture(scope="module")
def pgvector(postgres_url: str) -> str:
    """The URL of a server with the extension pgvector; the tests are skipped without."""
    if not has_pgvector(postgres_url):
        pytest.skip("the server has no pgvector 0.8")
    return postgres_url


@pytest.fixture(params=VARIANTS)
def store(
    request: pytest.FixtureRequest, pgvector: str, postgres_backend: Backend
) -> Iterator[Any]:
    opener = Opener(postgres_backend, request.param)
    yield opener()
    opener.close()


def clusters(count: int, seed: int = 1) -> Any:
    """Return vectors in clusters, as texts about subjects have."""
    centres = np.random.default_rng(0).normal(size=(20, DIMENSIONS))
    generator = np.random.default_rng(seed)
    chosen = centres[generator.integers(0, len(centres), count)]
    return chosen + 0.3 * generator.normal(size=(count, DIMENSIONS))


def found(things: Any, query: Any, k: int = 10, **options: Any) -> list[str]:
    return [each.id for each in things.nearest(query, k, **options)]


def fill(store: Any, count: int, **options: Any) -> tuple[Any, Any]:
    """Create one collection with both methods; return it, and queries."""
    things, vectors = store["things"], clusters(count)
    for method in ("exact", "hnsw"):
        options |= {"dimensions": DIMENSIONS, "method": method, "name": method}
        things.create_vector_index("at", **options)
    things.put_many((f"{n:05}", {"n": n, "at": each.tolist()}) for n, each in enumerate(vectors))
    assert things.store_vectors("exact") == things.store_vectors("hnsw") == 0
    return things, clusters(20, 2).tolist()


@pytest.fixture
def by_index(pgvector: str, postgres_backend: Backend) -> Iterator[Any]:
    """A store whose server reads a table as a whole only where nothing else is possible: small tables, too."""
    url = sa.make_url(postgres_backend.url)
    url = url.update_query_dict({"options": "-cenable_seqscan=off -cenable_sort=off"})
    with Store(url.render_as_string(hide_password=False), **postgres_backend.options) as store:
        yield store


def scans(store: Any) -> int:
    """Return how often the server searched an index of this store."""
    engine = sa.create_engine(store.core.url)
    with engine.connect() as connection:
        query = "SELECT coalesce(sum(idx_scan), 0) FROM pg_stat_user_indexes WHERE schemaname = :schema AND indexrelname LIKE '%$n'"
        names = {"schema": store.core.options.names().schema}
        count = int(connection.execute(sa.text(query), names).scalar_one())
    engine.dispose()
    return count


@pytest.mark.parametrize("metric", METRICS)
def test_most_of_the_nearest_are_found_with_their_exact_scores(by_index: Any, metric: str) -> None:
    things, queries = fill(by_index, 3000, metric=metric)
    hits = 0
    for query in queries:
        exact, near = (things.nearest(query, 10, index=name) for name in ("exact", "hnsw"))
        scores = {each.id: each.score for each in exact}
        hits += len(scores.keys() & {each.id for each in near})
        assert len(near) == 10
        assert [each.score for each in near] == sorted((e.score for e in near), reverse=True)
        for each in near:
            assert each.score == scores.get(each.id, each.score)
            assert each.place == "at"
    assert hits >= 0.95 * 10 * len(queries)


def test_the_server_searches_the_index(by_index: Any) -> None:
    things, queries = fill(by_index, 100)
    for query in queries:
        things.nearest(query, index="hnsw")
    by_index.close()  # the server counts when a session ends
    assert scans(by_index) >= len(queries)


@pytest.mark.parametrize("selected", [10, 400])
def test_a_filter_leaves_as_many_results_as_match(
    by_index: Any, monkeypatch: pytest.MonkeyPatch, selected: int
) -> None:
    """Few documents are compared exactly, and more by the index, as long as the index finds enough."""
    monkeypatch.setattr(searching, "MOST_CONSIDERED", 200)
    things, queries = fill(by_index, 3000)
    for filter in ({"n": {"$lt": selected}}, {"n": {"$gte": 3000 - selected}}, {"n": 7}):
        for query in queries:
            exact, near = (
                found(things, query, 10, index=name, filter=filter) for name in ("exact", "hnsw")
            )
            assert len(near) == len(exact)
            if selected == 10:
                assert near == exact


def test_an_index_that_finds_too_few_is_read_as_a_whole(
    by_index: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    things, queries = fill(by_index, 300)
    expected = [found(things, query, 200, index="exact") for query in queries]
    monkeypatch.setattr(searching, "MOST_CANDIDATES", 100)
    monkeypatch.setattr(searching, "MOST_CONSIDERED", 50)
    for query, ids in zip(queries, expected, strict=True):
        assert found(things, query, 200, index="hnsw") == ids
        some = {"n": {"$lt": 250}}
        of_exact = found(things, query, 200, index="exact", filter=some)
        assert found(things, query, 200, index="hnsw", filter=some) == of_exact


def test_writes_of_every_kind(store: Any) -> None:
    points = store["points"]
    points.create_vector_index("at", dimensions=2, metric="l2", method="hnsw")
    points.put_many(
        {"one": {"at": [1, 0]}, "two": {"at": [2, 0]}, "many": {"at": [[9, 0], [3, 0]]}}
    )
    assert found(points, [0, 0]) == ["one", "two", "many"]
    assert points.nearest([3, 0], 1)[0].place == "at.1"
    assert found(points, [0, 0], min_score=-2.5) == ["one", "two"]
    points.put("two", {"at": [0.5, 0]})
    points.put("bad", {"at": [0]})
    assert found(points, [0, 0]) == ["two", "one", "many"]
    assert [each.id for each in points.search_backlog()] == ["bad"]
    points.remove("two")
    assert found(points, [0, 0]) == ["one", "many"]
    store.rename("points", "places")
    places = store["places"]
    places.put("three", {"at": [0, 0]})
    assert found(places, [0, 0], 2) == ["three", "one"]
    with store.transaction() as transaction:
        transaction["places"].put("three", {"at": [5, 0]})
        transaction["places"].put("four", {"at": [0, 0]})
        assert found(transaction["places"], [0, 0]) == ["four", "one", "many", "three"]
    places.delete_many({})
    assert found(places, [0, 0]) == []
    assert store.drop("places")
    store["places"].create_vector_index("at", dimensions=2, metric="l2", method="hnsw")
    assert found(store["places"], [0, 0]) == []


def test_numbers_at_the_limits_of_32_bits(store: Any) -> None:
    points = store["points"]
    for metric in ("l2", "dot", "cosine"):
        options: Any = {"metric": metric, "method": "hnsw", "name": metric}
        points.create_vector_index("at", dimensions=2, **options)
    points.put_many({"large": {"at": [3e38, -3e38]}, "small": {"at": [1e-45, -1e-40]}})
    for metric in ("l2", "dot", "cosine"):
        assert sorted(found(points, [1e38, 1e-42], index=metric)) == ["large", "small"]
    assert points.search_backlog() == []


def test_another_method_is_another_index(store: Any) -> None:
    points = store["points"]
    points.create_vector_index("at", dimensions=2)
    with pytest.raises(IndexExists):
        points.create_vector_index("at", dimensions=2, method="hnsw")
    points.put("one", {"at": [1, 0]})
    assert found(points, [1, 0]) == ["one"]
    points.reindex("at", dimensions=2, method="hnsw")
    assert points.create_vector_index("at", dimensions=2, method="hnsw") == "at_vector"
    assert str(points.indexes()[0]) == "at_vector: {'at': 2}, cosine, hnsw"
    assert points.indexes() == [VectorIndex.parse("at", dimensions=2, method="hnsw")]
    assert found(points, [1, 0]) == ["one"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"dimensions": 2001, "metric": "l2"},
            "'dimensions': must be at most 2000 .*'l2', got 2001",
        ),
        ({"dimensions": 4001}, "'dimensions': must be at most 4000"),
        ({"dimensions": 2, "method": "flat"}, "'method': must be one of exact, hnsw, got 'flat'"),
    ],
)
def test_indexes_that_the_extension_lacks(store: Any, options: Any, problem: str) -> None:
    with pytest.raises(InvalidIndex, match=problem):
        store["points"].create_vector_index("at", **{"method": "hnsw", **options})


def test_4000_dimensions(store: Any) -> None:
    points = store["points"]
    points.create_vector_index("at", dimensions=4000, method="hnsw")
    points.put("one", {"at": [1.0] * 4000})
    assert found(points, [1.0] * 4000) == ["one"]


def test_sqlite_has_exact_indexes(tmp_path: Path) -> None:
    refused = pytest.raises(InvalidIndex, match="'method': must be 'exact' on sqlite, got 'hnsw'")
    with Store(f"sqlite:///{tmp_path / 'store.db'}") as store, refused:
        store["points"].create_vector_index("at", dimensions=2, method="hnsw")


def test_copies_and_backups(store: Any, pgvector: str, tmp_path: Path) -> None:
    points = store["points"]
    points.create_vector_index("at", dimensions=2, metric="l2", method="hnsw")
    points.put_many({"one": {"at": [1, 0]}, "two": {"at": [2, 0]}})
    assert found(points, [0, 0]) == ["one", "two"]
    store.backup(tmp_path / "backup.jsonl")
    points.put("one", {"at": [3, 0]})
    store.restore(tmp_path / "backup.jsonl", replace=True)
    assert store["points"].indexes()[0].method == "hnsw"
    assert found(store["points"], [0, 0]) == ["one", "two"]


def test_a_copy_to_sqlite_says_what_to_do(
    pgvector: str, postgres_backend: Backend, tmp_path: Path
) -> None:
    with (
        Store(postgres_backend.url, **postgres_backend.options) as store,
        Store(f"sqlite:///{tmp_path / 'store.db'}") as other,
    ):
        store["points"].create_vector_index("at", dimensions=2, method="hnsw")
        with pytest.raises(InvalidIndex, match="'method': must be 'exact' on sqlite"):
            store.copy_to(other)


@pytest.fixture
def database_of_a_role(pgvector: str) -> Iterator[str]:
    """The URL of a new database without the extension, as a role that is no superuser and owns the database."""
    database = "database_of_a_role"
    name = sql.Identifier(database)
    url = sa.make_url(pgvector)
    with psycopg.connect(pgvector, autocommit=True) as owner:
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x'").format(name))
        owner.execute(sql.SQL("CREATE DATABASE {0} OWNER {0}").format(name))
        try:
            url = url.set(username=database, password="x", database=database)
            yield url.render_as_string(hide_password=False)
        finally:
            owner.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
            owner.execute(sql.SQL("DROP ROLE {}").format(name))


def test_a_role_that_may_not_install_the_extension(pgvector: str, database_of_a_role: str) -> None:
    with Store(database_of_a_role) as store:
        points = store["points"]
        with pytest.raises(InvalidIndex, match="pgvector 0.8.*superuser .*CREATE EXTENSION vector"):
            points.create_vector_index("at", dimensions=2, method="hnsw")
        url = sa.make_url(pgvector).set(database="database_of_a_role")
        with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as owner:
            owner.execute('CREATE SCHEMA "Extra\'s"')
            owner.execute('CREATE EXTENSION vector SCHEMA "Extra\'s"')
            with pytest.raises(DatabaseError, match="permission denied"):
                points.create_vector_index("at", dimensions=2, method="hnsw")
            owner.execute('GRANT USAGE ON SCHEMA "Extra\'s" TO PUBLIC')
        points.create_vector_index("at", dimensions=2, method="hnsw")
        points.put("one", {"at": [1, 0]})
        assert found(points, [1, 0]) == ["one"]
        assert math.isclose(points.nearest([1, 0])[0].score, 1)
