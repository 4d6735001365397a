"""The beginnings of ids, up to a delimiter."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collections_store import InvalidFilter, InvalidOption, Store

IDS = ("a", "a!/1", "a/", "a/x/1", "a/x/2", "a/y/1", "a/z", "a0", "b//1", "b/c/1", "ä/é/1")


@pytest.fixture
def files(things: Any) -> Any:
    things.put_many((id, None) for id in reversed(IDS))
    return things


@pytest.mark.each_backend
def test_each_beginning_is_returned_once_in_order(files: Any) -> None:
    assert files.id_prefixes("/") == ["a", "a!/", "a/", "a0", "b/", "ä/"]
    assert files.id_prefixes("/", prefix="a/") == ["a/", "a/x/", "a/y/", "a/z"]
    assert files.id_prefixes("//") == [each if each != "b//1" else "b//" for each in IDS]
    assert files.id_prefixes("//", prefix="b/") == ["b//", "b/c/1"]
    assert files.id_prefixes("/", prefix="c") == []


@pytest.mark.each_backend
def test_pages_continue_after_a_result(files: Any) -> None:
    whole = files.id_prefixes("/", prefix="a")
    pages, last = [], None
    while page := files.id_prefixes("/", prefix="a", after=last, limit=2):
        pages += page
        last = page[-1]
    assert pages == whole
    assert files.id_prefixes("/", limit=0) == []


@pytest.mark.each_backend
def test_expired_documents_have_none(files: Any, clock: Any) -> None:
    files.put("c/1", None, ttl=1)
    files.put("c/2", None)
    files.put("d/1", None, ttl=1)
    clock.advance(2)
    assert files.id_prefixes("/", prefix="a0") == ["a0"]
    assert files.id_prefixes("/", after="b/") == ["c/", "ä/"]


def test_a_collection_that_does_not_exist_has_none(store: Any) -> None:
    assert store["nothing"].id_prefixes("/") == []
    assert store.collections() == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("",),
        (None,),
        ("\0",),
        ("/", {"prefix": 1}),
        ("/", {"after": b"a"}),
        ("/", {"limit": -1}),
        ("\ud800",),
    ],
)
def test_bad_arguments_are_refused(things: Any, arguments: Any) -> None:
    delimiter, options = (*arguments, {})[:2]
    with pytest.raises((InvalidOption, InvalidFilter)):
        things.id_prefixes(delimiter, **options)


@pytest.fixture(scope="module")
def documents() -> Iterator[Any]:
    with Store("sqlite://") as store:
        yield store["things"]


parts = st.text("a/!\ud7ff\U0010ffff", max_size=5)


@given(st.sets(parts), parts, st.text("a/\ud7ff\U0010ffff", min_size=1, max_size=2))
@example({"a", "aa"}, "a", "a")
def test_they_are_those_of_all_ids(
    documents: Any, ids: set[str], prefix: str, delimiter: str
) -> None:
    def beginning(id: str) -> str:
        position = id.find(delimiter, max(0, len(prefix) - len(delimiter) + 1))
        return id if position < 0 else id[: position + len(delimiter)]

    documents.delete_many({})
    documents.put_many((id, None) for id in ids)
    expected = sorted({beginning(id) for id in ids if id.startswith(prefix)})
    assert documents.id_prefixes(delimiter, prefix=prefix) == expected
    for number, each in enumerate(expected, 1):
        assert documents.id_prefixes(delimiter, prefix=prefix, after=each) == expected[number:]
