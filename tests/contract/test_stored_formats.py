"""Stored formats: old ones are read, unknown keys are kept, and a newer format is a clear error; on every backend, sync
and async.
"""

import json
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend, Opener
from contract.test_dialogues import ADA, RULES, on_disk

from collections_store import InvalidBody, SchemaTooNew, Store
from collections_store.dialogues import Message, model, records
from collections_store.options import FORMAT, CollectionOptions

KEY = "e46df1675a274489024bb3e7089a8f6c"
HEADER = {
    "dialogue_label": {
        "dialogue_starter_reference": "b7",
        "dialogue_responder_reference": "a1",
        "dialogue_opponent_addr": "bob",
        "dialogue_starter_addr": "bob",
    },
    "is_terminal": False,
    "self_address": "ada",
    "role": "responder",
    "state": "active",
    "metadata": {"budget": 5},
}
MESSAGE = {
    "performative": "ask",
    "body": {"item": "tea"},
    "message_id": 1,
    "target": 0,
    "dialogue_reference": ["b7", ""],
    "sender": "bob",
    "to": "ada",
}
"""A dialogue as version 0.1.0 stores it."""


def stored(store: Any, header: Any = HEADER, message: Any = MESSAGE) -> None:
    store[ADA.headers(header["is_terminal"])].put(KEY, header)
    store[ADA.messages].put(f"{KEY}0000000001", message)


@pytest.fixture
def again(open_store: Opener, store: Any) -> Any:
    return lambda: open_store.dialogues(store, rules=RULES)


def only(dialogues: Any) -> Any:
    [found] = dialogues.get_dialogues_with_counterparty("bob")
    assert dialogues.quarantined() == []
    return found


# -- dialogues ---------------------------------------------------------------------------------


def test_a_dialogue_without_a_format_continues(store: Any, again: Any) -> None:
    stored(store)
    dialogues = again()
    found = only(dialogues)
    assert [each.body for each in found.messages] == [{"item": "tea"}]
    assert found.metadata == {"budget": 5}
    dialogues.reply(found, "offer", {"price": 3})
    assert only(again()).message_count == 2


def test_written_records_have_a_format(store: Any, again: Any) -> None:
    again().create("bob", "ask")
    [header] = on_disk(store, "active")
    assert header.body["record_format"] == 1


def test_keys_of_a_newer_version_are_kept(store: Any, again: Any) -> None:
    label = {**HEADER["dialogue_label"], "dialogue_topic": "tea"}  # type: ignore[dict-item]
    stored(
        store,
        {**HEADER, "dialogue_label": label, "record_format": 1, "priority": [7]},
        {**MESSAGE, "trace": {"id": "x"}},
    )
    dialogues = again()
    found = only(dialogues)
    assert found.messages[0].json == {**MESSAGE, "trace": {"id": "x"}}
    found.metadata["budget"] = 6
    dialogues.reply(found, "offer", {"price": 3})
    [header] = on_disk(store, "active")
    assert (header.body["priority"], header.body["metadata"]) == ([7], {"budget": 6})
    assert header.body["dialogue_label"] == label
    found = only(again())
    assert found.message_count == 2
    dialogues = again()
    dialogues.reply(only(dialogues), "decline")
    [ended] = on_disk(store, "terminal")
    assert (ended.body["priority"], ended.body["state"]) == ([7], "refused")
    assert on_disk(store, "messages")[0].body == {**MESSAGE, "trace": {"id": "x"}}


def test_a_header_is_not_rewritten_to_add_a_format(store: Any, again: Any) -> None:
    stored(store, {**HEADER, "priority": 1})
    dialogues = again()
    dialogues.reply(only(dialogues), "offer", {"price": 3})
    [header] = on_disk(store, "active")
    assert (header.version, header.body) == (1, {**HEADER, "priority": 1})


@pytest.mark.parametrize(
    ("header", "message"),
    [({**HEADER, "record_format": 2}, MESSAGE), (HEADER, {**MESSAGE, "record_format": 2})],
    ids=["header", "message"],
)
def test_a_dialogue_of_a_newer_format_moves_to_the_quarantine_unchanged(
    store: Any, again: Any, header: Any, message: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(store, header, message)
    dialogues = again()
    [found] = dialogues.setup().quarantined
    assert "in format 2, and this version knows 1: upgrade the library" in found.reason
    assert dialogues.get_dialogues_with_counterparty("bob") == []
    assert dialogues.restore_quarantined() == []
    assert [each.body for each in dialogues.quarantined()] == [header, message]
    monkeypatch.setattr(model, "FORMAT", 2)
    monkeypatch.setattr(records, "FORMAT", 2)
    [restored] = again().restore_quarantined()
    assert [each.performative for each in restored.messages] == [MESSAGE["performative"]]
    assert [each.body for each in on_disk(store, "active")] == [header]
    assert [each.body for each in on_disk(store, "messages")] == [message]


def test_a_purge_moves_a_dialogue_of_a_newer_format_to_the_quarantine(
    store: Any, again: Any
) -> None:
    newer = {**HEADER, "is_terminal": True, "record_format": 2}
    stored(store, newer)
    dialogues = again()
    for _ in range(2):
        dialogues.finish(dialogues.create("eve", "ask")[1], "done")
    assert dialogues.purge(kept=1) == 1
    [left] = on_disk(store, "terminal")
    assert left.body["dialogue_label"]["dialogue_opponent_addr"] == "eve"
    assert [each.body for each in dialogues.quarantined()] == [newer, MESSAGE]
    assert "in format 2, and this version knows 1" in dialogues.quarantined()[0].reason


@pytest.mark.parametrize("lacking", [*MESSAGE])
def test_an_incomplete_message_is_invalid(lacking: str) -> None:
    with pytest.raises(ValueError, match="keys of a message"):
        Message.from_json({key: value for key, value in MESSAGE.items() if key != lacking})


# -- memories ----------------------------------------------------------------------------------


def test_values_of_unknown_types_are_rejected(store: Any) -> None:
    memory = store.memory("bot")
    memory.put("k", 1)
    [name] = [each.name for each in store.collections()]
    store[name].put(store[name].list()[0].id, {"list": [{"$fraction": [1, 3]}]})
    with pytest.raises(InvalidBody, match=r"type '\$fraction'.*stays as it is"):
        memory.get("k")


# -- the catalogue -----------------------------------------------------------------------------

OPTIONS = {
    "cursor_key": "5f0a5f0a5f0a5f0a5f0a5f0a5f0a5f0a",
    "body_index": False,
    "indexes": [
        {
            "name": "n_1",
            "fields": [[["n"], 1]],
            "unique": False,
            "where": {"kind": "a"},
            "arrays": False,
            "physical": "cs_1$i1",
        }
    ],
    "ways": [],
    "counter": 2,
    "ttl": 60_000_000,
    "sliding": False,
    "feed": {"physical": "cs_1$changes", "key": "0a0b0c0d", "bodies": "after", "limit": 5, "age": None},
    "jsonb": False,
}  # fmt: skip
"""An entry as version 0.1.0 stores it."""
NEWER: dict[str, Any] = {
    **OPTIONS,
    "format": 1,
    "indexes": [{**OPTIONS["indexes"][0], "density": "de"}],  # type: ignore[index]
    "feed": {**OPTIONS["feed"], "compressed": True},  # type: ignore[dict-item]
    "encryption": {"key": 1},
}


def test_unknown_keys_of_a_catalogue_entry_are_kept() -> None:
    read = CollectionOptions.from_text(json.dumps(OPTIONS))
    assert json.loads(read.to_text()) == {**OPTIONS, "format": 1}
    assert json.loads(CollectionOptions.from_text(json.dumps(NEWER)).to_text()) == NEWER
    for old in ("{}", '{"cursor_key": "a"}'):
        assert CollectionOptions.from_text(old).feed is None


def test_versions_that_know_no_distributed_collections_refuse_them() -> None:
    stored = CollectionOptions(distributed=True).to_text()
    assert json.loads(stored)["format"] == 2
    assert CollectionOptions.from_text(stored).distributed


def changed_entry(backend: Backend, **changes: Any) -> dict[str, Any]:
    """Change the entry of the only collection, as another version would; return the new entry."""
    engine = sa.create_engine(backend.url)
    schema = f"{backend.options['schema']}." if backend.is_postgresql else ""
    with engine.begin() as connection:
        [(text,)] = connection.execute(sa.text(f"SELECT options FROM {schema}cs_collections"))
        found = {**json.loads(text), **changes}
        new = {"options": json.dumps(found)}
        connection.execute(sa.text(f"UPDATE {schema}cs_collections SET options = :options"), new)
    engine.dispose()
    return found


def test_unknown_settings_of_a_collection_are_kept(shared_backend: Backend) -> None:
    options = shared_backend.options
    with Store(shared_backend.url, **options) as store:
        store["things"].create_index("n")
    changed_entry(shared_backend, encryption={"key": 1})
    with Store(shared_backend.url, **options) as store:
        store.get_sync_collection("things", ttl=60, changes=True)
        store["things"].create_index("m")
        store["things"].drop_index("n_1")
        store.rename("things", "others")
    assert changed_entry(shared_backend)["encryption"] == {"key": 1}


def test_a_collection_of_a_newer_format_is_rejected(shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["things"].put("a", 1)
    before = changed_entry(shared_backend, format=FORMAT + 1)
    with Store(shared_backend.url, **shared_backend.options) as store:
        for call in (lambda: store["things"].get("a"), lambda: store["things"].put("a", 2)):
            with pytest.raises(
                SchemaTooNew, match="catalogue's entry of a collection is in format 8"
            ):
                call()
    assert changed_entry(shared_backend) == before


def test_a_vector_index_has_a_format_that_older_versions_refuse(shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["things"].create_vector_index("a.b", dimensions=3)
        entry = changed_entry(shared_backend)
        assert entry["format"] == 3
        [stored] = entry["vector_indexes"]
        assert stored.pop("physical")
        fields = {"name": "a.b_vector", "fields": [["a", "b"]]}
        assert stored == {**fields, "dimensions": 3, "metric": "cosine", "model": None}
        store["things"].drop_index("a.b_vector")
    entry = changed_entry(shared_backend)
    assert entry["format"] == 1
    assert "vector_indexes" not in entry


@pytest.mark.parametrize(
    ("keys", "options"),
    [
        ("a", {"unique": True, "arrays": True}),
        (["a", "b"], {"arrays": True}),
        ("a", {"sparse": True}),
        ("a.$**", {}),
    ],
)
def test_a_sparse_index_or_one_of_keys_has_a_format_that_older_versions_refuse(
    shared_backend: Backend, keys: Any, options: Any
) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["things"].create_index("a", arrays=True)
        assert changed_entry(shared_backend)["format"] == 1
        name = store["things"].create_index(keys, **options, name="keys")
        entry = changed_entry(shared_backend)
        assert entry["format"] == 6
        store["things"].drop_index(name)
    assert changed_entry(shared_backend)["format"] == 1


def test_an_index_under_a_collation_has_a_format_that_older_versions_refuse() -> None:
    rules = {"locale": "simple", "strength": 2}
    with Store("sqlite://") as store:
        store["things"].create_index("a", collation=rules)
        index: Any = store["things"].indexes()[0]
    options = CollectionOptions(indexes=(index,))
    stored = json.loads(options.to_text())
    assert stored["format"] == 7
    [entry] = stored["indexes"]
    assert entry["collation"] == rules
    assert entry["key_name"] == index.collation.key_name
    [read] = CollectionOptions.from_text(options.to_text()).indexes
    assert (read, read.key_name, read.physical) == (index, index.key_name, index.physical)
    [portable] = options.to_portable()["indexes"]
    assert "key_name" not in portable
    assert CollectionOptions.from_portable(options.to_portable()).indexes == (index,)


def test_an_index_of_substrings_has_a_format_that_older_versions_refuse(
    shared_backend: Backend,
) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["things"].create_text_index(["a.b"], substring=True)
        entry = changed_entry(shared_backend)
        assert entry["format"] == 5
        index = {"name": "substring", "fields": [["a", "b", 1]], "substring": True}
        assert {key: entry["substrings"][key] for key in index} == index
        store["things"].drop_index("substring")
    entry = changed_entry(shared_backend)
    assert entry["format"] == 1
    assert "substrings" not in entry


def test_a_text_index_has_a_format_that_older_versions_refuse(shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["things"].create_text_index({"a.b": 2})
        entry = changed_entry(shared_backend)
        assert entry["format"] == 3
        index = {"name": "text", "fields": [["a", "b", 2]], "language": None, "words": 1}
        assert {key: entry["text"][key] for key in index} == index
        store["things"].drop_index("text")
    entry = changed_entry(shared_backend)
    assert entry["format"] == 1
    assert "text" not in entry
