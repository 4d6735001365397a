"""The sessions of agents: a document for each event and for each state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from os import PathLike
from typing import Any, Final, Unpack
from weakref import WeakValueDictionary

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.platform.time import get_time
from google.adk.platform.uuid import new_uuid
from google.adk.sessions import BaseSessionService, Session, State
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse

from ... import (
    AsyncCollection,
    AsyncStore,
    AsyncTransaction,
    InvalidOption,
    StoreOptions,
    VersionConflict,
    VersionSettings,
)
from ..stores import StoreOwner, time_before
from .paths import path, under
from .refusals import UNREADABLE, UNWRITABLE, refused

ATTEMPTS: Final = 100
"""Of a transaction on PostgreSQL, where all that change the state of one app conflict."""


class CollectionsSessionService(StoreOwner, BaseSessionService):
    """ADK's sessions in a store: an `AsyncStore`, which stays open, or a URL with `options` of `AsyncStore`. Pass
    the URL first, or as `db_url` as in ADK's `DatabaseSessionService`.

    `sessions` is the collection of sessions and of the states of apps and users, `events` the collection of events.
    `versions` are a `schema_version` and `upgrades` of the documents in `sessions`, as for `AsyncStore.collection`.
    Tasks, loops and processes can share a database. Spaces around a session's id are removed.

    A name must be a string, else the method raises `InvalidOption`. A name that no id can hold raises `InvalidId`;
    a value that no body can hold, such as a NUL character, `InvalidBody`. Then nothing is written. Events are
    stored as by ADK: values of the state beyond JSON become strings, tuples become lists.

    >>> from collections_store.integrations.google_adk import CollectionsSessionService
    >>> async def main():
    ...     async with CollectionsSessionService("sqlite://") as service:
    ...         await service.create_session(app_name="weather", user_id="ada", state={"user:city": "Rome"})
    ...         return await service.get_user_state(app_name="weather", user_id="ada")
    >>> asyncio.run(main())
    {'city': 'Rome'}
    """

    def __init__(
        self,
        store: AsyncStore | str | PathLike[str] | None = None,
        *,
        db_url: str | None = None,
        sessions: str = "adk_sessions",
        events: str = "adk_events",
        versions: VersionSettings | None = None,
        **options: Unpack[StoreOptions],
    ) -> None:
        if (store is None) is (db_url is None):
            raise InvalidOption("db_url", "give either a store or the URL of one")
        self._open(db_url if store is None else store, options)
        self._names = sessions, events
        self._versions = versions
        self._locks: WeakValueDictionary[Any, asyncio.Lock] = WeakValueDictionary()

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session with a state, and return the session. Keys with the prefix `app:` or `user:` are added
        to the states of the app and of the user.

        `session_id`: by default a new UUID. Raise ADK's `AlreadyExistsError`.
        """
        name = _stripped(session_id) or new_uuid()
        id = path(app_name=app_name, user_id=user_id, session_id=name)
        with refused("state", UNWRITABLE):
            delta = EventActions(state_delta=state or {}).model_dump(mode="json")["state_delta"]
        changes = _changes(app_name, user_id, delta)
        body = {
            "app": app_name,
            "user": user_id,
            "session": name,
            "state": _scoped(delta)[2],
            "last_update_time": get_time(),
            "events": 0,
            "last_event": None,
        }

        async def create(transaction: AsyncTransaction) -> Session:
            sessions = self._sessions(transaction)
            await sessions.put(id, body, if_absent=True)
            states = await sessions.get_many(_shared(app_name, user_id))
            merged = _merged(states, changes)
            for each in merged.items():
                await sessions.put(*each)
            return _session(body, states | merged)

        store = await self._opened()
        try:
            async with self._in_turn(*changes):
                return await store.run_transaction(create, attempts=ATTEMPTS)
        except VersionConflict:
            raise AlreadyExistsError(f"Session with id {name} already exists.") from None

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session with its events in the order in which they were appended, or None.

        `config` limits the number of events, counted from the last, and the time of the first; with both, both
        limits apply.
        """
        id = path(app_name=app_name, user_id=user_id, session_id=_stripped(session_id))
        sessions = self._sessions(self._store)
        states = await sessions.get_many([id, *_shared(app_name, user_id)])
        body = states.get(id)
        if body is None:
            return None
        session = _session(body, states)
        wanted = config or GetSessionConfig()
        last = body["events"] if wanted.num_recent_events is None else wanted.num_recent_events
        numbers = range(max(0, body["events"] - last), body["events"])
        found = await self._read_events(id, numbers, wanted.after_timestamp)
        if len(found) < len(numbers) and not await sessions.exists(id):
            return None  # it was deleted meanwhile
        session.events = [self._event(*each) for each in found.items()]
        return session

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """Return the sessions of a user (None: of all), without events. The session with the latest update comes
        last.
        """
        sessions = self._sessions(self._store)
        of_user = {} if user_id is None else {"user_id": user_id}
        parent = path(app_name=app_name, **of_user)
        states = await sessions.get_many(_shared(app_name, user_id))
        states |= {each.id: each.body for each in await sessions.find(under(parent))}
        found = [_session(body, states) for body in states.values() if "session" in body]
        found.sort(key=lambda each: (each.last_update_time, each.user_id, each.id))
        return ListSessionsResponse(sessions=found)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with its events, if the session exists. The states of the app and of the user stay."""
        await self._delete(
            path(app_name=app_name, user_id=user_id, session_id=_stripped(session_id))
        )

    async def delete_idle_sessions(self, seconds: float | timedelta, *, app_name: str) -> int:
        """Delete the sessions of an app without a write in the last `seconds`, each with its events; return their
        number.

        The method reads the times of all sessions of the app. Raise `InvalidOption` unless `seconds` is a number of
        0 or more, or a timedelta.
        """
        before = {"$updated_at": {"$lt": time_before(seconds)}}
        sessions = self._store[self._names[0]]
        filter = {**under(path(app_name=app_name)), **before}
        found = await sessions.find(filter, projection=["_id"])
        deleted = [await self._delete(each.id, before) for each in found if each.id.count("/") == 3]
        return sum(deleted)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user, by keys without `user:`."""
        sessions = self._sessions(self._store)
        body = await sessions.get(path(app_name=app_name, user_id=user_id))
        state: dict[str, Any] = body["state"] if body else {}
        return state

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event to a session object and to the stored session, and merge the changes of its states, in a
        transaction.

        A partial event is not stored. An event equal to the last event is not stored again: a call can be repeated
        after an error. Raise ADK's `StaleSessionError` if `session` lacks events of the stored session, and
        `SessionNotFoundError`.
        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        id = path(app_name=session.app_name, user_id=session.user_id, session_id=session.id)
        with refused("event", UNWRITABLE):
            written = event.model_dump(mode="json", exclude_none=True)
        changes = _changes(session.app_name, session.user_id, written["actions"]["state_delta"])
        store = await self._opened()
        async with self._in_turn(id, *changes):
            body = await store.run_transaction(
                lambda transaction: self._append(transaction, id, session, written, changes),
                attempts=ATTEMPTS,
            )
            _mark(session, body)
            if session.events[-1:] != [event]:
                self._commit_event_to_session(session, event)
        return event

    async def _append(
        self,
        transaction: AsyncTransaction,
        id: str,
        session: Session,
        event: dict[str, Any],
        changes: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Write an event; return the body of the session."""
        sessions, events = self._sessions(transaction), transaction[self._names[1]]
        states = await sessions.get_many([id, *changes])
        if id not in states:
            raise _not_found(session)
        body: dict[str, Any] = states[id]
        number, last = body["events"], body["last_event"]
        is_repeated = event["id"] == last and _knows(session, number - 1)
        if is_repeated and await events.get(_event_id(id, number - 1)) == event:
            return body
        if _is_stale(session, body):
            raise StaleSessionError(
                f"Session {session.id} was modified in storage since it was loaded: get it again, and append to that"
            )
        body["state"].update(_scoped(event["actions"]["state_delta"])[2])
        body |= {
            "last_update_time": event["timestamp"],
            "events": number + 1,
            "last_event": event["id"],
        }
        # put would bring back a session that another transaction of PostgreSQL deleted after the read
        if not (await sessions.replace_one({"$id": id}, body)).matched_count:
            raise _not_found(session)
        for each in _merged(states, changes).items():
            await sessions.put(*each)
        await events.put(_event_id(id, number), event)
        return body

    async def _read_events(
        self, session: str, numbers: range, since: float | None
    ) -> dict[str, Any]:
        """Return the events of a session in a range of numbers, in order, by id."""
        events = self._store[self._names[1]]
        if since is None:
            return await events.get_many([_event_id(session, number) for number in numbers])
        first, end = _event_id(session, numbers.start), _event_id(session, numbers.stop)
        recent = {"$id": {"$gte": first, "$lt": end}, "timestamp": {"$gte": since}}
        return {each.id: each.body for each in await events.find(recent)}

    def _event(self, id: str, body: Any) -> Event:
        with refused("", UNREADABLE, self._names[1], id):
            return Event.model_validate(body)

    async def _delete(self, id: str, condition: Mapping[str, Any] | None = None) -> bool:
        sessions, events = self._names

        async def delete(transaction: AsyncTransaction) -> bool:
            deleted = await transaction[sessions].delete_one({"$id": id, **(condition or {})})
            if deleted.deleted_count:
                await transaction[events].delete_many(under(id))
            return deleted.deleted_count > 0

        return await self._store.run_transaction(delete, attempts=ATTEMPTS)

    async def _opened(self) -> AsyncStore:
        """Return the store for writes; create the collections."""
        for name in self._names:
            await self._prepared(name)
        return self._store

    def _sessions(self, within: AsyncStore | AsyncTransaction) -> AsyncCollection:
        name = self._names[0]
        if self._versions is None:
            return within[name]
        return within.collection(name, **self._versions)

    @asynccontextmanager
    async def _in_turn(self, *ids: str) -> AsyncIterator[None]:
        """Make tasks that write the same documents wait here. The second task continues from the first task's
        session, and PostgreSQL meets no conflict.
        """
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as held:
            for id in ids:
                lock = self._locks.setdefault((loop, id), asyncio.Lock())
                await held.enter_async_context(lock)
            yield


def _not_found(session: Session) -> SessionNotFoundError:
    return SessionNotFoundError(f"Session {session.id} not found.")


def _stripped(session_id: Any) -> Any:
    return session_id.strip() if isinstance(session_id, str) else session_id


def _shared(app_name: str, user_id: str | None) -> dict[str, dict[str, str]]:
    """Return the ids of the shared states, each with the names of the owner."""
    app = {path(app_name=app_name): {"app": app_name}}
    if user_id is None:
        return app
    return app | {
        path(app_name=app_name, user_id=user_id): {"app": app_name, "user": user_id},
    }


def _scoped(delta: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the changes of the states of the app, the user and the session.

    >>> _scoped({"app:a": 1, "user:b": 2, "c": 3, "temp:d": 4})
    ({'a': 1}, {'b': 2}, {'c': 3})
    """
    app, user, own = {}, {}, {}
    for key, value in delta.items():
        if key.startswith(State.APP_PREFIX):
            app[key.removeprefix(State.APP_PREFIX)] = value
        elif key.startswith(State.USER_PREFIX):
            user[key.removeprefix(State.USER_PREFIX)] = value
        elif not key.startswith(State.TEMP_PREFIX):
            own[key] = value
    return app, user, own


def _changes(
    app_name: str, user_id: str, delta: Mapping[str, Any]
) -> dict[str, tuple[dict[str, str], dict[str, Any]]]:
    """Return the changes of the shared states by id, each with the names of the owner."""
    scopes = zip(_shared(app_name, user_id).items(), _scoped(delta), strict=False)
    return {id: (owner, changed) for (id, owner), changed in scopes if changed}


def _merged(states: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bodies of changed states, by id."""
    return {
        id: {**owner, "state": {**states.get(id, {"state": {}})["state"], **changed}}
        for id, (owner, changed) in changes.items()
    }


def _session(body: Mapping[str, Any], states: Mapping[str, Any]) -> Session:
    """Return a session without events, with the shared states."""
    app, user = (states.get(id, {"state": {}}) for id in _shared(body["app"], body["user"]))
    session = Session(
        id=body["session"],
        app_name=body["app"],
        user_id=body["user"],
        state={
            **body["state"],
            **{State.APP_PREFIX + key: value for key, value in app["state"].items()},
            **{State.USER_PREFIX + key: value for key, value in user["state"].items()},
        },
    )
    _mark(session, body)
    return session


def _mark(session: Session, body: Mapping[str, Any]) -> None:
    """Mark a session object as equal to a stored session."""
    session.last_update_time = body["last_update_time"]
    session._storage_update_marker = _revision(body)


def _revision(body: Mapping[str, Any]) -> str:
    return f"{body['events']} {body['last_event']}"


def _is_stale(session: Session, body: Mapping[str, Any]) -> bool:
    """Return whether the stored session has events unknown to a session object. A session object that was never
    loaded has no marker.
    """
    if session._storage_update_marker is not None:
        return session._storage_update_marker != _revision(body)
    last = session.events[-1].id if session.events else None
    return bool(session.last_update_time < body["last_update_time"] and last != body["last_event"])


def _knows(session: Session, number: int) -> bool:
    """Return whether a session object was loaded with the events before a number, as far as its marker shows."""
    marker = session._storage_update_marker
    return marker is None or int(marker.partition(" ")[0]) >= number


def _event_id(session: str, number: int) -> str:
    return f"{session}/{number:012}"
