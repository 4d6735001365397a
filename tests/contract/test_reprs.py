"""The repr of filters, explanations and transactions."""

import asyncio
import re
from contextlib import suppress

import sqlalchemy as sa

from collections_store import AsyncStore, F, Filter, Path, Store
from collections_store.operations.operation import Operation


def test_repr_of_a_filter() -> None:
    assert repr(F("age") > 3) == "Filter({'age': {'$gt': 3}})"
    assert repr(Filter()) == "Filter({})"
    assert repr(Filter.parse({"a": re.compile("^x", re.IGNORECASE)})) == (
        "Filter({'a': {'$regex': '^x', '$options': 'i'}})"
    )
    assert repr(~(F(Path("a.b")) == 1)) == "Filter({Path('a.b'): {'$ne': 1}})"


def test_repr_of_an_explanation_has_no_sql() -> None:
    with Store("sqlite://") as store:
        store["things"].create_index("a")
        explanation = store["things"].explain({"a": 1})
    assert repr(explanation) == (
        "Explanation(in_sql=Filter({'a': 1}), in_matcher=None, indexes=('a_1',), "
        "scans=False, order='natural', arrays=False, advice=None)"
    )


def test_repr_of_a_transaction_has_its_state() -> None:
    with Store("sqlite://") as store:
        with store.transaction() as committed:
            assert repr(committed) == "<Transaction open>"
            with committed.transaction() as part:
                assert repr(part) == "<Transaction open>"
            assert repr(part) == "<Transaction over>"
        with suppress(LookupError), store.transaction() as undone:
            raise LookupError
        assert repr(committed) == "<Transaction committed>"
        assert repr(undone) == "<Transaction rolled back>"


def test_repr_of_an_async_transaction_has_its_state() -> None:
    async def main() -> list[str]:
        async with AsyncStore("sqlite://") as store:
            async with store.transaction() as committed:
                shown = [repr(committed)]
            with suppress(LookupError):
                async with store.transaction() as undone:
                    raise LookupError
            return [*shown, repr(committed), repr(undone)]

    states = ("open", "committed", "rolled back")
    assert asyncio.run(main()) == [f"<AsyncTransaction {state}>" for state in states]


class Unprinted(Operation[int]):
    """An operation that cannot be printed."""

    collection = "things"

    def __repr__(self) -> str:
        raise AssertionError

    def __call__(self, connection: object) -> int:
        return 7


def test_operations_of_an_async_transaction_are_not_printed() -> None:
    async def main() -> int:
        async with AsyncStore("sqlite://") as store, store.transaction() as tx:
            return await tx.run(Unprinted())

    assert asyncio.run(main()) == 7


def test_repr_of_a_bound_transaction() -> None:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    with Store(engine=engine) as store, engine.connect() as connection:
        assert repr(store.bind(connection)) == "<Transaction bound to a connection>"
    engine.dispose()
