"""Options are declared once, and validated by their declaration."""

from dataclasses import MISSING, fields
from typing import Any, get_type_hints

import pytest
import sqlalchemy as sa

from collections_store import (
    AsyncStore,
    CallOptions,
    ChangeSettings,
    CollectionSettings,
    InvalidOption,
    InvalidUrl,
    Store,
    StoreOptions,
)
from collections_store.options import CallContext, Options, Settings, option_types

URL = "postgresql://me:secret@h1,h2/d"


def test_every_option_of_a_store_is_declared_documented_and_has_a_default() -> None:
    assert get_type_hints(Options) == get_type_hints(StoreOptions)
    for option in fields(Options):
        assert option.default is not MISSING
        assert f"* `{option.name}`: " in (StoreOptions.__doc__ or "")


def test_every_option_of_a_call_is_documented_and_has_a_default() -> None:
    for option in get_type_hints(CallOptions):
        assert hasattr(CallContext(), option)
        assert f"* `{option}`: " in (CallOptions.__doc__ or "")


def test_every_option_of_a_collection_is_documented() -> None:
    described = f"{ChangeSettings.__doc__} {CollectionSettings.__doc__}"
    for option in get_type_hints(CollectionSettings):
        assert f"* `{option}`: " in described


@pytest.mark.parametrize("kind", [Store, AsyncStore])
def test_an_unknown_option_of_a_store_is_named(kind: Any) -> None:
    with pytest.raises(TypeError, match="no option 'pol_size': did you mean 'pool_size'"):
        kind("sqlite://", pol_size=3)
    with pytest.raises(TypeError, match="no option 'colour': it has pool_size, busy_timeout"):
        kind("sqlite://", colour="red")


def test_an_unknown_option_of_a_collection_is_named() -> None:
    with Store("sqlite://") as store:
        with pytest.raises(TypeError, match="no option 'change': did you mean 'changes'"):
            store.collection("things", change=True)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="no option 'ttl': it has changes"):
            store.memory("bot").configure(ttl=5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"pool_size": 0}, "pool_size: must be an integer from 1 on, got 0"),
        ({"pool_size": True}, "pool_size: must be an integer from 1 on, got True"),
        ({"busy_timeout": 0}, "busy_timeout: must be from 0.001 to 2,000,000 seconds, got 0"),
        (
            {"durability": "most"},
            "durability: must be 'full' or 'normal' or 'replicated', got 'most'",
        ),
        ({"reconnect_for": -1}, "reconnect_for: must be from 0 to 2,000,000 seconds, got -1"),
        ({"reconnect_for": False}, "reconnect_for: must be from 0 to"),
        ({"upgrade": 5}, "upgrade: must be None or 'auto' or 'manual', got 5"),
        ({"default": 5}, "default: must be a function, got 5"),
        ({"prefix": "A"}, "prefix: must be 1 to 20 of a-z, 0-9 and _, beginning with a letter"),
        ({"schema": ""}, "schema: must be 1 to 63 ASCII characters without %, got ''"),
        ({"schema": "mine"}, "schema: sqlite has no schemas: use a prefix"),
    ],
)
def test_an_invalid_option_is_an_error_with_its_value(options: Any, problem: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        Store("sqlite://", **options)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"sliding": 1}, "sliding: must be True or False, got 1"),
        ({"changes": "all"}, "changes: must be True, False, 'after' or 'both', got 'all'"),
        ({"changes": 1}, "changes: must be True, False, 'after' or 'both', got 1"),
        ({"changes_kept": 0}, "changes_kept: must be an integer from 1 to 1,000,000,000, got 0"),
    ],
)
def test_an_invalid_setting_is_an_error_with_its_value(settings: Any, problem: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        Settings.parse(settings)
    assert problem in str(caught.value)


def test_the_types_of_options_in_a_configuration() -> None:
    kinds = option_types()
    assert kinds.keys() == get_type_hints(StoreOptions).keys() - {
        "default",
        "read_only",
        "on_operation",
        "echo",
    }
    assert (kinds["pool_size"], kinds["busy_timeout"], kinds["upgrade"]) == (int, float, str)


@pytest.mark.parametrize("kind", [Store, AsyncStore])
@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("c.db", "sqlite:///c.db"),
        ("/data/my store.db", "sqlite:////data/my store.db"),
        ("data/store", "sqlite:///data/store"),
        ("C:\\data\\c.db", "sqlite:///C:\\data\\c.db"),
        ("sqlite:c.db", "sqlite:///c.db"),
        (":memory:", "sqlite://"),
    ],
)
def test_a_path_is_answered_with_its_url(kind: Any, path: str, url: str) -> None:
    with pytest.raises(InvalidUrl) as caught:
        kind(path)
    assert str(caught.value) == f"{path!r} is a path, not a URL: use {url}"
    kind(url)


@pytest.mark.parametrize(
    "url",
    ["", "people", "me:secret@h/d.b", "host=secret.x", "h.secret?password=secret", "~/secret.db"],
)
def test_other_strings_are_not_repeated(url: str) -> None:
    with pytest.raises(InvalidUrl, match="the URL cannot be read") as caught:
        Store(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "options", "option", "problem"),
    [
        ("sqlite://", {"replicas": "sqlite://"}, "replicas", "sqlite has no replicas"),
        (URL, {"replicas": "sqlite://"}, "replicas", "must be a URL of postgresql"),
        (URL, {"replicas": "mysql://h/d"}, "replicas", "must be a URL of postgresql.* got one of mysql"),
        (URL, {"replicas": 7}, "replicas", "a URL must be a string"),
        (URL, {"replicas": "h1,h2"}, "replicas", "the URL cannot be read"),
        (f"{URL}?replicas=nonsense", {}, "replicas", "the URL cannot be read"),
        (URL, {"replicas": f"{URL}?pool_size=3"}, "replicas", "no option 'pool_size'"),
        (URL, {"replicas": f"{URL}?consistency=strong"}, "replicas", "has 'consistency', an option of the store"),
        (URL, {"replicas": f"{URL}?pooler=some"}, "pooler", "'transaction' or 'session', got 'some'"),
        (URL, {"replicas": URL, "read_only": True}, "replicas", "not with read_only"),
        (URL, {"replicas": URL, "sharding": "schema", "schema": "s"}, "replicas", "not with sharding"),
        (URL, {"replicas": URL, "consistency": "fresh"}, "consistency", "'strong' or 'eventual', got 'fresh'"),
        (URL, {"consistency": "eventual"}, "consistency", "needs replicas"),
        (f"{URL}?consistency=strong", {}, "consistency", "needs replicas"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [Store, AsyncStore])
def test_replicas_that_cannot_be_used_are_refused(
    kind: Any, url: str, options: Any, option: str, problem: str
) -> None:
    with pytest.raises(InvalidOption, match=f"option {option}: .*{problem}") as caught:
        kind(url, **options)
    assert "secret" not in str(caught.value)


def test_replicas_are_no_option_beside_an_engine() -> None:
    engine = sa.create_engine("postgresql+psycopg://h/d")
    with pytest.raises(InvalidOption, match="option replicas: give the store a URL"):
        Store(engine=engine, replicas=URL)


@pytest.mark.parametrize("kind", [Store, AsyncStore])
def test_replicas_in_a_url(kind: Any) -> None:
    url = sa.make_url(URL).update_query_dict({"replicas": URL, "consistency": "eventual"})
    for given in (url, url.render_as_string(hide_password=False)):
        store = kind(given)
        assert "secret" not in repr(store)
        assert store.core.consistency == "eventual"
    assert kind(URL, replicas=URL).core.consistency == "session"
    assert kind(URL).core.consistency == kind("sqlite://").core.consistency == "strong"
