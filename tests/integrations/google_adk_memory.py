"""ADK's memory on our storage. `test_google_adk.py` runs these tests."""

import asyncio
import unicodedata
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from backends import Backend
from google.adk.events import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session
from google.genai import types

from collections_store import InvalidBody, InvalidId, InvalidOption, Store
from collections_store.integrations.google_adk import CollectionsMemoryService

Use = Callable[[CollectionsMemoryService], Awaitable[Any]]
ADA: Any = {"app_name": "weather", "user_id": "ada"}
BOB: Any = {"app_name": "weather", "user_id": "bob"}


def use(backend: Backend, function: Use, **options: Any) -> Any:
    """Return the result of a function with a service, on a new event loop."""

    async def main() -> Any:
        async with CollectionsMemoryService(
            backend.url, **{**backend.options, **options}
        ) as service:
            return await function(service)

    return asyncio.run(main())


def said(text: str, **fields: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(**{"author": "user", "content": content, **fields})


def session_of(*events: Event, id: str = "1", **names: str) -> Session:
    return Session(id=id, events=list(events), **{**ADA, **names})


async def found(service: CollectionsMemoryService, query: str, **names: str) -> list[str | None]:
    """Return the texts that a search finds."""
    memories = (await service.search_memory(**{**ADA, **names}, query=query)).memories
    return [each.content.parts[0].text for each in memories if each.content.parts]


def test_what_was_said_in_a_session_is_found_by_its_words(backend: Backend) -> None:
    async def check(service: CollectionsMemoryService) -> None:
        picture = types.Part.from_bytes(data=b"\xff", mime_type="image/png")
        spoken = said("The ADK is great.", author="model", timestamp=1730613600.5)
        assert spoken.content
        assert spoken.content.parts
        spoken.content.parts.append(picture)
        thought = types.Content(parts=[types.Part(text="The ADK?", thought=True)])
        silent = [
            Event(author="user"),
            Event(author="model", content=thought),
            said(""),
            said("?!"),
        ]
        session = session_of(spoken, *silent, said("I code in Python."))
        await service.add_session_to_memory(session)
        await service.add_session_to_memory(session_of(said("It is a secret."), user_id="bob"))
        [memory] = (await service.search_memory(**ADA, query="adk?")).memories
        assert (memory.author, memory.content) == ("model", spoken.content)
        assert memory.timestamp == "2024-11-03T06:00:00.500000+00:00"
        assert memory.custom_metadata == {"session_id": "1", "event_id": spoken.id}
        for query in ("", " ?", "secret", "cod", "nothing"):
            assert await found(service, query) == []
        assert await found(service, "A SECRET", user_id="bob") == ["It is a secret."]
        assert await found(service, "secret", app_name="news", user_id="bob") == []

    use(backend, check)


def test_more_equal_words_come_first_and_then_what_was_added_first(backend: Backend) -> None:
    async def check(service: CollectionsMemoryService) -> None:
        notes = [f"note {n} about work" for n in range(12)]
        await service.add_session_to_memory(
            session_of(*map(said, [*notes, "work, work, work", "the backlog note on work"]))
        )
        texts = await found(service, "work backlog note")
        assert texts == ["the backlog note on work", *notes[:9]]

    use(backend, check)
    use(backend, lambda service: _is_limited(service, backend), limit=2)


async def _is_limited(service: CollectionsMemoryService, backend: Backend) -> None:
    if not backend.is_private:
        assert len(await found(service, "work")) == 2


@pytest.mark.parametrize(
    ("text", "query", "is_found"),
    [
        ("私の名前は太郎です", "太郎", True),
        ("私の名前は太郎です", "天気", False),
        ("我喜欢机器学习", "机器学习", True),
        ("제 이름은 민수입니다", "민수입니다", True),
        ("Меня зовут Алексей", "алексей", True),
        ("私はPythonでADKを使っています", "adk", True),
        ("私はPythonでADKを使っています", "使って", True),
        ("私はPythonでADKを使っています", "thon", False),
        ("I code in Python.", "thon", False),
        (unicodedata.normalize("NFD", "Meet at the Café"), "CAFÉ", True),
        ("Meet at the Café", unicodedata.normalize("NFD", "Café"), True),
        ("Meet at the Cafés", "Café", False),
        (unicodedata.normalize("NFD", "プログラミングを学ぶ"), "プログラミング", True),
        ("\uff30\uff59thon", "python", True),
        ("Straße 9", "STRASSE", True),
        ("a.b", ".", False),
        ("太郎", "郎.", True),
    ],
)
def test_words_of_any_script(text: str, query: str, is_found: bool) -> None:
    async def check(service: CollectionsMemoryService) -> None:
        await service.add_session_to_memory(session_of(said(text)))
        assert await found(service, query) == [text] * is_found

    use(Backend("sqlite-memory", "sqlite://"), check)


SUBJECTS = (
    ("tea", "coffee", "drink"),
    ("rain", "umbrella", "wet"),
    ("station", "ticket", "journey"),
)


def embed(texts: list[str]) -> list[list[float]]:
    """Return how often each text names each subject."""
    return [[0.01 + sum(map(text.lower().count, each)) for each in SUBJECTS] for text in texts]


async def embed_async(texts: list[str]) -> list[list[float]]:
    return embed(texts)


BY_MEANING: dict[str, Any] = {"embed": embed, "dimensions": 3, "model": "subjects"}


@pytest.mark.parametrize("function", [embed, embed_async])
def test_memories_are_found_by_meaning_and_by_words(backend: Backend, function: Any) -> None:
    async def check(service: CollectionsMemoryService) -> None:
        thought = types.Part(text="Coffee, a drink.", thought=True)
        rain = types.Content(parts=[types.Part(text="An umbrella is in my bag."), thought])
        await service.add_session_to_memory(
            session_of(said("I take my tea with milk."), Event(author="user", content=rain))
        )
        await service.add_session_to_memory(session_of(said("Coffee, black."), user_id="bob"))
        assert (await found(service, "Something to drink?"))[0] == "I take my tea with milk."
        assert (await found(service, "It is wet."))[0] == "An umbrella is in my bag."
        assert (await found(service, "a bag for the journey"))[0] == "An umbrella is in my bag."
        assert await found(service, "drink", user_id="bob") == ["Coffee, black."]
        assert await found(service, "?!") == []
        [tea, *_] = (await service.search_memory(**ADA, query="tea")).memories
        tea.content = types.UserContent("The station is closed.")
        await service.add_memory(**ADA, memories=[tea])
        assert (await found(service, "a ticket"))[0] == "The station is closed."
        await service.delete_memory(**ADA, memory_id=tea.id)
        assert await found(service, "a ticket") == ["An umbrella is in my bag."]

    use(backend, check, **{**BY_MEANING, "embed": function})


def test_the_nearest_memories_are_limited_and_of_other_processes(shared_backend: Backend) -> None:
    async def add(service: CollectionsMemoryService) -> None:
        texts = ["Tea, a drink.", "Rain and tea.", "A ticket."]
        await service.add_session_to_memory(session_of(*map(said, texts)))

    async def check(service: CollectionsMemoryService) -> None:
        assert await found(service, "Something to drink?") == ["Tea, a drink.", "Rain and tea."]
        async with CollectionsMemoryService(
            shared_backend.url, **shared_backend.options, **BY_MEANING
        ) as other:
            await other.add_session_to_memory(session_of(said("Drink coffee!")))
        assert "Drink coffee!" in await found(service, "something to drink")

    use(shared_backend, add)  # without a model
    use(shared_backend, check, limit=2, **BY_MEANING)


def test_a_session_can_be_added_again(backend: Backend) -> None:
    async def check(service: CollectionsMemoryService) -> None:
        first, second = said("one fact", id="a/b"), said("two facts and one fact", id="a")
        await service.add_session_to_memory(session_of(first))
        first.content = types.Content(parts=[types.Part(text="changed fact")])
        await service.add_session_to_memory(session_of(first, second))
        await service.add_session_to_memory(session_of(second))
        assert await found(service, "fact") == ["one fact", "two facts and one fact"]
        await service.add_session_to_memory(session_of(said("fact of 2", id="a"), id="2"))
        assert len(await found(service, "fact")) == 3
        await service.add_session_to_memory(session_of())
        assert len(await found(service, "fact")) == 3

    use(backend, check)


def test_events_are_added_without_a_session(backend: Backend) -> None:
    async def check(service: CollectionsMemoryService) -> None:
        event = said("a fact")
        for _ in range(2):
            await service.add_events_to_memory(
                **ADA, events=[event], custom_metadata={"source": "mail"}
            )
        [memory] = (await service.search_memory(**ADA, query="fact")).memories
        assert memory.custom_metadata == {
            "source": "mail", "session_id": None, "event_id": event.id
        }  # fmt: skip

    use(backend, check)


def test_a_deleted_memory_does_not_come_back(backend: Backend) -> None:
    async def check(service: CollectionsMemoryService) -> None:
        session = session_of(said("a fact"), said("another fact"))
        await service.add_session_to_memory(session)
        [first, second] = (await service.search_memory(**ADA, query="fact")).memories
        for nothing in (None, "", "none", "../bob/x"):
            await service.delete_memory(**ADA, memory_id=nothing)
        await service.delete_memory(**BOB, memory_id=first.id)
        assert await found(service, "fact") == ["a fact", "another fact"]
        await service.delete_memory(**ADA, memory_id=first.id)
        await service.add_session_to_memory(session)
        assert (await service.search_memory(**ADA, query="fact")).memories == [second]

    use(backend, check)


def test_memories_are_added_and_replaced(backend: Backend) -> None:
    async def check(service: CollectionsMemoryService) -> None:
        content = types.Content(role="user", parts=[types.Part(text="I live in Rome.")])
        entries = [
            MemoryEntry(content=content, custom_metadata={"sure": True}),
            MemoryEntry(id="pet/1", author="ada", timestamp="2026", content=types.UserContent("A cat.")),
        ]  # fmt: skip
        await service.add_memory(**ADA, memories=entries, custom_metadata={"sure": 0, "from": "ui"})
        [home] = (await service.search_memory(**ADA, query="rome")).memories
        assert (home.custom_metadata, home.content) == ({"sure": True, "from": "ui"}, content)
        [cat] = (await service.search_memory(**ADA, query="cat")).memories
        assert (cat.id, cat.author, cat.timestamp) == ("pet/1", "ada", "2026")
        for each, text in ((home, "I live in Paris."), (cat, "A dog.")):
            each.content = types.UserContent(text)
            await service.add_memory(**ADA, memories=[each])
        assert await found(service, "rome cat") == []
        assert await found(service, "paris dog") == ["I live in Paris.", "A dog."]

    use(backend, check)


def test_memories_expire(backend: Backend) -> None:
    async def check(service: CollectionsMemoryService) -> None:
        await service.add_session_to_memory(session_of(said("a fact")))
        await service.add_memory(**ADA, memories=[MemoryEntry(content=types.UserContent("fact"))])
        await asyncio.sleep(0.2)
        assert await found(service, "fact") == []

    use(backend, check, ttl=0.1)


def test_names_are_taken_literally(backend: Backend) -> None:
    async def check(service: CollectionsMemoryService) -> None:
        names = ["a", "a/b", "a%2Fb", "%", "", "a ", "A", "'\";--", "ä\u2028🎉", "a" * 600]
        for app in names:
            for user in ("a", "a/a", ""):
                session = session_of(said(f"fact {user}", id="1/1"), app_name=app, user_id=user)
                await service.add_session_to_memory(session)
        for app in names:
            for user in ("a", "a/a", ""):
                texts = await found(service, "fact", app_name=app, user_id=user)
                assert texts == [f"fact {user}"]

    use(backend, check)


def test_what_cannot_be_stored_is_refused_and_nothing_is_written(backend: Backend) -> None:
    async def check(service: CollectionsMemoryService) -> None:
        bads: list[Any] = ["a\0b", "\ud800", "a" * 2000]
        for bad in bads:
            for names in ({**ADA, "user_id": bad}, {**ADA, "app_name": bad}):
                with pytest.raises(InvalidId):
                    await service.search_memory(**names, query="fact")
                with pytest.raises(InvalidId):
                    await service.delete_memory(**names, memory_id="1")
                with pytest.raises(InvalidId):
                    await service.add_events_to_memory(**names, events=[said("fact")])
            entries = [MemoryEntry(content=types.UserContent("fact"), id=id) for id in ("1", bad)]
            with pytest.raises(InvalidId):
                await service.add_memory(**ADA, memories=entries)
        for bad in (object(), 2**70, "a\0b"):
            with pytest.raises(InvalidBody):
                await service.add_events_to_memory(
                    **ADA, events=[said("fact")], custom_metadata={"n": bad}
                )
        with pytest.raises(InvalidBody):
            await service.add_session_to_memory(session_of(said("fact"), said("fact\0")))
        answer = types.Part.from_function_response(name="f", response={"n": object()})
        entry = MemoryEntry(content=types.Content(parts=[types.Part(text="fact"), answer]))
        with pytest.raises(InvalidBody, match="'content': holds a value that ADK cannot convert"):
            await service.add_memory(**ADA, memories=[entry])
        with pytest.raises(InvalidOption, match="user_id: must be a string"):
            await service.search_memory(app_name="weather", user_id=5, query="fact")  # type: ignore[arg-type]
        assert await found(service, "fact") == []

    use(backend, check)
    with pytest.raises(InvalidOption, match="limit"):
        CollectionsMemoryService("sqlite://", limit=0)
    with pytest.raises(InvalidOption, match="embed: must be given with dimensions"):
        CollectionsMemoryService("sqlite://", dimensions=3)


def test_a_memory_that_adk_cannot_read_is_named_without_its_content(
    shared_backend: Backend,
) -> None:
    async def add(service: CollectionsMemoryService) -> None:
        await service.add_memory(
            **ADA, memories=[MemoryEntry(id="1", content=types.UserContent("a fact"))]
        )

    use(shared_backend, add)
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["adk_memory"].update("/weather/ada/1", {"$set": {"content": {"parts": "secret"}}})
    with pytest.raises(
        InvalidBody, match="collection adk_memory: document '/weather/ada/1'"
    ) as raised:
        use(shared_backend, lambda service: found(service, "fact"))
    assert "secret" not in str(raised.value)


def test_a_search_reads_the_memories_of_one_user(shared_backend: Backend) -> None:
    async def add(service: CollectionsMemoryService) -> None:
        for names in (ADA, BOB):
            await service.add_session_to_memory(session_of(said("fact"), **names))

    use(shared_backend, add)
    with Store(shared_backend.url, **shared_backend.options) as store:
        within = {"$id": {"$gte": "/weather/ada/", "$lt": "/weather/ada0"}}
        plan = store["adk_memory"].explain({**within, "$or": [{"words": {"$in": ["fact"]}}]})
        assert "$id" in plan.indexes
        assert not plan.scans or shared_backend.is_postgresql  # it scans small tables
