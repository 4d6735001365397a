"""ADK's sessions on our storage: its contract, ours, agents that run on it, and processes that share or lose it.

`test_google_adk.py` runs these tests.
"""

import asyncio
import inspect
import itertools
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from google.adk.agents import BaseAgent
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.runners import Runner
from google.adk.sessions import DatabaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types
from pydantic import ConfigDict
from selection import sampled

from collections_store import (
    AsyncStore,
    DocumentTooNew,
    InvalidBody,
    InvalidId,
    InvalidOption,
    Store,
    StoreClosed,
    VersionSettings,
)
from collections_store.integrations.google_adk import CollectionsSessionService

Use = Callable[[CollectionsSessionService], Awaitable[Any]]
BACKENDS = ["sqlite-file", "postgresql"]
ADA: Any = {"app_name": "weather", "user_id": "ada"}
BOB: Any = {"app_name": "weather", "user_id": "bob"}


def use(backend: Backend, function: Use, **options: Any) -> Any:
    """Return the result of a function with a service, on a new event loop."""

    async def main() -> Any:
        async with CollectionsSessionService(
            backend.url, **{**backend.options, **options}
        ) as service:
            return await function(service)

    return asyncio.run(main())


def event(state: dict[str, Any] | None = None, **fields: Any) -> Event:
    return Event(author="user", actions=EventActions(state_delta=state or {}), **fields)


def said(text: str) -> types.Content:
    return types.Content(role="user", parts=[types.Part(text=text)])


async def stored(service: CollectionsSessionService, session: Session, **config: Any) -> Session:
    """Return a session as it is stored."""
    names = {"app_name": session.app_name, "user_id": session.user_id, "session_id": session.id}
    found = await service.get_session(**names, config=GetSessionConfig(**config))
    assert found is not None
    return found


# -- ADK's contract --------------------------------------------------------------------------


def test_a_session_is_created_read_and_deleted(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        assert await service.get_session(**ADA, session_id="1") is None
        session = await service.create_session(**ADA, state={"n": 1, "temp:n": 2})
        assert (session.app_name, session.user_id, session.state) == ("weather", "ada", {"n": 1})
        assert session.id
        assert session.last_update_time > 1_700_000_000
        assert await stored(service, session) == session
        await service.append_event(session, event({"n": 3}))
        await service.delete_session(**ADA, session_id=session.id)
        assert await service.get_session(**ADA, session_id=session.id) is None
        await service.delete_session(**ADA, session_id=session.id)
        again = await service.create_session(**ADA, session_id=session.id)
        assert (await stored(service, again)).events == []

    use(backend, check)


def test_sessions_are_listed_by_the_time_of_their_last_event(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        first = await service.create_session(
            **ADA, session_id="c", state={"n": 1, "app:a": 1, "user:u": 2}
        )
        for session_id in ("b", "a"):
            await service.create_session(**ADA, session_id=session_id, state={"n": session_id})
        await service.create_session(**BOB, session_id="c", state={"user:u": 3})
        await service.create_session(app_name="weather2", user_id="ada", state={"app:a": 4})
        later = first.last_update_time + 100
        await service.append_event(first, event({"m": 5}, timestamp=later))
        listed = (await service.list_sessions(**ADA)).sessions
        assert [(each.id, each.state.get("n")) for each in listed] == [
            ("b", "b"), ("a", "a"), ("c", 1)
        ]  # fmt: skip
        assert listed[-1].state == {"n": 1, "m": 5, "app:a": 1, "user:u": 2}
        assert listed[-1].last_update_time == later
        assert [each.events for each in listed] == [[], [], []]
        everyone = (await service.list_sessions(app_name="weather")).sessions
        assert [(each.user_id, each.id) for each in everyone] == [
            ("ada", "b"), ("ada", "a"), ("bob", "c"), ("ada", "c")
        ]  # fmt: skip
        assert everyone[2].state == {"app:a": 1, "user:u": 3}
        for nobody in ({"app_name": "none"}, {"app_name": "weather", "user_id": ""}):
            assert (await service.list_sessions(**nobody)).sessions == []

    use(backend, check)


def test_states_have_the_scope_of_their_prefix(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        given = {"app:a": 1, "user:u": 1, "s": 1, "temp:t": 1}
        first = await service.create_session(**ADA, session_id="1", state=given)
        changed = event({"app:b": 2, "user:v": 2, "r": 2, "temp:t": 2})
        returned = await service.append_event(first, changed)
        assert returned.actions.state_delta == {"app:b": 2, "user:v": 2, "r": 2}
        assert first.state["temp:t"] == 2
        shared, of_user = {"app:a": 1, "app:b": 2}, {"user:u": 1, "user:v": 2}
        second = await service.create_session(**ADA, session_id="2")
        assert second.state == shared | of_user
        assert (await service.create_session(**BOB, session_id="1")).state == shared
        elsewhere = await service.create_session(app_name="news", user_id="ada")
        assert elsewhere.state == {}
        found = await stored(service, first)
        assert found.state == {"s": 1, "r": 2} | shared | of_user
        assert found.events[0].actions.state_delta == returned.actions.state_delta

    use(backend, check)


@pytest.mark.parametrize("prefix", ["", "app:", "user:"])
def test_a_change_of_state_replaces_the_values_of_its_keys(backend: Backend, prefix: str) -> None:
    async def check(service: CollectionsSessionService) -> None:
        keys = ("profile", "flag", "no", "a.b", "$set", "", "0", 'x"y')
        first = {prefix + key: {"name": "ada", "role": "admin"} for key in keys}
        session = await service.create_session(**ADA, state={**first, f"{prefix}kept": False})
        values: list[Any] = [{"name": "bob"}, None, False, 1, 1.5, "", [], {}]
        changes = {prefix + key: value for key, value in zip(keys, values, strict=True)}
        await service.append_event(session, event(changes))
        found = await stored(service, session)
        assert found.state == session.state == changes | {f"{prefix}kept": False}
        assert found.events == session.events
        assert {key: type(each) for key, each in found.state.items()} == {
            key: type(each) for key, each in session.state.items()
        }

    use(backend, check)


def test_the_state_of_a_user_needs_no_session(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        assert await service.get_user_state(**ADA) == {}
        session = await service.create_session(**ADA)
        for n in range(3):
            await service.append_event(
                session, event({"user:n": n, "user:city": {"name": "Rome"}, "n": n})
            )
        await service.delete_session(**ADA, session_id=session.id)
        assert await service.get_user_state(**ADA) == {"n": 2, "city": {"name": "Rome"}}
        assert await service.get_user_state(**BOB) == {}
        assert await service.get_user_state(app_name="news", user_id="ada") == {}

    use(backend, check)


def test_an_id_exists_once_for_a_user_without_the_spaces_around_it(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        created = await service.create_session(**ADA, session_id="order\n", state={"n": 1})
        assert created.id == "order"
        for id in ("order", "  order "):
            with pytest.raises(AlreadyExistsError, match="Session with id order already exists"):
                await service.create_session(**ADA, session_id=id, state={"n": 2, "user:n": 2})
        assert await service.get_user_state(**ADA) == {}
        await service.append_event(created, event())
        of_bob = await service.create_session(**BOB, session_id="order")
        assert (await stored(service, of_bob)).events == []
        found = await service.get_session(**ADA, session_id=" order")
        assert found is not None
        assert (found.id, found.state, len(found.events)) == ("order", {"n": 1}, 1)
        await service.delete_session(**ADA, session_id="order ")
        assert await service.get_session(**ADA, session_id="order") is None
        assert (await service.create_session(**ADA, session_id="  ")).id.strip()

    use(backend, check)


def test_events_come_back_equal(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        session = await service.create_session(**ADA)
        blob = types.Part.from_bytes(data=b"\xff\x00image", mime_type="image/png")
        confirmation = ToolConfirmation(hint="sure?", confirmed=False, payload={"album": [1, 2.5]})
        await service.append_event(
            session,
            Event(
                invocation_id="invocation",
                author="user",
                content=types.Content(role="user", parts=[types.Part(text="text"), blob]),
                turn_complete=True,
                partial=False,
                actions=EventActions(
                    artifact_delta={"file": 0},
                    transfer_to_agent="agent",
                    escalate=True,
                    requested_tool_confirmations={"call": confirmation},
                ),
                long_running_tool_ids={"b", "a"},
                error_code="code",
                error_message="message",
                interrupted=True,
                grounding_metadata=types.GroundingMetadata(
                    web_search_queries=["query"],
                    search_entry_point=types.SearchEntryPoint(sdk_blob=b"\xfeblob"),
                ),
                usage_metadata=types.GenerateContentResponseUsageMetadata(total_token_count=2),
                citation_metadata=types.CitationMetadata(),
                custom_metadata={"key": {"n": None}},
                timestamp=1730613600.123456,
                input_transcription=types.Transcription(text="in", finished=True),
            ),
        )
        assert await stored(service, session) == session

    use(backend, check)


def test_values_of_a_state_that_are_not_json_become_strings(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        session = await service.create_session(**ADA, state={"f": len, "user:f": len})
        await service.append_event(session, event({"g": len, "pair": (1, 2), "nan": math.nan}))
        found = await stored(service, session)
        assert found.state["f"] == found.state["g"] == found.state["user:f"] == repr(len)
        assert (found.state["pair"], found.state["nan"]) == ([1, 2], None)

    use(backend, check)


def test_a_session_was_updated_when_its_last_event_happened(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        session = await service.create_session(**ADA)
        for timestamp in (1730613600.0, 1730615400.25, session.last_update_time + 10):
            await service.append_event(session, event(timestamp=timestamp))
            assert session.last_update_time == timestamp
            assert (await stored(service, session)).last_update_time == timestamp

    use(backend, check)


def test_the_last_events_and_those_from_a_time_on(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        session = await service.create_session(**ADA)
        for n in range(1, 6):
            await service.append_event(session, event(timestamp=float(n)))

        async def times(**config: Any) -> list[float]:
            return [each.timestamp for each in (await stored(service, session, **config)).events]

        assert await times() == [1, 2, 3, 4, 5]
        assert await times(num_recent_events=0) == []
        assert await times(num_recent_events=3) == [3, 4, 5]
        assert await times(num_recent_events=9) == [1, 2, 3, 4, 5]
        assert await times(after_timestamp=4) == [4, 5]
        assert await times(after_timestamp=50) == []
        assert await times(after_timestamp=4, num_recent_events=3) == [4, 5]
        assert await times(after_timestamp=2, num_recent_events=3) == [3, 4, 5]

    use(backend, check)


def test_events_have_the_order_in_which_they_were_appended(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        session = await service.create_session(**ADA)
        ids = [f"{n * 7 % 12}" for n in range(12)]
        for n, id in enumerate(ids):
            await service.append_event(session, event(id=id, timestamp=100.0 - n // 4))
        assert [each.id for each in (await stored(service, session)).events] == ids
        last = await stored(service, session, num_recent_events=2)
        assert [each.id for each in last.events] == ids[-2:]

    use(backend, check)


def test_a_partial_event_is_not_stored(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        session = await service.create_session(**ADA)
        await service.append_event(session, event({"n": 1}, partial=True))
        assert session.events == []
        assert (await stored(service, session)).events == []

    use(backend, check)


# -- sessions that others change -------------------------------------------------------------


def test_nothing_is_appended_to_a_deleted_session(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        session = await service.create_session(**ADA)
        await service.delete_session(**ADA, session_id=session.id)
        with pytest.raises(SessionNotFoundError, match=session.id):
            await service.append_event(session, event({"user:n": 1}))
        assert session.events == []
        assert await service.get_user_state(**ADA) == {}

    use(backend, check)


def test_a_session_that_is_deleted_during_an_append_stays_deleted(
    postgres_backend: Backend,
) -> None:
    """An upgrade runs between the read and the write of an append. On SQLite the deletion would wait for the append."""

    deleted: list[bool] = []

    def delete(body: dict[str, Any]) -> dict[str, Any]:
        if not deleted:
            with Store(postgres_backend.url, **postgres_backend.options) as store:
                deleted.append(store["adk_sessions"].remove("/weather/ada/1"))
        return body

    async def main() -> None:
        async with AsyncStore(postgres_backend.url, **postgres_backend.options) as store:
            service = CollectionsSessionService(store)
            session = await service.create_session(**ADA, session_id="1")
            await service.append_event(session, event())
            upgrading = CollectionsSessionService(
                store, versions={"schema_version": 2, "upgrades": {1: delete}}
            )
            await upgrading.create_session(**BOB)  # which stores the version
            with pytest.raises(SessionNotFoundError):
                await upgrading.append_event(session, event({"n": 1}))
            assert await service.get_session(**ADA, session_id="1") is None

    asyncio.run(main())
    assert deleted == [True]


class Deleting(GetSessionConfig):
    """Deletes sessions between the read of a session and that of its events."""

    def __getattribute__(self, name: str) -> Any:
        if name == "num_recent_events":
            backend: Backend = super().__getattribute__("__pydantic_extra__")["backend"]
            with Store(backend.url, **backend.options) as store:
                for collection in ("adk_sessions", "adk_events"):
                    store[collection].delete_many({"$id": {"$gte": "/weather/ada/"}})
        return super().__getattribute__(name)


@pytest.mark.parametrize("since", [None, 0.0])
def test_a_session_that_is_deleted_while_it_is_read_is_not_found(
    shared_backend: Backend, since: float | None
) -> None:
    class Config(Deleting):
        model_config = ConfigDict(extra="allow")

    async def check(service: CollectionsSessionService) -> None:
        session = await service.create_session(**ADA, session_id="1")
        await service.append_event(session, event())
        config: Any = Config(after_timestamp=since, backend=shared_backend)  # type: ignore[call-arg]
        assert await service.get_session(**ADA, session_id="1", config=config) is None

    use(shared_backend, check)


def test_a_session_that_was_modified_meanwhile_is_stale(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        session = await service.create_session(**ADA)
        await service.append_event(session, event({"n": 1}))
        stale, other = session.model_copy(deep=True), await stored(service, session)
        for n in (2, 3):
            await service.append_event(other, event({"n": n}, timestamp=session.last_update_time))
        for each in (stale, session):
            with pytest.raises(StaleSessionError, match="modified in storage since it was loaded"):
                await service.append_event(each, event({"n": 9, "user:n": 9}))
        assert session == stale
        found = await stored(service, session)
        assert ([each.actions.state_delta["n"] for each in found.events], found.state) == (
            [1, 2, 3], {"n": 3}
        )  # fmt: skip
        await service.delete_session(**ADA, session_id=session.id)
        again = await service.create_session(**ADA, session_id=session.id)
        for n in range(3):
            await service.append_event(again, event({"n": n}))
        with pytest.raises(StaleSessionError):
            await service.append_event(found, event({"n": 9}))

    use(backend, check)


def test_of_two_copies_one_wins(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        session = await service.create_session(**ADA)
        for n in range(8):
            copies = [await stored(service, session) for _ in range(2)]
            appended = [
                service.append_event(each, event({f"{n}-{m}": 1})) for m, each in enumerate(copies)
            ]
            results = await asyncio.gather(*appended, return_exceptions=True)
            assert sorted(type(each).__name__ for each in results) == ["Event", "StaleSessionError"]
        found = await stored(service, session)
        assert (len(found.events), len(found.state)) == (8, 8)

    use(backend, check)


def test_tasks_that_create_at_once_lose_nothing(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        async def create(task: int) -> Session:
            state = {"n": task, f"app:{task}": 1, f"user:{task}": 2}
            return await service.create_session(**ADA, session_id="1", state=state)

        results = await asyncio.gather(*map(create, range(6)), return_exceptions=True)
        [created] = [each for each in results if isinstance(each, Session)]
        assert {type(each) for each in results} == {Session, AlreadyExistsError}
        assert await stored(service, created) == created
        assert set(created.state) == {
            "n",
            f"app:{created.state['n']}",
            f"user:{created.state['n']}",
        }
        await asyncio.gather(
            *(
                service.create_session(**ADA, state={f"app:{n}": n, "user:n": n})
                for n in range(10, 16)
            )
        )
        state = (await stored(service, created)).state
        assert {f"app:{n}" for n in range(10, 16)} < set(state)

    use(backend, check)


def test_tasks_append_to_one_session_object_in_turn(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        session = await service.create_session(**ADA)
        await asyncio.gather(*(service.append_event(session, event({"n": n})) for n in range(10)))
        assert await stored(service, session) == session
        assert [each.actions.state_delta["n"] for each in session.events] == list(range(10))

    use(backend, check)


def test_a_session_that_was_not_loaded_is_compared_by_its_last_event(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        session = await service.create_session(**ADA)
        await service.append_event(session, event())
        sent = Session.model_validate_json(session.model_dump_json())
        sent.last_update_time -= 0.0001
        old = sent.model_copy(deep=True)
        await service.append_event(sent, event())
        assert len((await stored(service, session)).events) == 2
        with pytest.raises(StaleSessionError):
            await service.append_event(old, event())

    use(backend, check)


def test_an_event_that_is_appended_again_is_stored_once(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        session = await service.create_session(**ADA)
        before = session.model_copy(deep=True)
        once = event({"n": 1, "temp:n": 2}, id="same", invocation_id="1")
        for each in (once, once, once.model_copy(deep=True)):
            await service.append_event(session, each)
        await service.append_event(before, once)  # as after an error that left the commit in doubt
        assert (await stored(service, session)).events == session.events == before.events == [once]
        other = event({"n": 2}, id="same", invocation_id="2")
        await service.append_event(before, other)
        found = await stored(service, session)
        assert [each.invocation_id for each in found.events] == ["1", "2"]
        assert before.events == [once, other]
        third = event({"n": 3})
        await service.append_event(before, third)
        for each in (event(), third):  # `session` lacks the second event
            with pytest.raises(StaleSessionError):
                await service.append_event(session, each)

    use(backend, check)


# -- names, values, costs --------------------------------------------------------------------


def test_names_are_taken_literally(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        names = [
            "a",
            "a/b",
            "a%2Fb",
            "%",
            "",
            "a ",
            "a-",
            "A",
            "'\";--",
            "ä\u2028🎉",
            ".",
            "..",
            "a" * 600,
        ]
        for app in names:
            for user in ("a", "a/a", ""):
                await service.create_session(
                    app_name=app, user_id=user, session_id="a/b",
                    state={"n": [app, user], "app:n": app, "user:n": [app, user]},
                )  # fmt: skip
        for app in names:
            everyone = (await service.list_sessions(app_name=app)).sessions
            assert sorted(each.user_id for each in everyone) == ["", "a", "a/a"]
            for each in everyone:
                here = {"app_name": app, "user_id": each.user_id}
                [listed] = (await service.list_sessions(**here)).sessions
                assert listed.state == each.state == {
                    "n": [app, each.user_id], "app:n": app, "user:n": [app, each.user_id]
                }  # fmt: skip
                assert await service.get_user_state(**here) == {"n": [app, each.user_id]}
        for app in names[1:]:
            await service.delete_session(app_name=app, user_id="a", session_id="a/b")
            await service.delete_idle_sessions(0, app_name=app)
        assert len((await service.list_sessions(app_name="a")).sessions) == 3

    use(backend, check)


def test_names_that_no_id_can_hold_are_refused(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        bads: list[Any] = ["a\0b", "\ud800", "a" * 1900, 5, b"a"]
        for bad, name in itertools.product(bads, ("app_name", "user_id", "session_id")):
            names: Any = {**ADA, "session_id": "1", name: bad}
            for method in (service.create_session, service.get_session, service.delete_session):
                with pytest.raises((InvalidId, InvalidOption)) as raised:
                    await method(**names)
                assert len(str(raised.value)) < 300
            if name != "session_id":
                with pytest.raises((InvalidId, InvalidOption)):
                    await service.list_sessions(**{**ADA, name: bad})

    use(backend, check)


def test_values_that_no_body_can_hold_are_refused(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        session = await service.create_session(**ADA, session_id="1", state={"n": 1})
        bads: list[Any] = ["secret\0", "secret\ud800", 2**70]
        refused = [event({"n": bad}) for bad in bads] + [event({"user:n": "\0", "n": 2})]
        refused += [event({"n": 2}, content=said(bad)) for bad in bads[:2]]
        refused += [event({"n": 2}, custom_metadata={"n": bad}) for bad in (object(), *bads)]
        for each in refused:
            with pytest.raises(InvalidBody) as raised:
                await service.append_event(session, each)
            assert "secret" not in str(raised.value)
        states: list[Any] = [*({"n": bad} for bad in bads), {"n": b"\xff"}, {5: "secret"}]
        for state in states:
            with pytest.raises(InvalidBody) as raised:
                await service.create_session(**ADA, state=state)
            assert "secret" not in str(raised.value)
        assert (session.events, session.state) == ([], {"n": 1})
        assert await stored(service, session) == session
        assert await service.get_user_state(**ADA) == {}
        assert len((await service.list_sessions(**ADA)).sessions) == 1

    use(backend, check)


def test_reads_use_the_index_of_ids(shared_backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        for user in ("ada", "bob"):
            session = await service.create_session(app_name="weather", user_id=user)
            for _ in range(3):
                await service.append_event(session, event())

    use(shared_backend, check)
    with Store(shared_backend.url, **shared_backend.options) as store:
        events = store["adk_events"]
        assert (store["adk_sessions"].count(), events.count()) == (2, 6)
        [first, *_] = events.list()
        within = first.id.rpartition("/")[0]
        recent = {"$gte": f"{within}/000000000001", "$lt": f"{within}/000000000003"}
        for found in (
            events.explain({"$id": recent, "timestamp": {"$gte": 1}}),
            store["adk_sessions"].explain({"$id": {"$gte": "/weather/ada/", "$lt": "/weather/ada0"}}),
        ):  # fmt: skip
            assert "$id" in found.indexes
            assert not found.scans or shared_backend.is_postgresql  # it scans small tables


def test_idle_sessions_are_deleted_with_their_events(backend: Backend) -> None:
    async def check(service: CollectionsSessionService) -> None:
        for names in (ADA, BOB, {"app_name": "news", "user_id": "ada"}):
            session = await service.create_session(**names, state={"user:n": 1})
            await service.append_event(session, event())
        assert await service.delete_idle_sessions(3600, app_name="weather") == 0
        bads: list[Any] = [-1, math.nan, math.inf, "1", None]
        for bad in bads:
            with pytest.raises(InvalidOption, match="seconds: must be a number of 0 or more"):
                await service.delete_idle_sessions(bad, app_name="weather")
        assert await service.delete_idle_sessions(timedelta(0), app_name="weather") == 2
        assert (await service.list_sessions(app_name="weather")).sessions == []
        assert await service.get_user_state(**ADA) == {"n": 1}
        assert len((await stored(service, session)).events) == 1

    use(backend, check)


def test_a_given_store_stays_open(backend: Backend) -> None:
    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            async with CollectionsSessionService(store, sessions="mine", events="ours") as service:
                await service.append_event(await service.create_session(**ADA), event())
            counts = {each.name: each.count for each in await store.collections()}
            assert counts == {"mine": 1, "ours": 1}
            with pytest.raises(InvalidOption, match="durability"):
                CollectionsSessionService(store, durability="full")
        own = CollectionsSessionService("sqlite://")
        await own.close()
        with pytest.raises(StoreClosed):
            await own.get_user_state(**ADA)

    asyncio.run(main())


# -- states that change their shape ----------------------------------------------------------


def split_name(body: dict[str, Any]) -> dict[str, Any]:
    if "name" in body["state"]:
        first, last = body["state"].pop("name").split(" ")
        body["state"].update(first=first, last=last)
    return body


VERSIONS: VersionSettings = {"schema_version": 2, "upgrades": {1: split_name}}


def test_states_of_an_older_version_are_upgraded(shared_backend: Backend) -> None:
    async def first(service: CollectionsSessionService) -> Session:
        state = {"name": "Ada Lovelace", "user:name": "Ada King", "app:n": 1}
        return await service.create_session(**ADA, session_id="1", state=state)

    async def second(service: CollectionsSessionService) -> None:
        upgraded = {"first": "Ada", "last": "Lovelace", "user:first": "Ada", "user:last": "King"}
        found = await stored(service, old)
        assert found.state == upgraded | {"app:n": 1}
        [listed] = (await service.list_sessions(**ADA)).sessions
        assert listed.state == found.state
        await service.append_event(old, event({"last": "Byron", "user:last": "Byron"}))
        upgraded |= {"last": "Byron", "user:last": "Byron"}
        assert (await stored(service, old)).state == upgraded | {"app:n": 1}
        await service.create_session(**ADA, session_id="2", state={"first": "Ada"})
        assert await service.get_user_state(**ADA) == {"first": "Ada", "last": "Byron"}
        await service.delete_session(**ADA, session_id="2")

    old = use(shared_backend, first)
    use(shared_backend, second, versions=VERSIONS)
    with pytest.raises(DocumentTooNew):
        use(
            shared_backend,
            lambda service: stored(service, old),
            versions={"schema_version": 1, "upgrades": {}},
        )
    with Store(shared_backend.url, **shared_backend.options) as store:
        upgraded = store.collection("adk_sessions", **VERSIONS).upgrade_documents()
        assert (upgraded.upgraded_count, upgraded.failed_count) == (1, 0)


def test_an_event_that_adk_cannot_read_is_named_without_its_content(backend: Backend) -> None:
    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            service = CollectionsSessionService(store)
            session = await service.create_session(**ADA, session_id="1")
            await service.append_event(session, event())
            id = "/weather/ada/1/000000000000"
            await store["adk_events"].update(id, {"$set": {"timestamp": "secret"}})
            with pytest.raises(
                InvalidBody, match=f"collection adk_events: document '{id}'"
            ) as found:
                await stored(service, session)
            assert "secret" not in str(found.value)
            assert found.value.__cause__ is None
            assert found.value.__suppress_context__

    asyncio.run(main())


# -- agents and processes --------------------------------------------------------------------


class Counter(BaseAgent):
    """An agent without a model: it counts its calls in three states."""

    async def _run_async_impl(self, ctx: Any) -> Any:
        state = {
            f"{each}n": ctx.session.state.get(f"{each}n", 0) + 1 for each in ("", "user:", "app:")
        }
        yield Event(
            author=self.name,
            invocation_id=ctx.invocation_id,
            content=types.Content(role="model", parts=[types.Part(text=json.dumps(state))]),
            actions=EventActions(state_delta=state),
        )


def test_an_agent_goes_on_after_a_restart(shared_backend: Backend) -> None:
    async def ask(service: CollectionsSessionService) -> list[Any]:
        runner = Runner(
            app_name="weather",
            agent=Counter(name="counter"),
            session_service=service,
            auto_create_session=True,
        )
        return [
            each.actions.state_delta
            async for each in runner.run_async(user_id="ada", session_id="1", new_message=said("?"))
        ]

    for n in (1, 2, 3):
        assert use(shared_backend, ask) == [{"n": n, "user:n": n, "app:n": n}]

    async def check(service: CollectionsSessionService) -> None:
        session = await service.get_session(**ADA, session_id="1")
        assert session is not None
        assert [each.author for each in session.events] == ["user", "counter"] * 3

    use(shared_backend, check)


PROCESSES = """
import asyncio, json, os, sys
from google.adk.errors import StaleSessionError
from google.adk.events import Event, EventActions
from collections_store.integrations.google_adk import CollectionsSessionService

URL, OPTIONS, APPENDED = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])

async def append(service, names, state):
    while True:
        session = await service.get_session(**names)
        try:
            event = Event(author="user", actions=EventActions(state_delta=state))
            return await service.append_event(session, event)
        except StaleSessionError:
            pass

async def main(process):
    async with CollectionsSessionService(URL, **OPTIONS) as service:
        async def task(task):
            names = {"app_name": "weather", "user_id": f"{process}-{task}", "session_id": "own"}
            session = await service.create_session(**names)
            for n in range(APPENDED):
                state = {"n": n, f"app:{process}-{task}": n, "user:n": n}
                event = Event(author="user", actions=EventActions(state_delta=state))
                await service.append_event(session, event)
                if process == 0 and task == 0:
                    print("appended", flush=True)
            shared = {"app_name": "weather", "user_id": "all", "session_id": "shared"}
            if task < 2:
                await append(service, shared, {f"{process}-{task}": 1})
        await asyncio.gather(*map(task, range(16)))

children = []
for process in range(4):
    child = os.fork()
    if not child:
        code = 1
        try:
            asyncio.run(main(process))
            code = 0
        finally:
            os._exit(code)
    children.append(child)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""
"""Processes that are forked after the import of ADK, which takes seconds."""


def start(backend: Backend, appended: int) -> subprocess.Popen[str]:
    async def create(service: CollectionsSessionService) -> None:
        await service.create_session(app_name="weather", user_id="all", session_id="shared")

    use(backend, create)
    return subprocess.Popen(
        [sys.executable, "-c", PROCESSES, backend.url, json.dumps(backend.options), str(appended)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


async def check_sessions(service: CollectionsSessionService) -> list[Session]:
    """Return all sessions; each has all that was appended, in order, and the states are those of the events."""
    found = []
    for listed in (await service.list_sessions(app_name="weather")).sessions:
        session = await stored(service, listed)
        if session.id == "own":
            numbers = [each.actions.state_delta["n"] for each in session.events]
            assert numbers == list(range(len(numbers)))
            last = numbers[-1] if numbers else None
            keys = ("n", "user:n", f"app:{session.user_id}")
            assert [session.state.get(key) for key in keys] == [last] * 3
        found.append(session)
    return found


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("shared_backend", BACKENDS[:: sampled(2)], indirect=True)
def test_four_processes_of_sixteen_tasks_lose_nothing(shared_backend: Backend) -> None:
    process = start(shared_backend, 3)
    process.communicate()
    assert process.returncode == 0
    sessions = use(shared_backend, check_sessions)
    by_id = {(each.user_id, each.id): each for each in sessions}
    assert len(by_id) == 65
    shared = by_id.pop(("all", "shared"))
    assert len(shared.events) == 8
    assert {each for each in shared.state if not each.startswith("app:")} == {
        f"{process}-{task}" for process in range(4) for task in range(2)
    }
    assert {len(each.events) for each in by_id.values()} == {3}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("shared_backend", BACKENDS[1 :: -sampled(2)], indirect=True)
def test_killed_processes_leave_each_session_whole(shared_backend: Backend) -> None:
    process = start(shared_backend, 1000)
    assert process.stdout
    for _ in range(3):
        assert process.stdout.readline() == "appended\n"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()

    async def go_on(service: CollectionsSessionService) -> None:
        for session in await check_sessions(service):
            await service.append_event(session, event({"n": len(session.events)}))
            assert await stored(service, session) == session

    sessions = use(shared_backend, check_sessions)
    assert max(len(each.events) for each in sessions) >= 3
    use(shared_backend, go_on)


def test_it_opens_as_adks_database_sessions_do(tmp_path: Path) -> None:
    assert "db_url" in inspect.signature(DatabaseSessionService.__init__).parameters
    url = f"sqlite+aiosqlite:///{tmp_path / 'agents.db'}"

    async def main() -> None:
        async with CollectionsSessionService(db_url=url) as service:
            await service.create_session(**ADA, session_id="1")
        async with CollectionsSessionService(url) as service:
            assert len((await service.list_sessions(**ADA)).sessions) == 1

    asyncio.run(main())
    with pytest.raises(InvalidOption, match="db_url"):
        CollectionsSessionService()
    with pytest.raises(InvalidOption, match="db_url"):
        CollectionsSessionService(url, db_url=url)
