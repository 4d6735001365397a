"""Pipelines over change documents: stages over single documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final

from ..codec import Codec
from ..codec.times import iso
from ..document import Anonymous, moment, now
from ..errors import InvalidPipeline
from ..expressions.nodes import Meta, nodes_of
from ..query.conditions import Field, Metadata, Text, leaves
from ..query.filter import Filter
from ..query.matcher import matches
from . import stages
from .parser import PipelineParser
from .pipeline import run
from .rows import Context, NoCollections, placed
from .stages import PlacedStage
from .table import STAGES, allowed

_HEAD: Final = {
    (key,) for key in ("operationType", "wallTime", "ns", "documentKey", "version", "expired")
}
"""The fields of a change document, but for `_id` and the bodies."""


@dataclass(frozen=True, slots=True)
class ChangePipeline:
    """Stages over change documents. `$$NOW` is the `time` at which the pipeline was parsed, in microseconds.

    >>> pipeline = ChangePipeline.parse([{"$match": {"operationType": "insert"}}, {"$set": {"n": 1}}], Codec())
    >>> pipeline.result({"_id": "token", "operationType": "insert"})
    {'_id': 'token', 'operationType': 'insert', 'n': 1}
    >>> pipeline.result({"_id": "token", "operationType": "delete"})
    """

    steps: tuple[PlacedStage, ...] = ()
    time: int = field(default_factory=now)
    _now: str = field(init=False, compare=False, repr=False)
    _leading: tuple[tuple[str, stages.Match], ...] = field(init=False, compare=False, repr=False)
    """The first `$match` stages, which need no generators, and their places."""
    _later: tuple[PlacedStage, ...] = field(init=False, compare=False, repr=False)
    _of_heads: tuple[Filter, ...] = field(init=False, compare=False, repr=False)
    """The filters of the first `$match` stages that read no bodies."""

    def __post_init__(self) -> None:
        leading: list[tuple[str, Any]] = [
            (step.place, step.stage)
            for step in takewhile(lambda step: isinstance(step.stage, stages.Match), self.steps)
        ]
        object.__setattr__(self, "_now", iso(moment(self.time)))
        object.__setattr__(self, "_leading", tuple(leading))
        object.__setattr__(self, "_later", self.steps[len(leading) :])
        filters = (match.filter for _, match in leading)
        object.__setattr__(self, "_of_heads", tuple(takewhile(_reads_no_body, filters)))

    @classmethod
    def parse(cls, pipeline: Any, codec: Codec) -> ChangePipeline:
        """Parse a list of stages; raise `InvalidPipeline`, which names the place."""
        parser = PipelineParser(STAGES, codec, names_id=False)
        steps = parser.steps(pipeline)
        for step in steps:
            if not parser.allows(step, "changes"):
                problem = f"changes pass these stages only: {', '.join(allowed('changes'))}"
                raise InvalidPipeline(step.place, problem)
            if isinstance(step.stage, stages.Match):
                _check_match(step.place, step.stage)
        return cls(steps)

    def result(self, document: dict[str, Any], *, ordered: bool = True) -> dict[str, Any] | None:
        """Return the result of the stages for a change document; None if a stage leaves the document out.

        `ordered`: the order of an object's keys counts. Raise `InvalidOperand`, `MemoryLimitExceeded`, and
        `InvalidPipeline` if the result has another `_id`.
        """
        row, variables = Anonymous(document), {"NOW": self._now}
        for place, match in self._leading:
            with placed(place):
                if not matches(match.filter, row, ordered=ordered, variables=variables):
                    return None
        if not self._later:
            return document
        context = Context(NoCollections(), ordered=ordered, variables=variables)
        found = next(run(self._later, [row], context), None)
        if found is None:
            return None
        result: dict[str, Any] = found.body
        if result.get("_id") != document["_id"]:
            problem = "the stages must keep _id, the token of a change, by which a stream continues"
            raise InvalidPipeline("", problem)
        return result

    @property
    def reads_heads(self) -> bool:
        """Whether the first `$match` reads no bodies, so that `leaves_out` may be true."""
        return bool(self._of_heads)

    def leaves_out(self, head: dict[str, Any], *, ordered: bool = True) -> bool:
        """Return whether `result` is None for a change document, given without `_id` and bodies. If false, `result` decides."""
        row = Anonymous(head)
        return not all(matches(each, row, ordered=ordered) for each in self._of_heads)


def _reads_no_body(filter: Filter) -> bool:
    return all(
        isinstance(each, Field) and each.path.keys[:1] in _HEAD for each in leaves(filter.condition)
    )


def _check_match(place: str, match: stages.Match) -> None:
    for part in nodes_of(match.filter.condition):
        if isinstance(part, Text):
            raise InvalidPipeline(f"{place}.$text", "changes are in no text index")
        if isinstance(part, Metadata | Meta):
            problem = "a change document has the id as documentKey._id, and the version as version"
            raise InvalidPipeline(f"{place}.${part.field}", problem)
