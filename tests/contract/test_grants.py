"""What a role of PostgreSQL that does not own the tables may need for text and vector indexes."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from backends import Backend, has_pgvector
from psycopg import sql

from collections_store import Store

READ = "SELECT"
WRITE = "SELECT, INSERT, UPDATE, DELETE"


def embed(texts: list[str]) -> list[list[float]]:
    return [[float(len(text)), 1.0] for text in texts]


def create(notes: Any, methods: list[str]) -> None:
    for method in methods:
        options: Any = {"embed": embed, "model": "length", "name": method, "method": method}
        notes.create_vector_index("text", dimensions=2, **options)


@pytest.fixture
def role(postgres_backend: Backend) -> Iterator[tuple[str, Any]]:
    """The URL of a role without privileges, and a function that grants it privileges on all tables."""
    schema = sql.Identifier(postgres_backend.options["schema"])
    name = f"role_{postgres_backend.options['schema']}"
    url = sa.make_url(postgres_backend.url).set(username=name, password="x")
    role = sql.Identifier(name)
    with psycopg.connect(postgres_backend.url, autocommit=True) as owner:
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x'").format(role))

        def grant(privileges: str) -> None:
            grants = sql.SQL("GRANT {} ON ALL TABLES IN SCHEMA {} TO {}")
            owner.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, role))
            owner.execute(grants.format(sql.SQL(privileges), schema, role))

        try:
            yield url.render_as_string(hide_password=False), grant
        finally:
            owner.execute(sql.SQL("DROP OWNED BY {}").format(role))
            owner.execute(sql.SQL("DROP ROLE {}").format(role))


@pytest.mark.parametrize("privileges", [READ, WRITE])
def test_a_role_searches_and_writes(
    postgres_backend: Backend, role: tuple[str, Any], privileges: str
) -> None:
    url, grant = role
    methods = ["exact", "hnsw"] if has_pgvector(postgres_backend.url) else ["exact"]
    with Store(postgres_backend.url, **postgres_backend.options) as store:
        store["notes"].create_text_index("text")
        create(store["notes"], methods)
        store["notes"].put("a", {"text": "green tea"})
        for method in methods:
            assert store["notes"].store_vectors(method) == 0
    grant(privileges)
    with Store(url, **postgres_backend.options) as store:
        notes = store["notes"]
        create(notes, methods)
        if privileges == WRITE:
            notes.put("b", {"text": "black tea, and more"})
            notes.put("c", {"text": "tea"})
            notes.remove("a")
        expected = ["a"] if privileges == READ else ["b", "c"]
        assert sorted(each.id for each in notes.search('tea OR "green tea"')) == expected
        for method in methods:
            assert sorted(each.id for each in notes.nearest("tea", index=method)) == expected
            if privileges == WRITE:
                assert notes.store_vectors(method) == 0
