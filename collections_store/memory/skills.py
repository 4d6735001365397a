"""Memories of a session, shared by several skills; a skill is any part of a program with a name.

1. A skill reads its own PRIVATE memories and all PUBLIC memories of the session.
2. A save deletes the skill's PRIVATE memories that the response omits; PUBLIC memories stay.
3. Only the creator of a memory changes the memory, unless another policy is set.
4. Each session has a document that counts its saves. A save reads the counter before everything else, and increments
   the counter before it writes; if another save was faster, the transaction runs again. Concurrent saves are
   serializable.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from ..codec import Codec, decode
from ..document import SKILL_MEMORY, Document, check_id, check_name, read_ttl
from ..errors import (
    InvalidBody,
    InvalidId,
    InvalidOption,
    NotTheCreator,
    TransactionConflict,
    VersionConflict,
    shortened,
)
from ..expressions.values import equal, identical
from ..operations.bulk import Given, PutBatch, batches
from ..operations.by_id import GetDocument, Insert, RemoveById, RemoveMany, Rewrite, TouchMany
from ..operations.find import Find, check_page
from ..operations.operation import Operation, Work
from ..operations.search import FindWords, words_of
from ..operations.update import DeleteMatching
from ..options import Ttl, check_choice, check_function
from ..query.filter import Filter
from .encoding import to_json, value_of
from .memory import MemoryHost

Policy: TypeAlias = Literal["creator", "anyone", "raise"]
Model: TypeAlias = Callable[..., Any]
Run: TypeAlias = Callable[[Any], Any]
PRIVATE: Final = "PRIVATE"
PUBLIC: Final = "PUBLIC"
_DIGITS: Final = 40
_PARTS: Final = ("name", "value", "session_id", "scope")


@dataclass(frozen=True, slots=True)
class Response:
    """The memories of a skill's response, as bodies by id."""

    session: str
    skill: str
    bodies: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, session: str, skill: str, memories: Any, codec: Codec) -> Response:
        """Read memories, objects or dicts; the last of equal memories counts. Raises `InvalidOption` and `InvalidBody`."""
        bodies = {}
        for position, memory in enumerate(_listed(memories)):
            body = {"session": session, "creator": skill, **_parts(position, memory, codec)}
            body = decode(_encoded(codec, position, body))
            owner = skill if body["scope"] == PRIVATE else None
            key = json.dumps([owner, body["scope"], body["name"], body["session_id"]])
            bodies[f"{_digest(session)}/{_digest(key)}"] = body
        return cls(session, skill, bodies)

    def writes(self, there: Mapping[str, Any], policy: Policy) -> dict[str, dict[str, Any]]:
        """Return the bodies to write over the bodies of the session; raises `NotTheCreator`."""
        written = {}
        for id, body in self.bodies.items():
            known, value = there.get(id), body["value"]
            if known is None:
                written[id] = body
            elif identical(known["value"], value, ordered=False):
                continue
            elif known["creator"] == self.skill or policy == "anyone":
                written[id] = {**known, "value": value}
            elif policy == "raise" and not equal(known["value"], value, ordered=False):
                raise NotTheCreator(body["name"], known["creator"], self.skill)
        return written

    def deletes(self, there: Mapping[str, Any]) -> list[str]:
        """Return the ids of the skill's own private memories that the response omits."""
        own = (
            id
            for id, each in there.items()
            if (each["scope"], each["creator"]) == (PRIVATE, self.skill)
        )
        return [id for id in own if id not in self.bodies]


class BaseSkillMemory:
    """Base of `SkillMemory` and `AsyncSkillMemory`, on a sync or async store or transaction."""

    def __init__(
        self,
        host: Any,
        collection: str = SKILL_MEMORY,
        *,
        policy: Policy = "creator",
        model: Model | None = None,
        ttl: Ttl = None,
    ) -> None:
        self._host, self._codec = host, host._codec
        self._collection = check_name(collection)
        self._policy: Policy = check_choice("policy", policy, get_args(Policy))
        self._model = None if model is None else check_function("model", model)
        self._ttl = read_ttl(ttl)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._collection!r}, policy={self._policy!r})"

    def _loading(self, session: Any, skill: Any) -> Find:
        return Find(self._collection, _visible(session, skill))

    def _searching(self, session: Any, skill: Any, query: Any, limit: Any, match: Any) -> FindWords:
        words, most = words_of(query, match), check_page(limit)
        return FindWords(self._collection, words, _visible(session, skill), most)

    def _loaded(self, found: Iterable[Document]) -> list[Any]:
        """Return documents as memories: dicts, or the results of the model."""
        memories = []
        for body in (each.body for each in found):
            parts = {name: body[name] for name in _PARTS}
            parts["value"] = value_of(body["name"], body["value"])
            memories.append((self._model or dict)(**parts))
        return memories

    def _saving(self, session: Any, skill: Any, memories: Any) -> Operation[int]:
        named = _checked("session", session), _checked("skill", skill)
        response = Response.read(*named, memories, self._codec)
        return Work((self._collection,), lambda run: self._apply(run, response))

    def _ending(self, session: Any) -> Operation[int]:
        named = _checked("session", session)

        def end(run: Run) -> int:
            run(RemoveById(self._collection, _digest(named)))  # a concurrent save conflicts here
            found = run(DeleteMatching(self._collection, Filter.parse(memories_of(named))))
            return int(found.deleted_count)

        return Work((self._collection,), end)

    def _apply(self, run: Run, response: Response) -> int:
        session = response.session
        counter = run(GetDocument(self._collection, _digest(session)))  # before the memories
        found = run(Find(self._collection, Filter.parse(memories_of(session))))
        there = {each.id: each.body for each in found}
        written, removed = response.writes(there, self._policy), response.deletes(there)
        if written or removed:
            self._increment(run, counter, session)
            self._write(run, written, removed)
        if self._ttl is not None:  # the whole session expires with its last save
            rest = {_digest(session), *there} - written.keys() - set(removed)
            run(TouchMany(self._collection, tuple(sorted(rest)), self._ttl))
        return len(written) + len(removed)

    def _increment(self, run: Run, counter: Document | None, session: str) -> None:
        """Count a save; raises `TransactionConflict` for another save since the read of `counter`."""
        saves = 1 if counter is None else counter.body["saves"] + 1
        text = self._codec.encode_body({"session": session, "saves": saves})
        try:
            if counter is None:
                run(Insert(self._collection, _digest(session), text, self._ttl))
            else:
                run(Rewrite(self._collection, counter, text))
        except VersionConflict as error:
            raise TransactionConflict(f"session {shortened(session)}: {error}") from error

    def _write(self, run: Run, written: dict[str, Any], removed: list[str]) -> None:
        texts = ((id, self._codec.encode_body(body)) for id, body in written.items())
        for batch in batches(Given(position, *each) for position, each in enumerate(texts)):
            run(PutBatch(self._collection, batch, ttl=self._ttl, strict=True))
        if removed:
            run(RemoveMany(self._collection, removed))


class SkillMemory(BaseSkillMemory):
    """The memories of sessions' skills: `store.skill_memory()`.

    A memory has a name, a value, optionally a session_id, and a scope. A PRIVATE memory (also with scope None)
    belongs to its creator, a PUBLIC memory to all skills of the session. Name, session_id and scope identify a memory.
    Memories are dicts, or objects with these attributes; `load` returns dicts, or the results of `model`. Values are
    as in `Memory`, and come back equal and of the same type.

    `policy` decides about the change of another skill's PUBLIC memory: "creator" ignores the change,
    "anyone" accepts it, "raise" raises `NotTheCreator`. `ttl`: seconds, or a timedelta, after which a session
    without a save expires.

    >>> with Store("sqlite://") as store:
    ...     skills = store.skill_memory()
    ...     name = {"name": "name", "value": "Ada", "scope": "PUBLIC"}
    ...     count = skills.save("session 1", "greeter", [name, {"name": "greeted", "value": True}])
    ...     [each["value"] for each in skills.load("session 1", "weather")]
    ['Ada']
    """

    _host: MemoryHost

    def load(self, session: str, skill: str) -> list[Any]:
        """Return a skill's PRIVATE memories and all PUBLIC memories of the session, in the order of their creation.

        >>> with Store("sqlite://") as store:
        ...     count = store.skill_memory().save("session 1", "weather", [{"name": "city", "value": "Bonn"}])
        ...     store.skill_memory().load("session 1", "weather")
        [{'name': 'city', 'value': 'Bonn', 'session_id': None, 'scope': 'PRIVATE'}]
        """
        return self._loaded(self._host.run(self._loading(session, skill)))

    def search(
        self,
        session: str,
        skill: str,
        query: str,
        *,
        limit: int = 10,
        match: Literal["all", "any"] = "all",
    ) -> list[Any]:
        """Return those memories of `load` that have the words of a query, the best first, up to `limit`.

        The query and `match` are those of `Collection.search`. The collection needs a text index of "value", of "name" or of fields in
        values. Raise `InvalidSearch`.

        >>> with Store("sqlite://") as store:
        ...     name = store["skill_memory"].create_text_index("value")
        ...     count = store.skill_memory().save("session 1", "bar", [{"name": "drink", "value": "green tea"}])
        ...     [each["name"] for each in store.skill_memory().search("session 1", "bar", "tea")]
        ['drink']
        """
        found = self._host.run(self._searching(session, skill, query, limit, match))
        return self._loaded(each.document for each in found)

    def save(self, session: str, skill: str, memories: Iterable[Any]) -> int:
        """Apply a skill's response in one transaction; return the number of written and deleted memories.

        The skill's PRIVATE memories that are not in `memories` are deleted, therefore a list is required, even an empty
        list. PUBLIC memories stay as long as the session; set a value such as None instead. The last of equal
        memories counts. Raises `NotTheCreator`, `InvalidOption` and `InvalidBody`; then nothing is written.

        >>> with Store("sqlite://") as store:
        ...     skills = store.skill_memory()
        ...     count = skills.save("session 1", "weather", [{"name": "city", "value": "Bonn"}])
        ...     skills.save("session 1", "weather", [])
        1
        """
        return self._host.run(self._saving(session, skill, memories))

    def end_session(self, session: str) -> int:
        """Delete all memories of a session; return the number.

        >>> with Store("sqlite://") as store:
        ...     count = store.skill_memory().save("session 1", "weather", [{"name": "city", "value": "Bonn"}])
        ...     store.skill_memory().end_session("session 1")
        1
        """
        return self._host.run(self._ending(session))


def scope_of(scope: Any, where: str = "scope") -> str | None:
    """Return a scope, a string or a host's enum, as a string; raises `InvalidOption`."""
    found: str | None = getattr(scope, "value", scope)
    if found in (None, PRIVATE, PUBLIC):
        return found
    problem = f"must be {PRIVATE!r} or {PUBLIC!r}, got {shortened(scope)}"
    raise InvalidOption(where, problem)


def part_of(memory: Any, name: str) -> Any:
    """Return an attribute of a memory, a dict or an object; a dict may omit session_id and scope."""
    if not isinstance(memory, Mapping):
        return getattr(memory, name)
    return memory[name] if name in {"name", "value"} else memory.get(name)


def _checked(option: str, id: Any) -> str:
    """Return the id of a session or a skill as a plain string; raises `InvalidOption`."""
    try:
        return str.__str__(check_id(id))
    except InvalidId as error:
        raise InvalidOption(option, str(error)) from error


def _listed(memories: Any) -> Iterator[Any]:
    if isinstance(memories, str | bytes | Mapping) or not isinstance(memories, Iterable):
        problem = (
            f"must be a list of all memories that stay, got {shortened(memories)}: private ones "
            "that are not in it are deleted; [] deletes all of them"
        )
        raise InvalidOption("memories", problem)
    return iter(memories)


def _parts(position: int, memory: Any, codec: Codec) -> dict[str, Any]:
    """Return the parts of a memory for a body; raises `InvalidOption`."""
    where = f"memories[{position}]"
    try:
        name, value, session_id, scope = (part_of(memory, each) for each in _PARTS)
    except (AttributeError, KeyError) as error:
        missing = getattr(error, "name", None) or error.args[0]
        raise InvalidOption(where, f"must have {missing!r}, got {shortened(memory)}") from error
    if not isinstance(name, str):
        raise InvalidOption(f"{where}.name", f"must be a string, got {shortened(name)}")
    if not isinstance(session_id, str | None):
        problem = f"must be a string or None, got {shortened(session_id)}"
        raise InvalidOption(f"{where}.session_id", problem)
    found = scope_of(scope, f"{where}.scope") or PRIVATE
    value = to_json(value, codec.default)
    return {"scope": found, "name": name, "session_id": session_id, "value": value}


def _encoded(codec: Codec, position: int, body: dict[str, Any]) -> str:
    try:
        return codec.encode_body(body)
    except InvalidBody as error:
        path = f"memories.{position}.{error.path}".rstrip(".")
        raise InvalidBody(path, error.problem) from error


def memories_of(session: str) -> dict[str, Any]:
    """Return the filter of a session's memories; the counter has a lower id."""
    prefix = _digest(session)
    return {"$id": {"$gte": f"{prefix}/", "$lt": f"{prefix}0"}}  # 0 follows the slash


def _visible(session: Any, skill: Any) -> Filter:
    """Return the filter of the memories that a skill reads."""
    visible = [{"scope": PUBLIC}, {"creator": _checked("skill", skill)}]
    return Filter.parse({**memories_of(_checked("session", session)), "$or": visible})


def after_session(id: str) -> str:
    """Return the first string after all ids of the session of an id."""
    return f"{id[:_DIGITS]}0"


def _digest(text: str) -> str:
    """Return a digest for an id, whatever the length and the characters of the text."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
