"""The memories of a session's skills on the disk: read and written within a transaction.

Each session has one object that counts what was saved in it. Who writes counts first, on top of what was read
before all else; if somebody else has counted meanwhile, the whole transaction is run again. So what skills save at
once comes to the same as one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..codec import Codec
from ..document import Document, check_name
from ..errors import InvalidOption, TransactionConflict, VersionConflict, shortened
from ..expiry import read_ttl
from ..filter import Filter
from ..operations import (
    DeleteMany,
    Find,
    GetDocument,
    Given,
    Insert,
    PutBatch,
    Remove,
    RemoveMany,
    Rewrite,
    Touch,
    Work,
    batches,
)
from .skill_values import (
    Plan,
    Policy,
    Response,
    Skill,
    all_of,
    check_named,
    check_policy,
    header_of,
    shown,
)

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
        if plan or self.ttl is not None:
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

    def _write(self, run: Run, plan: Plan) -> None:
        given = (Given(place, *each) for place, each in enumerate(plan.written.items()))
        for batch in batches(given):
            run(PutBatch(self.collection, batch, ttl=self.ttl, strict=True))
        if plan.removed:
            run(RemoveMany(self.collection, plan.removed))

    def _prolong(self, run: Run, there: set[str], plan: Plan) -> None:
        """Have all of a session live as long as what was saved last."""
        if self.ttl is not None:
            for id in sorted(there - plan.written.keys() - set(plan.removed)):
                run(Touch(self.collection, id, self.ttl))

    def _end(self, run: Run, session: str) -> int:
        run(Remove(self.collection, header_of(session)))  # who saves meanwhile meets this first
        found = run(DeleteMany(self.collection, Filter.parse(all_of(session))))
        return int(found.deleted_count)
