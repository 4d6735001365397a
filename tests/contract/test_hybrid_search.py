"""Searches by words and by meaning at once, on both databases, sync and async."""

import random
from typing import Any

import pytest

from collections_store import InvalidOption, InvalidSearch

pytestmark = pytest.mark.each_backend


def embed(texts: list[str]) -> list[list[float]]:
    """Words for drinks are near each other, and so are words for the weather."""
    drinks, weather = ("tea", "coffee", "cup"), ("rain", "sun", "wind")
    return [[sum(map(text.count, drinks)), sum(map(text.count, weather)), 0.1] for text in texts]


NOTES = {
    "a": "green tea",
    "b": "coffee in a cup",
    "c": "rain and wind",
    "d": "tea in the rain",
    "e": "nothing of it",
}


@pytest.fixture
def notes(things: Any) -> Any:
    things.create_text_index("text")
    things.create_vector_index("text", dimensions=3, embed=embed, model="drinks")
    things.put_many({id: {"text": text, "n": n} for n, (id, text) in enumerate(NOTES.items())})
    return things


def ids(page: Any) -> list[str]:
    return [each.id for each in page]


def test_words_and_meaning_are_fused(notes: Any) -> None:
    page = notes.search("tea", meaning="coffee", highlight=True)
    assert page.cursor is None
    words, near = ids(notes.search("tea")), ids(notes.nearest("coffee"))
    expected = {
        id: sum(1 / (11 + each.index(id)) for each in (words, near) if id in each) for id in NOTES
    }
    assert {each.id: each.score for each in page} == pytest.approx(expected)
    assert ids(page) == sorted(NOTES, key=lambda name: -expected[name])
    best = next(iter(page))
    assert (best.id, best.place, best.snippets) == ("a", "text", {"text": "green **tea**"})
    assert best.body == notes.get("a")


def test_any_word_and_meaning(notes: Any) -> None:
    question = "Was there wind or rain?"
    page = notes.search(question, match="any", meaning="sun", highlight=True, limit=2)
    assert ids(page) == ["c", "d"]
    assert next(iter(page)).snippets == {"text": "**rain** and **wind**"}


def test_meaning_alone(notes: Any) -> None:
    assert ids(notes.search(meaning="coffee")) == ids(notes.nearest("coffee"))
    assert ids(notes.search(meaning=[0, 1, 0], limit=1)) == ["c"]
    assert (
        ids(notes.search(meaning=[0, 1, 0], limit=2, offset=1))
        == ids(notes.nearest([0, 1, 0], 3))[1:]
    )


def test_a_filter_limits_both(notes: Any) -> None:
    page = notes.search("tea", meaning="coffee", filter={"n": {"$gte": 2}})
    assert set(ids(page)) == {"c", "d", "e"}
    assert ids(page)[0] == "d"


def test_diversity_prefers_results_that_differ(notes: Any) -> None:
    assert ids(notes.search(meaning="coffee", limit=2)) == ["a", "b"]
    assert ids(notes.search(meaning="coffee", limit=2, diversity=0)) == ["a", "b"]
    first, second = ids(notes.search(meaning="coffee", limit=2, diversity=0.8))
    assert first == "a"
    assert second in {"c", "e"}


@pytest.mark.parametrize("option", [{"index": "text_vector"}, {"diversity": 0.5}])
def test_options_of_meaning_go_with_meaning(notes: Any, option: Any) -> None:
    with pytest.raises(InvalidOption, match=r"goes with meaning= alone"):
        notes.search("tea", **option)


@pytest.mark.parametrize("diversity", [-0.1, 1.1, "much"])
def test_invalid_diversity(notes: Any, diversity: Any) -> None:
    with pytest.raises(InvalidOption, match="diversity.*from 0 to 1"):
        notes.search(meaning="tea", diversity=diversity)


def test_invalid_searches(notes: Any) -> None:
    with pytest.raises(InvalidOption, match="after.*offset"):
        notes.search("tea", meaning="tea", after="x")
    with pytest.raises(InvalidSearch, match="None"):
        notes.search()
    notes.drop_index("text")
    assert ids(notes.search(meaning="rain", limit=1)) == ["c"]
    with pytest.raises(InvalidSearch, match="create_text_index"):
        notes.search("tea", meaning="tea")


def test_within_a_transaction(store: Any) -> None:
    notes = store["notes"]
    notes.create_vector_index("at", dimensions=1, metric="l2")
    with store.transaction() as transaction:
        transaction["notes"].put("a", {"at": [1]})
        assert ids(transaction["notes"].search(meaning=[1])) == ["a"]


@pytest.mark.parametrize("diversity", [None, 0.7])
def test_pages_by_offset_are_disjoint_and_complete(things: Any, diversity: float | None) -> None:
    generator = random.Random(3)
    things.create_text_index("text")
    things.create_vector_index("at", dimensions=3)
    things.put_many(
        (f"{n:03}", {"text": " ".join(generator.choices(["tea", "cup", "sun"], k=4)), "at": at})
        for n, at in enumerate([[generator.gauss(0, 1) for _ in range(3)] for _ in range(330)])
    )

    def page(limit: int, offset: int) -> list[str]:
        options: Any = {"meaning": [1, 2, 3], "diversity": diversity}
        return ids(things.search("tea OR sun", limit=limit, offset=offset, **options))

    whole = page(1000, 0)
    assert sorted(whole) == [f"{n:03}" for n in range(330)]
    for limit in (7, 100, 150):
        pages = [page(limit, offset) for offset in range(0, 350, limit)]
        assert [id for each in pages for id in each] == whole
