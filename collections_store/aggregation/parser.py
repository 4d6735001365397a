"""Pipeline parser: accepts the pipelines of MongoDB's server; an error names the place of anything else.

The parser of a stage stands beside the code that runs the stage. `STAGES` of `table` declares all stages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

from .. import codec
from ..codec import Codec
from ..errors import InvalidBody, InvalidFilter, InvalidPipeline, shortened
from ..expressions.classes import value_class
from ..expressions.collation import Ordered
from ..expressions.language import ABSENT
from ..expressions.nodes import Node
from ..expressions.operand_parser import MAX_NESTING
from ..expressions.parser import ExpressionParser
from ..query.conditions import holds_text
from ..query.filter import Filter
from ..query.parser import FilterParser
from . import stages
from .stages import PlacedStage, Stage

MAX_STAGES: Final = 200
"""Stages of a pipeline, including those within stages: each takes a call or two for every row."""
MAX_LEVELS: Final = 20
"""Levels of pipelines within stages; MongoDB's limit for `$lookup`."""
_SHARED: Final = 256
_SHORT: Final = 2000
"""Characters of the JSON of a shared stage, at most."""
Where: TypeAlias = Literal["inner", "facet", "changes", "update"]
"""Where a stage may stand besides the end of a pipeline: in a pipeline at any place, in a `$facet`, over change documents,
and in an update or a `$merge`.
"""


@value_class
class DeclaredStage:
    """A stage as it is declared.

    `holds_filters`: the operand may hold values outside JSON, such as a `Filter`. `makes_id` returns whether `_id` is a
    field behind the stage, no longer the id of the documents. `is_shared`: pipelines share the
    parsed stage, which without a `$text` depends on the operand's JSON, the place and the names of the variables only.
    """

    parse: Callable[[PipelineParser, Any, str], Stage | list[Stage]]
    where: frozenset[Where] = frozenset({"inner", "facet"})
    holds_filters: bool = False
    makes_id: Callable[[Any], bool] = lambda _: False
    is_shared: bool = False


class PipelineParser:
    """Parser of pipelines, with the codec of one store and the stages of a table."""

    def __init__(
        self,
        declared: Mapping[str, DeclaredStage],
        codec: Codec,
        variables: frozenset[str] = frozenset(),
        depth: int = 0,
        *,
        names_id: bool = True,
        ordered: Ordered = True,
    ) -> None:
        self._declared, self._codec = declared, codec
        self.variables, self.depth, self.ordered = variables, depth, ordered
        self.expressions = ExpressionParser(InvalidPipeline, variables)
        self.expressions.ordered = ordered
        self._left = MAX_STAGES
        self.names_id = names_id
        """Whether `_id` is the id of the rows' documents; else it is a field, as a `$group` makes it."""

    def steps(self, pipeline: Any, place: str = "") -> tuple[PlacedStage, ...]:
        if not isinstance(pipeline, list | tuple):
            problem = f"a pipeline must be a list of stages, got {shortened(pipeline)}"
            raise InvalidPipeline(place, problem)
        found: list[PlacedStage] = []
        for number, each in enumerate(pipeline):
            found.extend(self._step(each, f"{place}.{number}" if place else str(number)))
            if self.expressions.scores is None and _finds_words(found[-1]):
                self.expressions.scores = []
        _check_words(found, is_inner=bool(place))
        for step in found if place else found[:-1]:
            if not self.allows(step, "inner"):
                raise InvalidPipeline(step.place, "must be the last stage of the whole pipeline")
        return tuple(found)

    @property
    def scored(self) -> bool:
        """Whether the stages read the score of a `$text`."""
        return bool(self.expressions.scores)

    def allows(self, step: PlacedStage, where: Where) -> bool:
        """Return whether a stage may stand in a place."""
        return where in self._declared[step.name].where

    def _step(self, stage: Any, place: str) -> list[PlacedStage]:
        self._left -= 1
        if self._left < 0:
            raise InvalidPipeline(place, f"there are more than {MAX_STAGES} stages")
        is_document = type(stage) is dict or isinstance(stage, Mapping)
        if not is_document or len(stage) != 1:
            problem = f"a stage must be a document of one key, got {shortened(stage)}"
            raise InvalidPipeline(place, problem)
        ((name, operand),) = stage.items()
        here = f"{place}.{name}"
        declared = self._declared.get(name)
        if declared is None:
            known = name in ABSENT["stages"]
            raise InvalidPipeline(here, "this stage is not supported" if known else "no such stage")
        text = None if declared.holds_filters else self._spelled(operand, here)
        if text is None:
            found = declared.parse(self, operand, here)
        elif declared.is_shared and len(text) <= _SHORT and self._can_share(text):
            found = _shared(declared, text, here, self.variables)
        else:
            operand = self._decoded(text, here)
            found = declared.parse(self, operand, here)
        self.names_id = self.names_id and not declared.makes_id(operand)
        return [PlacedStage(here, each) for each in (found if isinstance(found, list) else [found])]

    def _can_share(self, text: str) -> bool:
        """Return whether a stage depends on no more than its text, its place and the names of the variables."""
        expressions = self.expressions
        values = any(f'"$${name}' in text for name in expressions.values)
        return expressions.scores is None and expressions.ordered is True and not values

    def plain(self, operand: Any, place: str) -> Any:
        """Return an operand as JSON values."""
        return self._decoded(self._spelled(operand, place), place)

    def _spelled(self, operand: Any, place: str) -> str:
        """Return the JSON text of an operand."""
        try:
            return self._codec.encode(operand)
        except InvalidBody as error:
            where = f"{place}.{error.path}" if error.path else place
            raise InvalidPipeline(where, error.problem) from error

    def _decoded(self, text: str, place: str) -> Any:
        plain = codec.decode(text)
        if text.count("{") + text.count("[") > MAX_NESTING:
            self.expressions.check_nesting(plain, place)
        return plain

    def match(self, operand: Any, place: str) -> stages.Match:
        """Parse the operand of `$match`."""
        if isinstance(operand, Filter):
            return stages.Match(operand)
        try:
            variables, names_id = self.variables, self.names_id
            if type(operand) is dict and names_id and not variables:
                return stages.Match(Filter.parse(operand, codec=self._codec))
            parser = FilterParser(self._codec, variables=variables, names_id=names_id)
            return stages.Match(Filter(parser.document(operand)))
        except InvalidFilter as error:
            where = f"{place}.{error.place}" if error.place else place
            raise InvalidPipeline(where, error.problem) from error

    def let(self, operand: Mapping[str, Any], place: str) -> tuple[tuple[str, Node], ...]:
        """Return the variables of a stage for the pipeline within it."""
        given = self.plain(operand.get("let", {}), f"{place}.let")
        if isinstance(given, dict) and "CURRENT" in given:
            raise InvalidPipeline(f"{place}.let.CURRENT", "must not be redefined")
        return self.expressions.variables(given, f"{place}.let")

    def inner(
        self, pipeline: Any, variables: tuple[tuple[str, Node], ...], place: str
    ) -> tuple[tuple[PlacedStage, ...], bool]:
        """Return the stages of a pipeline within a stage, and whether `_id` is the id of the rows' documents there."""
        names = {name for name, _ in variables}
        inner = self.of_stage(names)
        return self._counted(inner, pipeline, place), inner.names_id

    def of_stage(self, names: Collection[str] = ()) -> PipelineParser:
        """Return a parser of a pipeline within a stage; `names`: variables of the stage."""
        variables, values = self.variables.union(names), self.expressions.values
        inner = PipelineParser(
            self._declared, self._codec, variables, self.depth + 1, ordered=self.ordered
        )
        inner.expressions.values = {n: each for n, each in values.items() if n not in names}
        return inner

    def of_same_rows(self, pipeline: Any, place: str) -> tuple[PlacedStage, ...]:
        """Return the stages of a pipeline within a stage over the rows of the stage itself."""
        inner = self.of_stage()
        inner.names_id, inner.expressions.scores = self.names_id, self.expressions.scores
        return self._counted(inner, pipeline, place)

    def _counted(self, inner: PipelineParser, pipeline: Any, place: str) -> tuple[PlacedStage, ...]:
        if self.depth == MAX_LEVELS:
            raise InvalidPipeline(place, f"more than {MAX_LEVELS} pipelines within each other")
        inner._left = self._left
        steps = inner.steps(pipeline, place)
        self._left = inner._left
        return steps


@lru_cache(maxsize=_SHARED)
def _shared(
    declared: DeclaredStage, text: str, place: str, variables: frozenset[str]
) -> Stage | list[Stage]:
    """Parse a stage, or return the same object as before: the caches of what stages read then compare no parts of it. No
    result has a part of a stage.
    """
    parser = PipelineParser({}, Codec(), variables)
    return declared.parse(parser, parser._decoded(text, place), place)


def _check_words(steps: list[PlacedStage], *, is_inner: bool) -> None:
    """Raise `InvalidPipeline` for a `$text` behind the leading `$match` stages, or in a pipeline within a stage."""
    behind = is_inner
    for step in steps:
        if not isinstance(step.stage, stages.Match):
            behind = True
        elif behind and _finds_words(step):
            raise InvalidPipeline(f"{step.place}.$text", "must be in the first stage, a $match")


def _finds_words(step: PlacedStage) -> bool:
    if not isinstance(step.stage, stages.Match) or step.stage.filter.plain:
        return False
    return holds_text(step.stage.filter.condition)
