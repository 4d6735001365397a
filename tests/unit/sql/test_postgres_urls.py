"""URLs of PostgreSQL, as libpq, psycopg and SQLAlchemy have them."""

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import psycopg

from collections_store import InvalidOption, InvalidUrl, Store
from collections_store.options import read_url
from collections_store.sql.dialects.postgresql import DATABASE


def connect_arguments(url: str) -> dict[str, Any]:
    """Return what psycopg is called with."""
    normal = DATABASE.urls.connect_url(DATABASE.urls.normal_url(read_url(url)))
    dialect: Any = psycopg.dialect
    _, arguments = dialect().create_connect_args(normal)
    return dict(arguments)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgres://me:x@h:1/db", {"host": "h", "port": 1, "user": "me", "password": "x"}),
        ("postgresql://h1:1,h2:2/db", {"host": "h1,h2", "port": "1,2"}),
        ("postgresql://me:a,b@h/db", {"host": "h", "user": "me", "password": "a,b"}),
        ("postgresql://me:1,2/x@h/db", {"host": "h", "user": "me", "password": "1,2/x"}),
        ("postgres://me:x%40y@h1,h2:5433/db?sslmode=require",
         {"host": "h1,h2", "port": ",5433", "user": "me", "password": "x@y", "sslmode": "require"}),
        ("postgresql://[::1]:1,[fe80::2]/db", {"host": "::1,fe80::2", "port": "1,"}),
        ("postgresql://%2Frun%2Fpostgresql/db", {"host": "/run/postgresql"}),
        ("postgresql://me@%2frun:5433/db", {"host": "/run", "port": "5433", "user": "me"}),
        ("postgresql:///db?host=/run", {"host": "/run"}),
        ("postgresql:///db?host=h1:1&host=h2:2", {"host": "h1,h2", "port": "1,2"}),
        ("postgresql://h/db?pooler=transaction", {"host": "h"}),
    ],
)  # fmt: skip
def test_hosts_are_read(url: str, expected: dict[str, Any]) -> None:
    arguments = connect_arguments(url)
    assert arguments == {**expected, "dbname": "db"}


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgresql://h/db?sslmodus=require", "no option 'sslmodus': did you mean 'sslmode'"),
        ("postgresql://h/db?busy_timeout=3", "no option 'busy_timeout'"),
        ("postgresql://h/db?prepare_threshold=few", "from 0 on, or none, got 'few'"),
        ("postgresql://h/db?prepare_threshold=-1", "from 0 on, or none, got '-1'"),
        ("postgresql://h/db?prepare_threshold=1&prepare_threshold=2", "prepare_threshold"),
        ("postgresql://h1:x,h2/db", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_named_at_once(url: str, problem: str) -> None:
    with pytest.raises(InvalidUrl) as caught:
        Store(url)
    assert problem in str(caught.value)


def test_the_pooler_is_an_option_and_a_parameter() -> None:
    url = "postgresql://h/db?pooler=transaction"
    assert Store(url).core.options.pooler == "transaction"
    assert Store(url, pooler="session").core.options.pooler == "session"
    assert Store("postgresql://h/db").core.options.pooler is None
    with pytest.raises(InvalidOption, match="pooler: must be None or 'transaction' or 'session'"):
        Store("postgresql://h/db?pooler=statement")
    with pytest.raises(InvalidOption, match="pooler: sqlite has no server"):
        Store("sqlite://", pooler="transaction")
    with pytest.raises(InvalidOption, match="pooler: the engine"):
        Store(engine=sa.create_engine("postgresql+psycopg://x/y"), pooler="transaction")


def test_the_sharding_is_an_option_and_a_parameter() -> None:
    url = "postgresql://h/db?sharding=schema"
    store = Store(url, schema="agents")
    assert store.core.options.sharding == "schema"
    assert store.core.database.is_remote
    assert not Store("postgresql://h/db", schema="agents").core.database.is_remote
    with pytest.raises(InvalidOption, match="sharding: must be None or 'schema' or"):
        Store("postgresql://h/db?sharding=rows", schema="agents")
    for schema in (None, "public"):
        with pytest.raises(
            InvalidOption, match="sharding: name the schema to distribute by schema="
        ):
            Store(url, schema=schema)
    with pytest.raises(InvalidOption, match="durability: must be 'full' or 'normal' with sharding"):
        Store(url, schema="agents", durability="replicated")
    with pytest.raises(InvalidOption, match="sharding: sqlite has no servers"):
        Store("sqlite://", schema="agents", sharding="schema")
