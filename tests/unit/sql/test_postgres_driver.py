"""The order in which the hosts of a URL are tried, the limits of a wait for the server, and pipelines."""

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

import pytest
from psycopg.errors import DivisionByZero
from psycopg.pq import PipelineStatus

from collections_store.options import Options
from collections_store.sql.dialects.postgresql.connections import PostgresConnections
from collections_store.sql.dialects.postgresql.driver import watched

HOSTS = {"host": "a,b,c", "port": "1,2,3", "user": "me"}


def new_class() -> Any:
    return PostgresConnections().connection_class(Options(busy_timeout=2.5))


def test_the_time_for_a_connection_has_a_default() -> None:
    kind = PostgresConnections().connection_class(Options())
    assert kind.arranged({"host": "a"})["connect_timeout"] == 10
    assert kind.arranged({"host": "a", "connect_timeout": "60"})["connect_timeout"] == "60"
    assert new_class().arranged({"host": "a"})["connect_timeout"] == 3


def test_hosts_that_failed_last_are_tried_last() -> None:
    kind = new_class()
    added = {"connect_timeout": 3, "target_session_attrs": "read-write"}
    assert kind.arranged(HOSTS) == HOSTS | added
    kind.failed_at[("a", "1")] = 5.0
    kind.failed_at[("b", "2")] = 4.0
    assert kind.arranged(HOSTS) == HOSTS | added | {"host": "c,b,a", "port": "3,2,1"}
    assert new_class().arranged(HOSTS)["host"] == "a,b,c"  # of another store


@pytest.mark.parametrize(
    ("given", "port"),
    [
        ({"host": "a,b"}, "5432,5432"),
        ({"host": "a,b", "port": "7"}, "7,7"),
        ({"host": "a,b", "port": "7,8,9"}, "7,8,9"),  # libpq refuses these
        ({"host": "a,b", "port": "7,8", "hostaddr": "1.1.1.1,2.2.2.2"}, "7,8"),
        ({"host": "a"}, None),
        ({}, None),
    ],
)
def test_hosts_that_share_a_port(given: dict[str, str], port: str | None) -> None:
    kind = new_class()
    kind.failed_at[("a", "7")] = kind.failed_at[("a", "5432")] = 1.0
    found = kind.arranged(given | {"connect_timeout": "9"})
    assert found["connect_timeout"] == "9"
    assert found.get("port") == port
    is_sorted = len(given.get("port", "").split(",")) < 3 and "hostaddr" not in given
    assert found.get("host") == ("b,a" if given.get("host") == "a,b" and is_sorted else given.get("host"))  # fmt: skip


def test_which_of_several_hosts_will_do() -> None:
    kind = new_class()
    assert kind.arranged(HOSTS)["target_session_attrs"] == "read-write"
    assert kind.arranged(HOSTS | {"target_session_attrs": "any"})["target_session_attrs"] == "any"
    assert "target_session_attrs" not in kind.arranged({"host": "a"})
    kind.is_read_only = True
    assert "target_session_attrs" not in kind.arranged(HOSTS)
    kind.is_any_replica = True
    assert kind.arranged(HOSTS)["target_session_attrs"] == "standby"


def test_silence_is_measured_from_the_last_answer() -> None:
    silences: list[float] = []

    def steps() -> Generator[str, int, str]:
        received = [(yield "wait"), (yield "wait"), (yield "wait"), (yield "wait")]
        return f"received {received}"

    running = watched(steps(), silences.append)
    assert next(running) == "wait"
    for ready in (1, 0, 0):
        assert running.send(ready) == "wait"
    with pytest.raises(StopIteration) as caught:
        running.send(1)
    assert caught.value.value == "received [1, 0, 0, 1]"
    assert len(silences) == 2
    assert silences[0] == 0.0 <= silences[1]


@pytest.fixture
def connection(postgres_url: str) -> Iterator[Any]:
    """A connection on which the server may be silent for two seconds."""
    kind = new_class()
    kind.reply_timeout = 2.0
    with closing(kind.connect(postgres_url, autocommit=True)) as connection:
        yield connection


def test_a_pipeline_returns_a_result_before_its_end(connection: Any) -> None:
    with connection.pipeline():
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
        assert connection.execute("SELECT 2").fetchall() == [(2,)]


def test_a_pipeline_within_another_ends_neither_the_other_nor_its_statements(
    connection: Any,
) -> None:
    with connection.pipeline():
        first = connection.execute("SELECT 1")
        with connection.pipeline():
            second = connection.execute("SELECT 2")
        third = connection.execute("SELECT 3")
        assert connection.pgconn.pipeline_status == PipelineStatus.ON
    assert connection.pgconn.pipeline_status == PipelineStatus.OFF
    assert [each.fetchall() for each in (first, second, third)] == [[(1,)], [(2,)], [(3,)]]


def test_a_failed_pipeline_leaves_the_connection_usable(connection: Any) -> None:
    with pytest.raises(DivisionByZero), connection.pipeline():
        connection.execute("SELECT 1 / 0")
        connection.execute("SELECT 2")
    assert connection.execute("SELECT 3").fetchall() == [(3,)]
