"""`OpenAIAgentsSession`: a `Session` of the OpenAI Agents SDK, with branches and usage by turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

from ... import (
    AsyncCollection,
    AsyncStore,
    AsyncTransaction,
    Document,
    InsertOne,
    InvalidBody,
    InvalidOption,
    MissingExtra,
    UpdateOne,
    VersionConflict,
)
from ..stores import StoreOwner
from .collection import delete_session, prepare
from .records import (
    COLLECTION,
    COUNTS,
    LAST_FIRST,
    MAIN,
    Json,
    as_text,
    body_of,
    check_name,
    header_id,
    item_of,
    items_prefix,
    names_of,
    new_name,
    numbered,
    start,
    turn_of,
    under,
    usage_of,
)

if TYPE_CHECKING:
    from agents import RunContextWrapper, SessionSettings, TResponseInputItem
    from agents.result import RunResultBase


class OpenAIAgentsSession(StoreOwner):
    """A session of the OpenAI Agents SDK in a store: an `AsyncStore`, which stays open, or a URL or the path of an
    SQLite file, with options of `AsyncStore`; by default in memory.

    All sessions share a `collection` of the store. Tasks, loops, processes and objects can share a session: no item
    is lost, and the items of a call are adjacent. Each object has a current branch, initially "main".
    `session_settings` are the SDK's: `SessionSettings(limit=50)`. A session id and the name of a branch have up to
    900 bytes and no NUL, else a method raises `InvalidOption`. An item that is not JSON raises `InvalidBody`.

    >>> async def main():
    ...     async with OpenAIAgentsSession("alice", "sqlite://") as session:
    ...         await session.add_items([{"role": "user", "content": "Hello"}])
    ...         return await session.get_items()
    >>> asyncio.run(main())
    [{'role': 'user', 'content': 'Hello'}]
    """

    def __init__(
        self,
        session_id: str,
        store: AsyncStore | str | PathLike[str] = ":memory:",
        *,
        collection: str = COLLECTION,
        session_settings: SessionSettings | Json | None = None,
        **options: Any,
    ) -> None:
        self.session_id = check_name("session_id", session_id)
        self.session_settings: SessionSettings | None = _settings(session_settings)
        self._open(store, options)
        self._collection = collection
        self._documents: AsyncCollection[Any] = self._store[collection]
        self._branch = MAIN
        self._header: Document[Any] | None = None
        """The header after the last append; others may have changed the stored header."""

    @classmethod
    def from_url(cls, session_id: str, *, url: str, **options: Any) -> Self:
        """Return a session on the URL of a store; `options` are those of the class."""
        return cls(session_id, url, **options)

    @property
    def current_branch(self) -> str:
        """The branch for reads and writes of this object."""
        return self._branch

    def session_of(self, wrapper: RunContextWrapper[Any] | None) -> str:
        """Return the id of a call's session: `session_id`.

        The SDK passes the context of the run, or None without a run. A subclass can choose by `wrapper.context`.
        """
        del wrapper
        return self.session_id

    async def get_items(
        self,
        limit: int | None = None,
        branch_id: str | None = None,
        *,
        wrapper: RunContextWrapper[Any] | None = None,
    ) -> list[TResponseInputItem]:
        """Return the items of a branch (None: the current branch), the oldest first.

        `limit`: the number of latest items; None: the limit of the settings; negative: all.
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        if limit == 0:
            return []
        within = self._items(branch_id, self.session_of(wrapper))
        if limit is None or limit < 0:
            found = await self._documents.find(within, sort="$id")
        else:
            found = await self._documents.find(within, sort=LAST_FIRST, limit=limit)
            found.reverse()
        return [item_of(each) for each in found]

    async def add_items(
        self,
        items: list[TResponseInputItem],
        *,
        wrapper: RunContextWrapper[Any] | None = None,
    ) -> None:
        """Append items to the current branch, all or none. The first append creates the session."""
        if not items:
            return
        session = self.session_of(wrapper)
        await prepare(self._store, self._collection)
        bodies = [body_of(item) for item in items]
        try:
            await self._append(session, bodies)
        except InvalidBody as error:
            await self._append(session, [as_text(body, error) for body in bodies])

    async def pop_item(
        self, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> TResponseInputItem | None:
        """Remove and return the last item of the current branch, or None."""
        within = self._items(None, self.session_of(wrapper))
        found = await self._documents.find_one_and_delete(within, sort=LAST_FIRST)
        return None if found is None else item_of(found)

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Delete the session with all branches. Then the current branch is "main"."""
        header = {"$id": header_id(self.session_of(wrapper))}
        await delete_session(self._store, self._collection, header)
        self._branch, self._header = MAIN, None

    async def create_branch_from_turn(
        self, turn_number: int, branch_name: str | None = None
    ) -> str:
        """Copy the items before a turn of the current branch into a new branch, and switch to the new branch;
        return its name.

        A turn begins with a message of the user. The first turn is 1. Raise `InvalidOption` for a missing turn, or
        an existing branch of the same name.
        """
        create = partial(self._create_branch, turn_number, branch_name)
        self._branch = await self._store.run_transaction(create)
        return self._branch

    async def switch_to_branch(self, branch_id: str) -> None:
        """Read and write another branch from now on; raise `InvalidOption` for an unknown name."""
        if branch_id not in await self._branches():
            raise self._missing(check_name("branch_id", branch_id))
        self._branch = branch_id

    async def delete_branch(self, branch_id: str, force: bool = False) -> None:
        """Delete a branch. `force`: even the current branch; then the current branch is "main".

        Raise `InvalidOption` for an unknown name, and for "main".
        """
        if check_name("branch_id", branch_id) == MAIN:
            raise InvalidOption("branch_id", f"must not be {MAIN!r}: clear_session deletes all")
        if branch_id == self._branch and not force:
            problem = f"{branch_id!r} is the current branch: switch to another, or pass force=True"
            raise InvalidOption("branch_id", problem)
        await self._store.run_transaction(partial(self._delete_branch, branch_id))
        if branch_id == self._branch:
            self._branch = MAIN

    async def list_branches(self) -> list[Json]:
        """Return the branches in the order of their creation: `branch_id`, `message_count`, `user_turns`, `is_current`."""
        return [
            {
                "branch_id": branch,
                "message_count": await self._documents.count(self._items(branch)),
                "user_turns": await self._documents.count(self._turns(branch)),
                "is_current": branch == self._branch,
            }
            for branch in await self._branches()
        ]

    async def get_conversation_turns(self, branch_id: str | None = None) -> list[Json]:
        """Return the turns of a branch (None: the current branch): `turn`, `content` (the first 100 characters),
        `full_content`, `timestamp` (a datetime in UTC) and `can_branch`.
        """
        found = await self._documents.find(self._turns(branch_id), sort="$id")
        return [turn_of(number, each) for number, each in enumerate(found, 1)]

    async def store_run_usage(self, result: RunResultBase) -> None:
        """Store the usage of a run with the last turn of the current branch; without a turn, store nothing."""
        usage = {"$set": {"usage": usage_of(result.context_wrapper.usage)}}
        await self._documents.update_one(self._turns(None), usage, sort=LAST_FIRST)

    async def get_turn_usage(
        self, user_turn_number: int | None = None, branch_id: str | None = None
    ) -> list[Json] | Json:
        """Return the usage of a turn, or {}. With `user_turn_number` None, return a list for all turns of the
        branch with usage.
        """
        turns = self._turns(branch_id)
        found = await self._documents.find(turns, sort="$id", projection=["usage"])
        usage = {n: each.body["usage"] for n, each in enumerate(found, 1) if "usage" in each.body}
        if user_turn_number is None:
            return [{"user_turn_number": number, **each} for number, each in usage.items()]
        return usage.get(user_turn_number) or {}

    async def get_session_usage(self, branch_id: str | None = None) -> dict[str, int] | None:
        """Return the sums of the usage of a branch, or of the whole session, and `total_turns`; None without usage."""
        whole = {"$id": under(header_id(self.session_id))}
        within = whole if branch_id is None else self._items(branch_id)
        sums = {name: {"$sum": f"$usage.{name}"} for name in COUNTS} | {"total_turns": {"$sum": 1}}
        stages = [
            {"$match": within | {"usage": {"$exists": True}}},
            {"$group": {"_id": None, **sums}},
            {"$unset": "_id"},
        ]
        found = await self._documents.aggregate(stages)
        return found[0] if found else None

    def _items(self, branch: str | None, session: str | None = None) -> Json:
        """Return the filter of the items of a branch. None: the current branch, the session `session_id`."""
        names = (
            self.session_id if session is None else session,
            self._branch if branch is None else branch,
        )
        return {"$id": under(items_prefix(*names))}

    def _turns(self, branch: str | None) -> Json:
        """Return the filter of the items that begin a turn."""
        return self._items(branch) | {"user": True}

    async def _branches(self) -> list[str]:
        return names_of(await self._documents.get(header_id(self.session_id)))

    def _missing(self, branch: str) -> InvalidOption:
        problem = f"session {self.session_id!r} has no branch {branch!r}: see list_branches"
        return InvalidOption("branch_id", problem)

    async def _append(self, session: str, bodies: Sequence[Json]) -> None:
        """Append items. If others append at the same time, reserve numbers first."""
        id, header, self._header = header_id(session), self._header, None
        if header is None or header.id != id:
            header = await self._documents.document(id)
        try:
            self._header = await self._append_to(header, session, bodies)
        except VersionConflict:
            await self._reserve_and_append(session, bodies)

    async def _append_to(
        self, header: Document[Any] | None, session: str, bodies: Sequence[Json]
    ) -> Document[Any] | None:
        """Write the header, as long as it is the document that was read, with items after its last number; return the
        new header, or None for a first header.
        """
        body = {"last": start(), "branches": []} | ({} if header is None else header.body)
        items = numbered(session, self._branch, bodies, body["last"] + 1)
        branches = list(dict.fromkeys([*body["branches"], self._branch]))
        body |= {"session": session, "branches": branches, "last": body["last"] + len(bodies)}
        given = [(header_id(session), body, header), *((id, item, None) for id, item in items)]
        await self._documents.put_many(given, mode="if_version", atomic=True)
        return header and replace(header, body=body, version=header.version + 1)

    async def _reserve_and_append(self, session: str, bodies: Sequence[Json]) -> None:
        """Reserve numbers in the header, and then write items with these numbers."""
        id, count = header_id(session), len(bodies)
        last = await self._documents.increment(id, "last", count, initial=start())
        change = {
            "$set": {"session": session},
            "$addToSet": {"branches": self._branch},
            "$max": {"last": last},  # creates the header again if it was deleted meanwhile
        }
        items = numbered(session, self._branch, bodies, last - count + 1)
        inserts = (InsertOne(body, id=id) for id, body in items)
        requests = [UpdateOne({"$id": id}, change, upsert=True), *inserts]
        await self._documents.bulk_write(requests, atomic=True)

    async def _create_branch(
        self, turn: int, name: str | None, transaction: AsyncTransaction
    ) -> str:
        documents = transaction[self._collection]
        names = names_of(await documents.get(header_id(self.session_id)))
        name = new_name(turn, names) if name is None else name
        if name in names:
            raise InvalidOption("branch_name", f"session {self.session_id!r} has a branch {name!r}")
        turns = await documents.find(self._turns(None), sort="$id", projection=["user"])
        if not 1 <= turn <= len(turns):
            problem = f"must be one of the {len(turns)} turns of {self._branch!r}, got {turn!r}"
            raise InvalidOption("turn_number", problem)
        old, new = (items_prefix(self.session_id, each) for each in (self._branch, name))
        before = {"$id": {"$gte": old, "$lt": turns[turn - 1].id}}
        items = await documents.find(before, sort="$id", projection={"usage": 0})
        copies = [(new + each.id.removeprefix(old), each.body | {"branch": name}) for each in items]
        await documents.update(header_id(self.session_id), {"$push": {"branches": name}})
        await documents.put_many(copies, mode="insert", atomic=True)
        return name

    async def _delete_branch(self, branch: str, transaction: AsyncTransaction) -> None:
        documents = transaction[self._collection]
        header = {"$id": header_id(self.session_id), "branches": branch}
        found = await documents.update_one(header, {"$pull": {"branches": branch}})
        if not found.matched_count:
            raise self._missing(branch)
        await documents.delete_many(self._items(branch))


def _settings(settings: SessionSettings | Json | None) -> SessionSettings:
    """Return the SDK's settings; raise `MissingExtra` without the SDK."""
    try:
        from agents.memory.session_settings import SessionSettings, coerce_session_settings
    except ImportError as error:
        raise MissingExtra("openai-agents", "openai-agents") from error
    return SessionSettings() if settings is None else coerce_session_settings(settings)
