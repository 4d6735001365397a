"""The calls of ADK's session services that are measured."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from google.adk.events import Event, EventActions
from google.adk.sessions import BaseSessionService, DatabaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai.types import UserContent

from collections_store.integrations.google_adk import CollectionsSessionService

__all__ = [
    "BaseSessionService",
    "CollectionsSessionService",
    "DatabaseSessionService",
    "SqliteSessionService",
]
EVENTS, SESSIONS = 100, 20
ADA: Any = {"app_name": "weather", "user_id": "ada"}


def event(state: dict[str, Any] | None = None) -> Event:
    content = UserContent("Will it rain in Rome tomorrow?")
    return Event(author="user", content=content, actions=EventActions(state_delta=state or {}))


class Calls:
    """The calls of one service that are measured, after it has some sessions."""

    def __init__(self, runner: asyncio.Runner, service: BaseSessionService) -> None:
        self._service = service
        self._sessions = runner.run(self._fill())

    async def _fill(self) -> list[Session]:
        create, append = self._service.create_session, self._service.append_event
        sessions = [await create(**ADA, state={"n": 0, "user:n": 0}) for _ in range(SESSIONS)]
        for _ in range(EVENTS):
            await append(sessions[0], event())
        return sessions

    def calls(self) -> dict[str, Callable[[], Awaitable[Any]]]:
        service, read, written = self._service, self._sessions[0], self._sessions[1]
        names = {**ADA, "session_id": read.id}
        few = GetSessionConfig(num_recent_events=10)
        return {
            "append_event": lambda: service.append_event(written, event()),
            "append_event with states": lambda: service.append_event(
                written, event({"n": 1, "user:n": 1})
            ),
            "get_session, 10 of 100 events": lambda: service.get_session(**names, config=few),
            "get_session, 100 events": lambda: service.get_session(**names),
            "list_sessions, 20": lambda: service.list_sessions(**ADA),
            "create_session": lambda: service.create_session(app_name="weather", user_id="bob"),
        }
