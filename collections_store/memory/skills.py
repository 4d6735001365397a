"""Memories of a session's skills: the platform's rules, and how they are read and saved in one transaction.

The rules are those of Soul Machines: a skill is shown what is PRIVATE to it and all that is PUBLIC in the session;
what is PRIVATE and not in its response is deleted, what is PUBLIC stays; only the skill that made a memory changes it.

Each session has one object that counts what was saved in it. Who writes counts first, on top of what was read
before all else; if somebody else has counted meanwhile, the whole transaction is run again. So what skills save at
once comes to the same as one after the other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from ..codec import Codec, decode
from ..collection import Ttl
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
from ..operations.bulk import Given, PutBatch, batches
from ..operations.by_id import GetDocument, Insert, RemoveById, RemoveMany, Rewrite, TouchMany
from ..operations.combine import Work
from ..operations.find import DeleteMatching, Find
from ..query.filter import Filter
from ..query.values import equal, identical
from .entries import MemoryHost
from .values import to_json, value_of

Policy: TypeAlias = Literal["creator", "anyone", "raise"]
PRIVATE: Final = "PRIVATE"
PUBLIC: Final = "PUBLIC"
_ABSENT: Final = object()
_DIGITS: Final = 40
_PARTS: Final = ("name", "value", "session_id", "scope")
_NO_LIST: Final = (
    "give the list of all memories that shall stay: what is PRIVATE and not in it is deleted. "
    "[] deletes all of them"
)


@dataclass(frozen=True, slots=True)
class Skill:
    """Who asks: a skill in a session."""

    session: str
    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "session", check_named("session", self.session))
        object.__setattr__(self, "name", check_named("skill", self.name))

    def id_of(self, scope: str, name: str, session_id: str | None) -> str:
        """Return the id of the memory that is this to the skill: one that is PUBLIC is so to all."""
        owner = self.name if scope == PRIVATE else None
        return within(self.session) + _digest(json.dumps([owner, scope, name, session_id]))

    def shown(self) -> dict[str, Any]:
        """Return the filter of the memories that the skill may see."""
        mine = [{"scope": PUBLIC}, {"creator": self.name}]
        return {**all_of(self.session), "$or": mine}


@dataclass(frozen=True, slots=True)
class SkillPlan:
    """What a response comes to: the bodies to write under their ids, and the ids to delete."""

    written: dict[str, str]
    removed: list[str]

    def __len__(self) -> int:
        return len(self.written) + len(self.removed)


@dataclass(frozen=True, slots=True)
class Response:
    """The memories that a skill gave back, as bodies under their ids."""

    skill: Skill
    bodies: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, skill: Skill, memories: Any, codec: Codec) -> Response:
        """Read memories, objects or dicts; the last counts of several that are the same. Raises
        `InvalidOption`, and `InvalidBody` for a value that cannot be stored.
        """
        bodies = {}
        for place, memory in enumerate(_listed(memories)):
            body = {"session": skill.session, "creator": skill.name, **_read(place, memory, codec)}
            body = decode(_encoded(codec, place, body))
            bodies[skill.id_of(body["scope"], body["name"], body["session_id"])] = body
        return cls(skill, bodies)

    def plan(self, there: Iterable[Document], policy: Policy, codec: Codec) -> SkillPlan:
        """Return what to do where there are these memories, of all skills; raises `NotTheCreator`."""
        known = {each.id: each.body for each in there}
        written = {}
        for id, body in self.bodies.items():
            changed = self._changed(known.get(id), body, policy)
            if changed is not None:
                written[id] = codec.encode(changed)
        removed = [id for id, body in known.items() if id not in self.bodies and self._owns(body)]
        return SkillPlan(written, removed)

    def _owns(self, body: dict[str, Any]) -> bool:
        return bool(body["scope"] == PRIVATE and body["creator"] == self.skill.name)

    def _changed(
        self, known: dict[str, Any] | None, body: dict[str, Any], policy: Policy
    ) -> dict[str, Any] | None:
        """Return the body that is to be written; None: all stays as it is."""
        if known is None:
            return body
        if identical(known["value"], body["value"], ordered=False):
            return None
        if known["creator"] == self.skill.name or policy == "anyone":
            return {**known, "value": body["value"]}
        if policy == "raise" and not equal(known["value"], body["value"], ordered=False):
            raise NotTheCreator(body["name"], known["creator"], self.skill.name)
        return None


def shown(document: Document, model: Callable[..., Any] | None) -> Any:
    """Return a memory as a skill has it: a dict, or what a class makes of its parts."""
    body = document.body
    parts = {name: body[name] for name in _PARTS}
    return (model or dict)(**{**parts, "value": value_of(body["name"], body["value"])})


def header_of(session: str) -> str:
    """Return the id of the object that counts what is saved in a session."""
    return _digest(session)


def within(session: str) -> str:
    """Return what the ids of a session's memories begin with."""
    return f"{_digest(session)}/"


def all_of(session: str) -> dict[str, Any]:
    """Return the filter of a session's memories."""
    return {"$id": {"$gte": within(session), "$lt": f"{_digest(session)}0"}}  # 0 follows the slash


def scope_of(scope: Any, where: str = "scope") -> str | None:
    """Return a scope as text, be it that or a host's own; raises `InvalidOption`."""
    found: str | None = getattr(scope, "value", scope)
    if found in (None, PRIVATE, PUBLIC):
        return found
    raise InvalidOption(where, f"{shortened(scope)} is neither {PRIVATE!r} nor {PUBLIC!r}")


def part_of(memory: Any, name: str) -> Any:
    """Return the name, value, session_id or scope of a memory, be it a dict or an object; what a dict may leave
    out is None.
    """
    if not isinstance(memory, Mapping):
        return getattr(memory, name)
    return memory[name] if name in {"name", "value"} else memory.get(name)


def check_named(option: str, id: Any) -> str:
    """Return the id of a session or a skill, whatever kind of text; raises `InvalidOption`."""
    try:
        return str.__str__(check_id(id))
    except InvalidId as error:
        raise InvalidOption(option, str(error)) from error


def check_policy(policy: Any) -> Policy:
    """Return `policy` if there is such a one; raises `InvalidOption`."""
    known = get_args(Policy)
    if isinstance(policy, str) and policy in known:
        found: Policy = policy  # type: ignore[assignment]
        return found
    raise InvalidOption("policy", f"{shortened(policy)} is none of {', '.join(map(repr, known))}")


def _listed(memories: Any) -> Iterator[Any]:
    if memories is None:
        raise InvalidOption("memories", f"None is no list: {_NO_LIST}")
    if isinstance(memories, str | bytes | Mapping) or not isinstance(memories, Iterable):
        raise InvalidOption("memories", f"{shortened(memories)} is no list: {_NO_LIST}")
    return iter(memories)


def _read(place: int, memory: Any, codec: Codec) -> dict[str, Any]:
    """Return the parts of a memory as a body has them; raises `InvalidOption`."""
    where = f"memories[{place}]"
    try:
        name, value, session_id, scope = (part_of(memory, each) for each in _PARTS)
    except (AttributeError, KeyError) as error:
        missing = getattr(error, "name", None) or error.args[0]
        raise InvalidOption(where, f"{shortened(memory)} has no {missing!r}") from error
    if not isinstance(name, str):
        raise InvalidOption(f"{where}.name", f"{shortened(name)} is no text")
    if not isinstance(session_id, str | None):
        raise InvalidOption(f"{where}.session_id", f"{shortened(session_id)} is no text")
    found = scope_of(scope, f"{where}.scope") or PRIVATE
    value = to_json(value, codec.default)
    return {"scope": found, "name": name, "session_id": session_id, "value": value}


def _encoded(codec: Codec, place: int, body: dict[str, Any]) -> str:
    try:
        return codec.encode(body)
    except InvalidBody as error:
        raise InvalidBody(f"memories.{place}.{error.path}".rstrip("."), error.problem) from error


def _digest(text: str) -> str:
    """Return what stands for a text of any length and any characters in an id."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


Run: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Keeping:
    """Where memories are kept, and by which rules; makes the operations."""

    collection: str
    codec: Codec = field(repr=False)
    policy: Policy
    model: Callable[..., Any] | None
    ttl: int | None

    @classmethod
    def of(cls, collection: Any, codec: Codec, *, policy: Any, model: Any, ttl: Any) -> Keeping:
        """Check options; raises `InvalidName` and `InvalidOption`."""
        if model is not None and not callable(model):
            raise InvalidOption("model", f"{shortened(model)} cannot be called")
        return cls(check_name(collection), codec, check_policy(policy), model, read_ttl(ttl))

    def load(self, session: Any, skill: Any) -> Find:
        """Return the operation that reads what a skill may see."""
        return Find(self.collection, Filter.parse(Skill(session, skill).shown()))

    def shown(self, found: Iterable[Document]) -> list[Any]:
        """Return memories as their skill has them."""
        return [shown(each, self.model) for each in found]

    def save(self, session: Any, skill: Any, memories: Any) -> Work:
        """Return the operation that does with a response what the rules ask."""
        response = Response.read(Skill(session, skill), memories, self.codec)
        return Work((self.collection,), lambda run: self._save(run, response))

    def end(self, session: Any) -> Work:
        """Return the operation that deletes a session."""
        check_named("session", session)
        return Work((self.collection,), lambda run: self._end(run, session))

    def _save(self, run: Run, response: Response) -> int:
        session = response.skill.session
        header = run(GetDocument(self.collection, header_of(session)))  # before what it counts
        there = run(Find(self.collection, Filter.parse(all_of(session))))
        plan = response.plan(there, self.policy, self.codec)
        if plan:
            self._count(run, header, session)
            self._write(run, plan)
        self._prolong(run, {header_of(session), *(each.id for each in there)}, plan)
        return len(plan)

    def _count(self, run: Run, header: Document | None, session: str) -> None:
        """Count on; raises `TransactionConflict` if somebody else has since the header was read."""
        saves = 1 if header is None else header.body["saves"] + 1
        id, text = header_of(session), self.codec.encode({"session": session, "saves": saves})
        try:
            if header is None:
                run(Insert(self.collection, id, text, self.ttl))
            else:
                run(Rewrite(self.collection, header, text))
        except VersionConflict as error:
            raise TransactionConflict(f"session {shortened(session)}: {error}") from error

    def _write(self, run: Run, plan: SkillPlan) -> None:
        given = (Given(place, *each) for place, each in enumerate(plan.written.items()))
        for batch in batches(given):
            run(PutBatch(self.collection, batch, ttl=self.ttl, strict=True))
        if plan.removed:
            run(RemoveMany(self.collection, plan.removed))

    def _prolong(self, run: Run, there: set[str], plan: SkillPlan) -> None:
        """Have all of a session live as long as what was saved last."""
        if self.ttl is not None:
            left = sorted(there - plan.written.keys() - set(plan.removed))
            run(TouchMany(self.collection, tuple(left), self.ttl))

    def _end(self, run: Run, session: str) -> int:
        run(RemoveById(self.collection, header_of(session)))  # who saves meanwhile meets this first
        found = run(DeleteMatching(self.collection, Filter.parse(all_of(session))))
        return int(found.deleted_count)


class SkillMemory:
    """What the skills of a session remember: `store.skill_memory()`.

    A memory has a name, a value, perhaps a session_id of its own, and a scope: PRIVATE (which None means too) is
    for the skill that made it, PUBLIC for all skills of the session. Name, session_id and scope tell which it is.
    Memories are dicts, or objects with these attributes; `load` makes what `model` makes of them. Values are those
    of `Memory`, and come back as they were.

    `policy` says what becomes of a PUBLIC memory that a skill changes though another one made it: "creator" leaves
    it as it is, "anyone" changes it, "raise" raises `NotTheCreator`. `ttl`: seconds, or a timedelta, after which a
    session is gone if nobody saves.

    >>> with Store("sqlite://") as store:
    ...     skills = store.skill_memory()
    ...     name = {"name": "name", "value": "Ada", "scope": "PUBLIC"}
    ...     count = skills.save("session 1", "greeter", [name, {"name": "greeted", "value": True}])
    ...     [each["value"] for each in skills.load("session 1", "weather")]
    ['Ada']
    """

    def __init__(
        self,
        scope: MemoryHost,
        collection: str = SKILL_MEMORY,
        *,
        policy: Policy = "creator",
        model: Callable[..., Any] | None = None,
        ttl: Ttl = None,
    ) -> None:
        self._scope = scope
        self._keeping = Keeping.of(collection, scope._codec, policy=policy, model=model, ttl=ttl)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self._keeping.collection!r}, policy={self._keeping.policy!r})"
        )

    def load(self, session: str, skill: str) -> list[Any]:
        """Return what a skill is shown: what is PRIVATE to it, and all that is PUBLIC in the session, in the order
        in which it came into being.

        >>> with Store("sqlite://") as store:
        ...     count = store.skill_memory().save("session 1", "weather", [{"name": "city", "value": "Bonn"}])
        ...     store.skill_memory().load("session 1", "weather")
        [{'name': 'city', 'value': 'Bonn', 'session_id': None, 'scope': 'PRIVATE'}]
        """
        return self._keeping.shown(self._scope.run(self._keeping.load(session, skill)))

    def save(self, session: str, skill: str, memories: Iterable[Any]) -> int:
        """Do what a skill's response asks; returns how many memories were written or deleted. It takes place as
        one, and so that skills that save at once do not lose each other's.

        What is PRIVATE to the skill and not in `memories` is deleted, so a list must be given, even an empty one;
        what is PUBLIC stays for as long as the session, and can only be given a value such as None. Of several
        memories that are the same the last counts. Raises `NotTheCreator`, `InvalidOption` and `InvalidBody`; then
        nothing is written.

        >>> with Store("sqlite://") as store:
        ...     skills = store.skill_memory()
        ...     count = skills.save("session 1", "weather", [{"name": "city", "value": "Bonn"}])
        ...     skills.save("session 1", "weather", [])
        1
        """
        count: int = self._scope.run(self._keeping.save(session, skill, memories))
        return count

    def end_session(self, session: str) -> int:
        """Delete all memories of a session, and of no other; returns how many.

        >>> with Store("sqlite://") as store:
        ...     count = store.skill_memory().save("session 1", "weather", [{"name": "city", "value": "Bonn"}])
        ...     store.skill_memory().end_session("session 1")
        1
        """
        count: int = self._scope.run(self._keeping.end(session))
        return count
