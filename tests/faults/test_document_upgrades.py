"""Upgrades of documents that are killed, and beside readers and writers of both versions."""

import random
import threading
from typing import Any

import pytest
from backends import Backend
from faults.programs import to_list
from faults.test_killed_writers import check_file, kill_in_the_middle
from faults.test_processes import stop_processes as stop_processes

from collections_store import Collection, Document, Store

COUNT, FEW = 3000, 400
STEPS = {1: to_list}


def declared(store: Store, **options: Any) -> Collection:
    return store.collection("things", schema_version=2, upgrades=STEPS, **options)


@pytest.mark.parametrize("lines", [1, 4])
def test_a_killed_upgrade_goes_on_where_it_ended(shared_backend: Backend, lines: int) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["things"].put_many((str(n), {"n": n, "text": "x" * 1000}) for n in range(COUNT))
    kill_in_the_middle(shared_backend, "upgrade_documents", lines)
    with Store(shared_backend.url, **shared_backend.options) as store:
        stored = list(store["things"].stream())
        done = [each for each in stored if each.version == 2]
        assert 50 <= len(done) < COUNT
        assert all(each.body == {"schema_version": 2, "n": [int(each.id)]} for each in done)
        assert all(each.body["n"] == int(each.id) for each in stored if each.version == 1)
        result = declared(store).upgrade_documents()
        assert (result.upgraded_count, result.failed_count) == (COUNT - len(done), 0)
        assert {each.version for each in store["things"].stream()} == {2}
        assert declared(store).count({"n": [7]}) == 1
    check_file(shared_backend)


def test_an_upgrade_beside_readers_and_writers(shared_backend: Backend) -> None:
    """No change is lost, and each reader sees the new shape."""
    with Store(shared_backend.url, **shared_backend.options, busy_timeout=60) as store:
        store["things"].put_many((str(n), {"n": n}) for n in range(FEW))
        ours, ended, failures = declared(store), threading.Event(), list[BaseException]()
        written: set[str] = set()

        def guarded(work: Any) -> None:
            try:
                while not ended.wait(0.001):  # else the others would hardly get the one writer
                    work(str(random.randrange(FEW)))
            except BaseException as error:  # noqa: BLE001 - it is raised in the test
                failures.append(error)

        def read(id: str) -> None:
            assert ours.get(id)["n"][0] == int(id)

        def write(id: str) -> None:
            ours.update(id, {"$push": {"n": -1}})
            written.add(id)

        def write_in_the_old_shape(id: str) -> None:
            store["things"].put(f"old {id}", {"n": int(id)})

        works = [read, write, write_in_the_old_shape]
        threads = [threading.Thread(target=guarded, args=[work]) for work in works]
        for thread in threads:
            thread.start()
        while ours.upgrade_documents().upgraded_count and not written:
            pass
        ended.set()
        for thread in threads:
            thread.join()
        assert failures == []
        ours.upgrade_documents()
        assert ours.count({"n": -1}) == len(written)
        every: list[Document] = store["things"].list()
        assert {each.body["schema_version"] for each in every} == {2}
        for each in every:
            first, *pushed = each.body["n"]
            assert first == int(each.id.removeprefix("old "))
            assert bool(pushed) == (each.id in written)
