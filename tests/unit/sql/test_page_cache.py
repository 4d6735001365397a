"""The option `page_cache`: the setting of SQLite, and errors."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from collections_store import AsyncStore, InvalidOption, Store
from collections_store.operations.operation import Operation
from collections_store.operations.session import Session


class PageCache(Operation[Any]):
    """Reads the setting of the connection."""

    collection = ""
    collections = ()
    atomic = True

    def __call__(self, session: Session) -> Any:
        return session.rows("PRAGMA cache_size")[0][0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [(64 * 2**20, -65536), (1, -1), (None, -16384), (2**42, 1 - 2**31), (10**30, 1 - 2**31)],
)
def test_every_connection_is_configured(tmp_path: Path, given: int | None, expected: int) -> None:
    with Store(f"sqlite:///{tmp_path / 'store.db'}", page_cache=given) as store:
        store["things"].put("a", 1)
        assert store.run(PageCache()) == expected


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "64"])
@pytest.mark.parametrize("kind", [Store, AsyncStore])
def test_invalid_sizes_are_rejected(kind: Any, value: Any) -> None:
    with pytest.raises(InvalidOption, match="page_cache: must be an integer from 1 on, got"):
        kind("sqlite://", page_cache=value)


def test_postgresql_has_no_page_cache_option() -> None:
    with pytest.raises(InvalidOption, match="page_cache: the server of postgresql has its own"):
        Store("postgresql://localhost/x", page_cache=2**20)


def test_an_engine_of_the_caller_has_no_page_cache_option() -> None:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    with pytest.raises(InvalidOption, match="page_cache: the engine that was given has settings"):
        Store(engine=engine, page_cache=2**20)
    engine.dispose()
