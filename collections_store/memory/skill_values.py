"""What a platform's rules make of the memories in a skill's response: nothing here knows a database.

The rules are those of Soul Machines: a skill is shown what is PRIVATE to it and all that is PUBLIC in the session;
what is PRIVATE and not in its response is deleted, what is PUBLIC stays; only the skill that made a memory changes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from ..codec import Codec, decode
from ..document import Document, check_id
from ..errors import InvalidBody, InvalidId, InvalidOption, NotTheCreator, shortened
from ..values import equal, identical
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
class Plan:
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

    def plan(self, there: Iterable[Document], policy: Policy, codec: Codec) -> Plan:
        """Return what to do where there are these memories, of all skills; raises `NotTheCreator`."""
        known = {each.id: each.body for each in there}
        written = {}
        for id, body in self.bodies.items():
            changed = self._changed(known.get(id), body, policy)
            if changed is not None:
                written[id] = codec.encode(changed)
        removed = [id for id, body in known.items() if id not in self.bodies and self._owns(body)]
        return Plan(written, removed)

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
