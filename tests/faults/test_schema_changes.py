"""What changes a collection while others write to it, or change it too."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from conftest import Place
from faults.test_change_feed import InThread, wait_for_a_lock

from collections_store import Store


def engine_of(place: Place) -> sa.Engine:
    return sa.create_engine(place.url.replace("postgresql:", "postgresql+psycopg:"))


@pytest.mark.parametrize("own", [True, False], ids=["url", "engine"])
def test_a_rename_keeps_what_another_configures_just_then(postgres_place: Place, own: bool) -> None:
    engine = engine_of(postgres_place)
    where: Any = {"url": postgres_place.url} if own else {"engine": engine}
    with Store(**where, **postgres_place.options) as store:
        store["old"].put("a", {"n": 1})
        with engine.begin() as connection:
            store.bind(connection)["old"].create_index("n", name="by_n")
            renaming = InThread(lambda: store.rename("old", "new"))
            wait_for_a_lock(postgres_place)
        renaming.result()
        assert [index.name for index in store["new"].indexes()] == ["by_n"]
    engine.dispose()
