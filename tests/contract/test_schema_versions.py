"""Collections with a schema version: reads and writes of older and newer documents, filters, and the eager upgrade."""

import re
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

from collections_store import (
    DocumentsOutdated,
    DocumentTooNew,
    DuplicateKey,
    InsertOne,
    Invalid,
    InvalidBody,
    InvalidOption,
    UpdateMany,
    UpgradeFailed,
)
from collections_store.operations.operation import Operation
from collections_store.operations.session import Session


def split_name(body: Any) -> Any:
    first, last = body.pop("name").split(" ", 1)
    return {"first": first, "last": last, **body}


def add_tags(body: Any) -> Any:
    return {**body, "tags": []}


UPGRADES = {1: split_name, 2: add_tags}
ADA = {"first": "Ada", "last": "Lovelace", "born": 1815, "tags": []}


def people(store: Any, **options: Any) -> Any:
    return store.collection("people", schema_version=3, upgrades=UPGRADES, **options)


@pytest.fixture
def old(store: Any) -> Any:
    """The collection without a version, with documents of versions 1 and 2."""
    old = store["people"]
    old.put("ada", {"name": "Ada Lovelace", "born": 1815})
    old.put("bob", {"schema_version": 2, "first": "Bob", "last": "Ross", "born": 1942})
    return old


def test_a_write_stores_the_version_and_a_read_hides_it(store: Any) -> None:
    ours = people(store)
    ours.put("ada", ADA)
    ours.insert_one({}, id="empty")
    ours.put_many({"bob": {"b": 1}})
    assert ours.get("ada") == ADA
    assert ours.document("ada").body == ADA
    assert ours.get_many(["ada", "empty"]) == {"ada": ADA, "empty": {}}
    assert [each.body for each in ours.list()] == [ADA, {}, {"b": 1}]
    assert store["people"].get("ada") == {"schema_version": 3, **ADA}
    assert {each.body["schema_version"] for each in store["people"].find()} == {3}
    assert ours.change("empty", lambda body: {**body, "n": len(body)}) == {"n": 0}


def test_a_read_upgrades_an_older_document_and_leaves_it(store: Any, old: Any) -> None:
    ours = people(store)
    assert ours.get("ada") == ADA
    assert ours.document("bob").body == {"first": "Bob", "last": "Ross", "born": 1942, "tags": []}
    assert ours.get_many(["ada"]) == {"ada": ADA}
    assert next(each.body for each in ours.stream()) == ADA
    assert old.get("ada") == {"name": "Ada Lovelace", "born": 1815}
    assert old.document("ada").version == 1


def test_write_back(store: Any, old: Any) -> None:
    ours = people(store, write_back=True)
    found = ours.document("ada")
    assert (found.body, found.version) == (ADA, 2)
    assert old.document("ada").body == {"schema_version": 3, **ADA}
    assert ours.document("ada").version == 2
    assert ours.get("bob")["tags"] == []
    assert old.document("bob").version == 2
    assert ours.get("nobody", 5) == 5
    old.put("eve", {"name": "Eve Adams"})
    assert ours.get_many(["nobody", "eve"]) == {
        "eve": {"first": "Eve", "last": "Adams", "tags": []}
    }
    assert ours.count({"first": "Eve"}) == 1


def test_a_write_back_that_a_unique_index_refuses(store: Any, old: Any) -> None:
    old.put_many({"eve": {"name": "Eve A"}, "evelyn": {"name": "Eve B"}})
    old.create_index("first", unique=True, where={"first": {"$exists": True}})
    ours = people(store, write_back=True)
    assert ours.get("eve")["last"] == "A"
    assert ours.get("evelyn")["last"] == "B"
    assert [old.document(id).version for id in ("eve", "evelyn")] == [2, 1]


@pytest.mark.parametrize(
    "call",
    [
        lambda ours: ours.find("first", "Ada"),
        lambda ours: ours.find(sort="first"),
        lambda ours: ours.find(projection=["first"]),
        lambda ours: ours.find_one({"born": {"$gt": 1}}),
        lambda ours: ours.page({"first": "Ada"}),
        lambda ours: ours.page(sort="first"),
        lambda ours: list(ours.stream({"first": "Ada"})),
        lambda ours: list(ours.stream(sort="first")),
        lambda ours: ours.count({"first": "Ada"}),
        lambda ours: ours.distinct("first"),
        lambda ours: ours.aggregate([{"$match": {}}]),
        lambda ours: ours.update_one({"first": "Ada"}, {"$set": {"x": 1}}),
        lambda ours: ours.update_many({"first": "Ada"}, {"$set": {"x": 1}}),
        lambda ours: ours.replace_one({"first": "Ada"}, {}),
        lambda ours: ours.find_one_and_update({"first": "Ada"}, {"$set": {"x": 1}}),
        lambda ours: ours.find_one_and_delete({}, sort="first"),
        lambda ours: ours.delete_one({"first": "Ada"}),
        lambda ours: ours.delete_many({"first": "Ada"}),
        lambda ours: ours.bulk_write([InsertOne({}), UpdateMany({"first": "Ada"}, {"$set": {"x": 1}})]),
        lambda ours: ours.bulk_write([UpdateMany({"first": "Ada"}, {"$set": {"x": 1}})], atomic=True),
        lambda ours: ours.create_index("first", unique=True),
    ],
)  # fmt: skip
def test_a_filter_needs_the_upgrade_and_is_right_after_it(store: Any, old: Any, call: Any) -> None:
    ours = people(store)
    before = [(each.id, each.version, each.body) for each in old.list()]
    with pytest.raises(DocumentsOutdated) as caught:
        call(ours)
    error = caught.value
    assert "collections-store documents upgrade people --using" in str(error)
    assert (error.collection, error.expected) == ("people", 3)
    assert error.found in {1, 2}
    assert [(each.id, each.version, each.body) for each in old.list()] == before
    result = ours.upgrade_documents()
    assert (result.upgraded_count, result.failed_count, result.failures) == (2, 0, ())
    call(ours)


def test_what_needs_no_upgrade(store: Any, old: Any) -> None:
    """Neither everything nor a filter of metadata depends on fields."""
    ours = people(store)
    assert [each.id for each in ours.find()] == ["ada", "bob"]
    assert [each.body["first"] for each in ours.page()] == ["Ada", "Bob"]
    assert ours.find({"$id": "ada"})[0].body == ADA
    assert ours.count() == ours.count({"$version": 1}) == 2
    assert ours.exists("ada")
    ours.create_index("first")
    assert ours.update_many({}, {"$set": {"seen": True}}).modified_count == 2
    assert old.get("ada") == {"schema_version": 3, **ADA, "seen": True}
    assert ours.count({"seen": True, "tags": []}) == 2
    assert ours.delete_many({}).deleted_count == 2


def test_a_write_of_an_older_program_is_seen(store: Any) -> None:
    ours = people(store)
    ours.put("ada", ADA)
    assert ours.count({"first": "Ada"}) == 1
    store["people"].put("eve", {"name": "Eve Adams"})
    with pytest.raises(DocumentsOutdated):
        ours.count({"first": "Ada"})
    assert ours.upgrade_documents().upgraded_count == 1
    assert ours.count({"first": "Eve"}) == 1


def test_an_expired_document_needs_no_upgrade(store: Any, clock: Any) -> None:
    store["people"].put("eve", {"name": "Eve Adams"}, ttl=10)
    ours = people(store)
    with pytest.raises(DocumentsOutdated):
        ours.count({"first": "Eve"})
    clock.advance(11)
    assert ours.count({"first": "Eve"}) == 0


def test_updates_of_an_older_document(store: Any, old: Any) -> None:
    ours = people(store)
    assert ours.update("ada", {"$push": {"tags": "x"}}).modified_count == 1
    assert old.get("ada") == {"schema_version": 3, **ADA, "tags": ["x"]}
    assert ours.increment("bob", "born", 1) == 1943
    assert old.get("bob")["tags"] == []
    assert old.get("bob")["schema_version"] == 3
    old.put("eve", {"name": "Eve Adams"})
    assert (
        ours.change("eve", lambda body: {**body, "last": body["last"].upper()})["last"] == "ADAMS"
    )
    assert ours.count({"last": "ADAMS"}) == 1
    assert ours.increment("visits", "n") == 1
    assert ours.update("new", {"$set": {"n": 1}}, upsert=True).upserted_id == "new"
    assert ours.replace_one({"$id": "newer"}, {"n": 2}, upsert=True).upserted_id == "newer"
    assert ours.get_many(["visits", "new", "newer"]) == {
        "visits": {"n": 1}, "new": {"n": 1}, "newer": {"n": 2},
    }  # fmt: skip
    assert ours.update("new", {"$set": {"n": 1}}).modified_count == 0
    assert ours.find_one_and_update({"n": 2}, {"$inc": {"n": 1}}).body == {"n": 2}
    assert store["people"].count({"schema_version": 3}) == 6


def test_a_newer_document(store: Any) -> None:
    store["people"].put("ada", {"schema_version": 4, "given": "Ada"})
    ours = people(store)
    for call in (
        lambda: ours.get("ada"),
        lambda: ours.document("ada"),
        ours.list,
        lambda: ours.update("ada", {"$set": {"x": 1}}),
        lambda: ours.increment("ada", "n"),
        lambda: ours.change("ada", lambda body: body),
        lambda: ours.count({"first": "Ada"}),
    ):
        with pytest.raises(DocumentTooNew) as caught:
            call()
        error = caught.value
        assert (error.collection, error.id, error.found, error.expected) == ("people", "ada", 4, 3)
    result = ours.upgrade_documents()
    assert (result.upgraded_count, result.failed_count) == (0, 1)
    assert isinstance(result.failures[0].error, DocumentTooNew)
    assert store["people"].get("ada") == {"schema_version": 4, "given": "Ada"}
    reads = people(store, downgrades={4: lambda body: {"first": body["given"]}})
    assert reads.get("ada") == {"first": "Ada"}
    with pytest.raises(DocumentTooNew):
        reads.count({"first": "Ada"})
    assert reads.upgrade_documents().upgraded_count == 1
    assert reads.count({"first": "Ada"}) == 1


def test_steps_that_fail_leave_the_document(store: Any, old: Any) -> None:
    old.put("list", [1])
    old.put("nameless", {"title": "none"})
    ours = people(store)
    with pytest.raises(
        UpgradeFailed, match="'nameless' cannot go from .* 1 to 2: split_name raised KeyError"
    ) as caught:
        ours.get("nameless")
    assert isinstance(caught.value.__cause__, KeyError)
    assert (caught.value.collection, caught.value.id) == ("people", "nameless")
    for call in (
        ours.list,
        lambda: ours.update("nameless", {"$set": {"x": 1}}),
        lambda: ours.increment("nameless", "x"),
        lambda: ours.change("nameless", lambda body: body),
    ):
        with pytest.raises(UpgradeFailed):
            call()
    result = ours.upgrade_documents()
    assert (result.upgraded_count, result.failed_count, result.quarantined_count) == (2, 2, 0)
    failures = {each.id: each.error for each in result.failures}
    assert "must be a JSON object" in str(failures["list"])
    assert "split_name raised KeyError" in str(failures["nameless"])
    assert isinstance(failures["nameless"].__cause__, KeyError)
    assert old.document("nameless").version == 1
    with pytest.raises(DocumentsOutdated):
        ours.count({"first": "Ada"})


@pytest.mark.parametrize("write_back", [False, True])
def test_nothing_is_written_without_the_id(store: Any, write_back: bool) -> None:
    old = store["people"]
    old.put("ada", {"id": "ada", "n": 1})
    ours = store.collection(
        "people",
        schema_version=2,
        upgrades={1: lambda body: {"n": body["n"]}},
        write_back=write_back,
    )

    def edit() -> None:
        with ours.edit("ada") as body:
            body["n"] = 2

    reads = (lambda: ours.get("ada"), lambda: ours.document("ada"), lambda: ours.get_many(["ada"]))
    for call in (
        *(reads if write_back else ()),
        edit,
        lambda: ours.change("ada", lambda body: {**body, "n": 2}),
        lambda: ours.update("ada", {"$set": {"n": 2}}),
        lambda: ours.increment("ada", "n"),
        lambda: ours.update_many({}, {"$set": {"n": 2}}),
    ):
        with pytest.raises(UpgradeFailed, match="must keep the field 'id'") as caught:
            call()
        assert (caught.value.collection, caught.value.id) == ("people", "ada")
    found = old.document("ada")
    assert (found.body, found.version) == ({"id": "ada", "n": 1}, 1)


def test_quarantine(store: Any, old: Any) -> None:
    old.put("nameless", {"title": "none"}, ttl=1000)
    old.put("nameless", {"title": "none"}, ttl=1000)
    ours = people(store)
    result = ours.upgrade_documents(quarantine="people_failed")
    assert (result.upgraded_count, result.failed_count, result.quarantined_count) == (2, 0, 1)
    assert ours.count({"first": "Ada"}) == 1
    assert ours.get("nameless") is None
    found = store["people_failed"].document("nameless")
    assert found.body["body"] == {"title": "none"}
    assert found.body["version"] == 2
    assert "split_name raised KeyError" in found.body["reason"]
    assert found.expires_us is not None


def test_a_quarantine_replaces_no_document(store: Any, old: Any) -> None:
    old.put("nameless", {"title": "none"})
    store["others"].put("nameless", "kept")
    result = people(store).upgrade_documents(quarantine="others")
    assert (result.upgraded_count, result.failed_count, result.quarantined_count) == (2, 1, 0)
    assert isinstance(result.failures[0].error, DuplicateKey)
    assert isinstance(result.failures[0].error.__cause__, UpgradeFailed)
    assert store["others"].get("nameless") == "kept"
    assert old.get("nameless") == {"title": "none"}


def test_a_quarantine_takes_every_body_that_is_stored(open_store: Any) -> None:
    store = open_store(max_body=500)
    deep: Any = 1
    for _ in range(199):
        deep = [deep]
    bodies = {"large": {"title": "x" * 480}, "deep": {"title": deep}}
    store["people"].put_many(bodies)
    result = people(store).upgrade_documents(quarantine="people_failed")
    assert result.quarantined_count == 2
    assert {each.id: each.body["body"] for each in store["people_failed"].list()} == bodies


def test_a_unique_index_refuses_an_upgrade(store: Any, old: Any) -> None:
    old.put_many({"eve": {"name": "Eve A"}, "evelyn": {"name": "Eve B"}})
    old.create_index("first", unique=True, where={"first": {"$exists": True}})
    result = people(store).upgrade_documents()
    assert (result.upgraded_count, result.failed_count) == (3, 1)
    assert result.failures[0].id == "evelyn"
    assert isinstance(result.failures[0].error, DuplicateKey)


def test_a_dry_run_writes_nothing(store: Any, old: Any) -> None:
    old.put("nameless", {"title": "none"})
    before = [(each.id, each.version, each.body) for each in old.list()]
    result = people(store).upgrade_documents(dry_run=True, quarantine="people_failed")
    assert (result.upgraded_count, result.failed_count, result.quarantined_count) == (2, 1, 0)
    assert [each.id for each in result.samples] == ["ada", "bob"]
    assert result.samples[0].diff().splitlines() == [
        "  {",
        '    "born": 1815,',
        '-   "name": "Ada Lovelace"',
        '+   "first": "Ada",',
        '+   "last": "Lovelace",',
        '+   "schema_version": 3,',
        '+   "tags": []',
        "  }",
    ]
    assert [(each.id, each.version, each.body) for each in old.list()] == before
    assert [each.name for each in store.collections()] == ["people"]


def test_many_documents_and_progress(store: Any) -> None:
    store["people"].put_many((f"p{n}", {"name": f"Person {n}"}) for n in range(2500))
    ours, seen = people(store), list[tuple[int, int]]()
    result = ours.upgrade_documents(progress=lambda done, total: seen.append((done, total)))
    assert result.upgraded_count == 2500
    assert seen[-1] == (2500, 2500)
    assert len(seen) > 2
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert ours.count({"first": "Person", "tags": []}) == 2500
    assert [each.id for each in ours.find(limit=3)] == ["p0", "p1", "p2"]
    assert ours.upgrade_documents().upgraded_count == 0


def test_in_a_transaction(store: Any, old: Any) -> None:
    with store.transaction() as tx:
        ours = tx.collection("people", schema_version=3, upgrades=UPGRADES)
        assert ours.get("ada") == ADA
        assert ours.upgrade_documents().upgraded_count == 2
        assert ours.count({"first": "Ada"}) == 1
    assert old.get("ada") == {"schema_version": 3, **ADA}


def test_the_store_writes_the_field(store: Any) -> None:
    ours = people(store)
    for body, path in (
        ({"schema_version": 3}, "schema_version"),
        ({"a": 1, "schema_version": 1}, "schema_version"),
        ([1], ""),
        (None, ""),
        ("text", ""),
    ):
        with pytest.raises(InvalidBody) as caught:
            ours.put("x", body)
        assert caught.value.path == path
    ours.put("x", {"inner": {"schema_version": 1}, "text": '"schema_version"'})
    assert ours.get("x") == {"inner": {"schema_version": 1}, "text": '"schema_version"'}
    for update in ({"$set": {"schema_version": 9}}, {"$inc": {"schema_version": 1}}):
        with pytest.raises(InvalidBody, match="must not change the schema version"):
            ours.update("x", update)


def test_declarations_that_are_refused(store: Any) -> None:
    for options, option in (
        ({"schema_version": 0}, "schema_version"),
        ({"upgrades": {1: split_name}}, "schema_version"),
        ({"schema_version": 3, "upgrades": {1: split_name}}, "upgrades"),
        ({"schema_version": 3, "write_back": "yes"}, "write_back"),
    ):
        with pytest.raises(InvalidOption) as caught:
            store.collection("people", **options)
        assert caught.value.option == option
    assert store.collections() == []
    with pytest.raises(InvalidOption, match="schema_version: must be declared"):
        store["people"].upgrade_documents()
    ours = people(store)
    for option, value in (("dry_run", 1), ("quarantine", "people"), ("progress", 5)):
        with pytest.raises(InvalidOption) as caught:
            ours.upgrade_documents(**{option: value})
        assert caught.value.option == option


def test_two_programs_of_different_versions(store: Any, old: Any) -> None:
    """The one with the higher version upgrades; the other meets newer documents."""
    two = store.collection("people", schema_version=2, upgrades={1: split_name})
    two.upgrade_documents()
    assert two.count({"first": "Ada"}) == 1
    ours = people(store)
    with pytest.raises(DocumentsOutdated):
        ours.count({"first": "Ada"})
    ours.upgrade_documents()
    with pytest.raises(DocumentTooNew):
        two.count({"first": "Ada"})
    with pytest.raises(DocumentTooNew):
        two.get("ada")


def test_a_collection_of_that_version_keeps_its_other_options(store: Any, old: Any) -> None:
    ours = people(store, ttl=60, changes="both")
    ours.get("ada")
    ours.upgrade_documents()
    assert ours.document("ada").expires_us is None
    changes = ours.watch(after="oldest", timeout=0)
    found = [(each.id, each.before, each.body) for each in changes]
    assert ("ada", ADA, ADA) in found
    store.rename("people", "persons")
    persons = store.collection("persons", schema_version=3)
    assert persons.count({"first": "Ada"}) == 1


def test_a_filter_of_changes_sees_the_declared_version(store: Any) -> None:
    old = store.collection("people", changes="both")
    old.put("ada", {"name": "Ada Lovelace", "born": 1815})
    old.put("plato", {"name": "Plato"})
    old.remove("ada")
    options = {"after": "oldest", "timeout": 0}
    ours = people(store)
    found = [(each.kind, each.body) for each in ours.watch({"first": "Ada"}, **options)]
    assert found == [("insert", ADA), ("remove", None)]
    typed = people(store, model=Person)
    person = Person(first="Ada", last="Lovelace", born=1815, tags=[])
    assert [each.body for each in typed.watch({"first": "Ada"}, **options)] == [person, None]
    [broken] = ours.watch({"name": "Plato"}, **options)
    assert isinstance(broken.body, Invalid)
    assert broken.body.body == {"name": "Plato"}


class Person(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    first: str
    last: str
    born: int = 0
    tags: list[str]


@dataclass
class Citizen:
    first: str
    last: str
    tags: list[str]
    born: int = 0


@pytest.mark.parametrize("model", [Person, Citizen])
@pytest.mark.parametrize("write_back", [False, True])
def test_with_a_model(store: Any, old: Any, model: Any, write_back: bool) -> None:
    ours = people(store, model=model, write_back=write_back)
    ada = model(first="Ada", last="Lovelace", born=1815, tags=[])
    assert ours.get("ada") == ada
    assert ours.document("ada").body == ada
    assert ours.list()[0].body == ada
    assert old.document("ada").version == 1 + write_back
    old.put("eve", {"name": "Eve Adams", "born": "long ago"})
    with pytest.raises(InvalidBody) as caught:
        ours.get("eve")
    assert (caught.value.path, caught.value.id) == ("born", "eve")
    with pytest.raises(DocumentsOutdated):
        ours.find("first", "Ada")
    result = ours.upgrade_documents()
    assert (result.failed_count, result.failures[0].id) == (1, "eve")
    assert isinstance(result.failures[0].error, InvalidBody)
    old.remove("eve")
    assert [each.body for each in ours.find("first", "Ada")] == [ada]
    assert ours.update("ada", {"$push": {"tags": "x"}}).modified_count == 1
    ours.put("alan", model(first="Alan", last="Turing", tags=["y"]))
    assert old.get("alan") == {
        "schema_version": 3, "first": "Alan", "last": "Turing", "born": 0, "tags": ["y"],
    }  # fmt: skip
    assert ours.get("ada").tags == ["x"]
    assert {each.body.first for each in ours.find({"born": {"$gte": 0}})} == {"Ada", "Alan", "Bob"}


@pytest.mark.parametrize("invalid", ["skip", "return"])
def test_a_write_back_leaves_what_does_not_fit_the_model(
    store: Any, old: Any, invalid: str
) -> None:
    old.put("eve", {"name": "Eve Adams", "born": "long ago"})
    found = [
        people(store, model=Person, invalid=invalid, write_back=write_back).get("eve")
        for write_back in (False, True)
    ]
    assert found[0] == found[1]
    assert (found[0] is None) == (invalid == "skip")
    assert old.document("eve").version == 1


def test_a_write_back_leaves_what_is_too_large(open_store: Any) -> None:
    store = open_store(max_body=100)
    store["people"].put("ada", {"n": 1})
    ours = store.collection(
        "people", schema_version=2, upgrades={1: lambda _: {"x": "y" * 100}}, write_back=True
    )
    assert ours.get("ada") == {"x": "y" * 100}
    assert store["people"].document("ada").version == 1


@dataclass(frozen=True)
class ExplainStatement(Operation[Any]):
    """Return the lines of the plan of a statement over the documents of other versions."""

    statement: str
    collection: str = "people"

    def __call__(self, session: Session) -> Any:
        statements, compiler = session.collection(self.collection), session.database.compiler
        sql = compiler.explain + getattr(statements.versions(3), self.statement)
        rows = session.rows(sql, {"now": 0, "seq": 0, "limit": 50})
        return compiler.plan(rows, statements.table).lines


def test_the_documents_of_other_versions_are_found_by_an_index(store: Any) -> None:
    ours = people(store)
    ours.put_many((str(n), {"n": n, "text": "x" * 100}) for n in range(3000))
    for statement in ("any", "count", "some"):
        plan = "\n".join(store.run(ExplainStatement(statement)))
        assert re.search(r"cs_1\$i\d", plan), plan
        assert "Seq Scan" not in plan


def test_a_pipeline_of_a_collection_that_does_not_exist_reads_others(store: Any) -> None:
    store["fruits"].put("1", {"n": 1})
    assert people(store).aggregate([{"$unionWith": "fruits"}]) == [{"n": 1}]
