"""`AsyncStore.collection`: it returns a collection at once, and the first write stores what is declared."""

import asyncio
import threading
from typing import Annotated, Any, TypedDict

import pytest
from backends import Backend

from collections_store import (
    AsyncCollection,
    AsyncStore,
    AsyncTransaction,
    DatabaseBusy,
    DatabaseError,
    Indexed,
    IndexExists,
    InvalidIndex,
    InvalidName,
    InvalidOption,
    ReadOnlyDatabase,
    Store,
    was_committed,
)
from collections_store.operations.collections import Configure
from collections_store.operations.indexes import CreateIndex, DeclareVersion


class Person(TypedDict):
    email: Annotated[str, Indexed(unique=True)]


Refused: Any = TypedDict("Refused", {"a": list[Annotated[str, Indexed()]]})


class Other(TypedDict):
    email: Annotated[str, Indexed(name="email_1")]


ALL: dict[str, Any] = {
    "model": Person,
    "ttl": 3600,
    "schema_version": 2,
    "upgrades": {1: lambda body: body},
}
ADA: Any = {"email": "a@b"}


class Recording(AsyncStore):
    """A store that notes the operations that store declarations."""

    def __init__(self, backend: Backend, **options: Any) -> None:
        super().__init__(backend.url, **{**backend.options, **options})
        self.stored: list[str] = []

    async def run(self, operation: Any, consistency: Any = "strong") -> Any:
        result = await super().run(operation, consistency)
        if isinstance(operation, Configure | DeclareVersion | CreateIndex):
            self.stored.append(type(operation).__name__)
        return result


ONCE = ["Configure", "DeclareVersion", "CreateIndex"]


async def declared(store: AsyncStore) -> tuple[bool, list[str]]:
    """Return what is stored for `people`: whether its documents expire, and the names of its indexes."""
    people = store["people"]
    async with store.transaction() as tx:
        await tx["people"].put("probe", {"email": "probe"})
        probe = await tx["people"].document("probe")
        await tx["people"].remove("probe")
    assert probe is not None
    return probe.expires_at is not None, [each.name for each in await people.indexes()]


def test_the_first_write_stores_what_is_declared_once(shared_backend: Backend) -> None:
    async def main() -> None:
        async with Recording(shared_backend) as store:
            people = store.collection("people", **ALL)
            assert isinstance(people, AsyncCollection)
            assert await store.collections() == []
            assert await people.get("ada") is None
            assert await people.find() == []
            assert store.stored == []
            others = people.with_options(consistency="strong")
            await others.put("ada", ADA)
            assert await declared(store) == (True, ["email_1"])
            assert await people.get("ada") == ADA
            assert store.stored == ONCE
            await store["people"].count()
            assert store.stored == ONCE

    asyncio.run(main())


def test_a_read_is_the_read_alone(shared_backend: Backend) -> None:
    """Not also a look at the primary server, where a replica answers."""
    ran: list[tuple[str, str]] = []

    class Noting(AsyncStore):
        async def run(self, operation: Any, consistency: Any = "strong") -> Any:
            ran.append((type(operation).__name__, consistency))
            return await super().run(operation, consistency)

    async def main() -> None:
        async with Noting(shared_backend.url, **shared_backend.options) as store:
            people = store.collection("people", **ALL).with_options(consistency="eventual")
            assert await people.get("ada") is None
            assert await people.count() == 0

    asyncio.run(main())
    assert ran == [("Get", "eventual"), ("Count", "eventual")]


def test_concurrent_first_uses_store_it_once(shared_backend: Backend) -> None:
    """In 20 tasks of each of 3 event loops."""
    store = Recording(shared_backend)
    people = store.collection("people", **ALL)
    barrier = threading.Barrier(3)

    async def main(loop: int) -> None:
        await asyncio.to_thread(barrier.wait)
        bodies = [{"email": f"{loop}-{n}"} for n in range(20)]
        await asyncio.gather(*(people.put(each["email"], each) for each in bodies))

    threads = [threading.Thread(target=asyncio.run, args=(main(n),)) for n in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert store.stored == ONCE
    assert asyncio.run(people.count()) == 60
    asyncio.run(store.aclose())


@pytest.mark.parametrize(
    ("error", "arguments", "options"),
    [
        (InvalidName, ["no name"], {"ttl": 1}),
        (InvalidOption, ["people"], {"ttl": "soon"}),
        (TypeError, ["people"], {"colour": "red"}),
        (InvalidOption, ["people"], {"schema_version": 0}),
        (InvalidOption, ["people"], {"model": complex}),
        (InvalidIndex, ["people"], {"model": Refused}),
    ],
)
def test_arguments_are_validated_at_once(error: Any, arguments: Any, options: Any) -> None:
    store = AsyncStore("sqlite://")
    with pytest.raises(error):
        store.collection(*arguments, **options)


def test_a_failed_first_use_writes_nothing_and_the_next_tries_again(
    shared_backend: Backend,
) -> None:
    async def main() -> None:
        async with Recording(shared_backend) as store:
            await store["people"].create_index("email")
            people = store.collection("people", model=Person, ttl=60)
            for _ in range(2):
                with pytest.raises(IndexExists):
                    await people.put("ada", ADA)
            assert await store["people"].count() == 0
            await store["people"].drop_index("email_1")
            await people.put("ada", ADA)
            assert await declared(store) == (True, ["email_1"])

    asyncio.run(main())


def test_those_who_wait_for_a_failed_first_use_raise_its_error(tmp_path: Any) -> None:
    """Else each would wait for the writer, one after the other: here 10 times `busy_timeout`."""
    url = f"sqlite:///{tmp_path / 'store.db'}"

    async def main(store: AsyncStore) -> list[Any]:
        people = store.collection("people", ttl=60)
        writes = (people.put(id, 1) for id in "abcdefghij")
        return await asyncio.gather(*writes, return_exceptions=True)

    with Store(url) as other, other.transaction() as tx:
        tx["people"].put("a", 1)
        store = AsyncStore(url, busy_timeout=0.2)
        errors = asyncio.run(main(store))
        assert [type(each) for each in errors] == [DatabaseBusy] * 10
        assert len({id(each) for each in errors}) == 10  # each has a traceback of its own
    assert asyncio.run(main(store)) == [2, *[1] * 9]
    asyncio.run(store.aclose())


def test_a_cancelled_first_use_writes_nothing_and_another_goes_on(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"

    async def main() -> None:
        async with AsyncStore(url) as store:
            people = store.collection("people", ttl=60)
            with Store(url) as other:
                with other.transaction() as tx:
                    tx["others"].put("a", 1)
                    first, second, third = [
                        asyncio.ensure_future(people.put(id, 1)) for id in "abc"
                    ]
                    await asyncio.sleep(0.05)
                    for each in second, first:  # one that waits for the first, and the first
                        each.cancel()
                        with pytest.raises(asyncio.CancelledError) as caught:
                            await each
                        assert was_committed(caught.value) is False
                await third
                assert [each.id for each in other["people"].list()] == ["c"]
            assert (await declared(store))[0] is True

    asyncio.run(main())


@pytest.mark.each_backend
def test_a_rolled_back_transaction_stores_nothing(shared_backend: Backend) -> None:
    async def main() -> None:
        async with Recording(shared_backend) as store:
            await store.create_collection("people")
            with pytest.raises(ZeroDivisionError):
                async with store.transaction() as tx:
                    await tx.collection("people", **ALL).put("ada", ADA)
                    raise ZeroDivisionError
            assert await declared(store) == (False, [])
            async with store.transaction() as tx:
                await tx.collection("people", **ALL).put("ada", ADA)
            assert await declared(store) == (True, ["email_1"])

    asyncio.run(main())


@pytest.mark.each_backend
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_rolled_back_savepoint_stores_nothing(shared_backend: Backend, is_nested: bool) -> None:
    async def fail(tx: AsyncTransaction, people: Any) -> None:
        async with tx.transaction() as part:
            if is_nested:
                async with part.transaction():
                    await people.put("bob", {"email": "b@c"})
            else:
                await people.put("bob", {"email": "b@c"})
            raise ZeroDivisionError

    async def main() -> None:
        async with Recording(shared_backend) as store:
            async with store.transaction() as tx:
                people = tx.collection("people", **ALL)
                with pytest.raises(ZeroDivisionError):
                    await fail(tx, people)
                await people.put("ada", ADA)
            assert [each.id for each in await store["people"].list()] == ["ada"]
            assert await declared(store) == (True, ["email_1"])

    asyncio.run(main())


def test_a_read_only_store_reads_what_is_declared_already(shared_backend: Backend) -> None:
    url, options = shared_backend.url, shared_backend.options
    with Store(url, **options) as store:
        store.collection("people", model=Person).put("ada", ADA)
    if shared_backend.is_postgresql:
        options = {**options, "read_only": True}
    else:
        url += "?mode=ro"

    async def main() -> None:
        async with AsyncStore(url, **options) as store:
            assert await store.collection("people", model=Person).get("ada") == ADA
            changed = store.collection("people", model=Person, ttl=60)
            assert await changed.get("ada") == ADA
            with pytest.raises((ReadOnlyDatabase, DatabaseError)):
                await changed.put("ada", ADA)

    asyncio.run(main())


def test_an_awaited_collection_is_itself_with_a_warning(shared_backend: Backend) -> None:
    """As written for version 0.2, where errors of the database were raised there."""

    async def main() -> None:
        async with Recording(shared_backend) as store:
            with pytest.warns(DeprecationWarning, match="call it without await") as caught:
                people = await store.collection("people", **ALL)
            assert caught[0].filename == __file__
            assert isinstance(people, AsyncCollection)
            assert store.stored == ONCE
            with pytest.warns(DeprecationWarning, match="await"), pytest.raises(IndexExists):
                await store.collection("people", model=Other)

    asyncio.run(main())
