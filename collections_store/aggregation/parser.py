"""Pipeline parser: accepts the pipelines of MongoDB's server; an error names the place of anything else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, get_args

from .. import codec
from ..codec import Codec
from ..document import check_name
from ..errors import (
    InvalidBody,
    InvalidFilter,
    InvalidName,
    InvalidPipeline,
    InvalidSort,
    shortened,
)
from ..expressions.nodes import Constant, Node
from ..expressions.parser import MAX_NESTING, ExpressionParser, check_keys
from ..expressions.path import Path
from ..expressions.values import is_number
from ..query.conditions import holds_text, read_target
from ..query.filter import Filter
from ..query.parser import FilterParser
from ..query.sort import BY_SCORE, Sort
from . import stages
from .stages import Accumulator, Entry, Keys, Named, PlacedStage, Side, Stage, Tree

MAX_STAGES: Final = 200
"""Stages of a pipeline, including those in `$lookup`: each takes a call or two for every row."""
MAX_LOOKUPS: Final = 20
"""Levels of nested `$lookup`; MongoDB's limit."""
_ACCUMULATORS: Final = frozenset(get_args(stages.AccumulatorName))
_UNSUPPORTED: Final = frozenset({
    "$bucket", "$bucketAuto", "$changeStream", "$collStats", "$currentOp", "$densify", "$documents",
    "$facet", "$fill", "$geoNear", "$graphLookup", "$indexStats", "$listSessions", "$merge", "$out",
    "$planCacheStats", "$redact", "$sample", "$search", "$searchMeta", "$setWindowFields",
    "$unionWith", "$vectorSearch",
})  # fmt: skip
_UNSUPPORTED_ACCUMULATORS: Final = frozenset({
    "$accumulator", "$bottom", "$bottomN", "$concatArrays", "$firstN", "$lastN", "$maxN", "$median",
    "$mergeObjects", "$minN", "$percentile", "$setUnion", "$stdDevPop", "$stdDevSamp", "$top",
    "$topN",
})  # fmt: skip
_MAX_COUNT: Final = 2**63 - 1


def _check_words(steps: list[PlacedStage], *, is_inner: bool) -> None:
    """Raise `InvalidPipeline` for a `$text` behind the leading `$match` stages, or in the pipeline of a `$lookup`."""
    behind = is_inner
    for step in steps:
        if not isinstance(step.stage, stages.Match):
            behind = True
        elif behind and _finds_words(step):
            raise InvalidPipeline(f"{step.place}.$text", "must be in the first stage, a $match")


def _finds_words(step: PlacedStage) -> bool:
    return isinstance(step.stage, stages.Match) and holds_text(step.stage.filter.condition)


class PipelineParser:
    """Parser of pipelines, with the codec of one store."""

    def __init__(
        self, codec: Codec, variables: frozenset[str] = frozenset(), depth: int = 0
    ) -> None:
        self._codec, self._variables, self._depth = codec, variables, depth
        self._expressions = ExpressionParser(InvalidPipeline, variables)
        self._left = MAX_STAGES
        self._names_id = True
        """Whether `_id` is the id of the rows' documents; else it is a field, as a `$group` makes it."""

    def steps(self, pipeline: Any, place: str = "") -> tuple[PlacedStage, ...]:
        if not isinstance(pipeline, list | tuple):
            problem = f"a pipeline must be a list of stages, got {shortened(pipeline)}"
            raise InvalidPipeline(place, problem)
        found: list[PlacedStage] = []
        for number, each in enumerate(pipeline):
            found.extend(self._step(each, f"{place}.{number}" if place else str(number)))
            if self._expressions.scores is None and _finds_words(found[-1]):
                self._expressions.scores = []
            self._names_id = self._names_id and not _makes_id(each)
        _check_words(found, is_inner=bool(place))
        return tuple(found)

    @property
    def scored(self) -> bool:
        """Whether the stages read the score of a `$text`."""
        return bool(self._expressions.scores)

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
        if name in _UNSUPPORTED:
            raise InvalidPipeline(here, "this stage is not supported")
        reader = _READERS.get(name)
        if reader is None:
            raise InvalidPipeline(here, "no such stage")
        if name not in {"$match", "$lookup"}:
            operand = self._plain(operand, here)
        found = reader(self, operand, here)
        return [PlacedStage(here, each) for each in (found if isinstance(found, list) else [found])]

    def _plain(self, operand: Any, place: str) -> Any:
        try:
            text = self._codec.encode(operand)
        except InvalidBody as error:
            where = f"{place}.{error.path}" if error.path else place
            raise InvalidPipeline(where, error.problem) from error
        plain = codec.decode(text)
        if text.count("{") + text.count("[") > MAX_NESTING:
            self._expressions.check_nesting(plain, place)
        return plain

    def _match(self, operand: Any, place: str) -> Stage:
        if isinstance(operand, Filter):
            return stages.Match(operand)
        try:
            variables, names_id = self._variables, self._names_id
            if type(operand) is dict and names_id and not variables:
                return stages.Match(Filter.parse(operand, codec=self._codec))
            parser = FilterParser(self._codec, variables=variables, names_id=names_id)
            return stages.Match(Filter(parser.document(operand)))
        except InvalidFilter as error:
            where = f"{place}.{error.place}" if error.place else place
            raise InvalidPipeline(where, error.problem) from error

    def _project(self, operand: Any, place: str) -> Stage:
        """Parse `$project`: either included and computed fields, or excluded fields. `_id` is included by default."""
        leaves = list(self._leaves(_fields(operand, place), (), place, flags=True))
        others = [leaf for keys, leaf, _ in leaves if keys != ("_id",)]
        id_leaf = next((leaf for keys, leaf, _ in leaves if keys == ("_id",)), None)
        includes = others[0] is not False if others else id_leaf is not False
        for keys, leaf, here in leaves:
            is_neutral = keys == ("_id",) and (includes or leaf is True)
            if (leaf is False) is includes and not is_neutral:
                raise InvalidPipeline(here, "included and excluded fields do not mix")
        _tree([(keys, Named(), here) for keys, _, here in leaves])  # none is named twice
        if not includes:
            return stages.ExcludeFields(
                _tree([(k, Named(), at) for k, leaf, at in leaves if leaf is False])
            )
        chosen = [each for each in leaves if each[1] is not False]
        named = [(k, Named() if leaf is True else leaf, at) for k, leaf, at in chosen]
        if id_leaf is None and not any(keys[0] == "_id" for keys, _, _ in leaves):
            named.insert(0, (("_id",), Named(), place))
        return stages.Project(_tree(named))

    def _add_fields(self, operand: Any, place: str) -> Stage:
        if operand == {}:
            return stages.AddFields(Tree(()))
        return stages.AddFields(
            _tree(self._leaves(_fields(operand, place), (), place, flags=False))
        )

    def _leaves(
        self, document: dict[str, Any], above: Keys, place: str, *, flags: bool
    ) -> Iterator[tuple[Keys, Any, str]]:
        """Yield paths, expressions and places; `flags`: a number or boolean includes or excludes the field."""
        for key, value in document.items():
            here = f"{place}.{key}"
            keys = (*above, *_path(key, here))
            if isinstance(value, dict) and not next(iter(value), "$" * (not flags)).startswith("$"):
                if not value:
                    raise InvalidPipeline(here, "must not be an empty object: use $literal")
                yield from self._leaves(value, keys, here, flags=flags)
            elif flags and isinstance(value, bool | int | float):
                yield keys, bool(value), here
            else:
                yield keys, self._expressions.parse(value, here), here

    def _unset(self, operand: Any, place: str) -> Stage:
        fields = operand if isinstance(operand, list) else [operand]
        if not fields:
            raise InvalidPipeline(place, "must be a field or a list of fields")
        return stages.ExcludeFields(
            _tree((_path(each, place), Named(), f"{place}.{each}") for each in fields)
        )

    def _sort(self, operand: Any, place: str) -> Stage:
        if not isinstance(operand, dict) or not operand:
            raise InvalidPipeline(place, "must be a document of fields and 1 or -1")
        try:
            named = {self._sorted_by(name): direction for name, direction in operand.items()}
            order = Sort.parse(named, scored=True)
        except InvalidFilter as error:
            raise InvalidPipeline(f"{place}.{error.place}", error.problem) from error
        except InvalidSort as error:
            where = f"{place}.{error.field}" if error.field else place
            raise InvalidPipeline(where, error.problem) from error
        if order.by_score:
            self._expressions.parse(BY_SCORE, place)  # needs a `$text`, too
        return stages.SortRows(order)

    def _group(self, operand: Any, place: str) -> Stage:
        if not isinstance(operand, dict) or "_id" not in operand:
            raise InvalidPipeline(place, "must be a document with _id, the expression to group by")
        found = [
            (_name(name, f"{place}.{name}"), self._accumulator(each, f"{place}.{name}"))
            for name, each in operand.items()
            if name != "_id"
        ]
        key, here = operand["_id"], f"{place}._id"
        for name, each in key.items() if isinstance(key, dict) else ():
            # in MongoDB a number or boolean in it would look as if a field was chosen
            if isinstance(each, bool | int | float) and not name.startswith("$"):
                problem = f"{shortened(each)} does not choose a field: name it ('${name}'), or use $literal"
                raise InvalidPipeline(f"{here}.{name}", problem)
        return stages.Group(self._expressions.parse(key, here), tuple(found))

    def _accumulator(self, operand: Any, place: str) -> Accumulator:
        if not isinstance(operand, dict) or len(operand) != 1:
            raise InvalidPipeline(place, "must be one accumulator, such as {'$sum': '$price'}")
        ((name, value),) = operand.items()
        here = f"{place}.{name}"
        if name == "$count":
            if value != {}:
                raise InvalidPipeline(here, "takes an empty document")
            return Accumulator("$sum", Constant.of(1))
        if name not in _ACCUMULATORS:
            known = name in _UNSUPPORTED_ACCUMULATORS
            problem = "this accumulator is not supported" if known else "no such accumulator"
            raise InvalidPipeline(here, problem)
        if isinstance(value, list):
            raise InvalidPipeline(here, "takes one operand, got a list")
        return Accumulator(name, self._expressions.parse(value, here))

    def _unwind(self, operand: Any, place: str) -> Stage:
        given = operand if isinstance(operand, dict) else {"path": operand}
        optional = "includeArrayIndex", "preserveNullAndEmptyArrays"
        self._expressions.named(given, place, ("path",), optional)
        dotted, preserve = given["path"], given.get("preserveNullAndEmptyArrays", False)
        if not isinstance(dotted, str) or not dotted.startswith("$"):
            problem = f"the path must begin with $, as in '$tags', got {shortened(dotted)}"
            raise InvalidPipeline(place, problem)
        if not isinstance(preserve, bool):
            raise InvalidPipeline(f"{place}.preserveNullAndEmptyArrays", "must be true or false")
        index = given.get("includeArrayIndex")
        keys = None if index is None else _path(index, f"{place}.includeArrayIndex")
        return stages.Unwind(_path(dotted[1:], place), keys, preserve)

    def _sorted_by(self, name: str) -> str | Path:
        is_field = name.startswith("_id") and not self._names_id
        return Path.parse(name) if is_field else name

    def _sort_by_count(self, operand: Any, place: str) -> list[Stage]:
        first = next(iter(operand), "") if isinstance(operand, dict) else operand
        if not isinstance(first, str) or not first.startswith("$"):
            raise InvalidPipeline(place, "must be a path that begins with $, or an operator")
        fields = (("count", Accumulator("$sum", Constant.of(1))),)
        group = stages.Group(self._expressions.parse(operand, place), fields)
        return [group, stages.SortRows(Sort.parse({"count": -1}))]

    def _replace_root(self, operand: Any, place: str) -> Stage:
        if not isinstance(operand, dict) or set(operand) != {"newRoot"}:
            raise InvalidPipeline(place, "must be a document of newRoot")
        return self._replace_with(operand["newRoot"], f"{place}.newRoot")

    def _replace_with(self, operand: Any, place: str) -> Stage:
        return stages.ReplaceRoot(self._expressions.parse(operand, place))

    def _lookup(self, operand: Any, place: str) -> Stage:
        optional = "localField", "foreignField", "let", "pipeline"
        self._expressions.named(operand, place, ("from", "as"), optional)
        try:
            collection = check_name(operand["from"])
        except InvalidName as error:
            raise InvalidPipeline(f"{place}.from", str(error)) from None
        local, foreign = (
            _side(operand[name], f"{place}.{name}", names_id) if name in operand else None
            for name, names_id in (("localField", self._names_id), ("foreignField", True))
        )
        if (local is None) != (foreign is None) or (local is None and "pipeline" not in operand):
            problem = "requires localField and foreignField, or pipeline, or all three"
            raise InvalidPipeline(place, problem)
        if "let" in operand and "pipeline" not in operand:
            raise InvalidPipeline(f"{place}.let", "requires pipeline")
        given = self._plain(operand.get("let", {}), f"{place}.let")
        variables = self._expressions.variables(given, f"{place}.let")
        if "CURRENT" in given:
            raise InvalidPipeline(f"{place}.let.CURRENT", "must not be redefined")
        into = _path(operand["as"], f"{place}.as")
        steps = self._inner(operand.get("pipeline", []), variables, f"{place}.pipeline")
        return stages.Lookup(collection, into, local, foreign, variables, steps)

    def _inner(
        self, pipeline: Any, variables: tuple[tuple[str, Node], ...], place: str
    ) -> tuple[PlacedStage, ...]:
        if self._depth == MAX_LOOKUPS:
            raise InvalidPipeline(place, f"more than {MAX_LOOKUPS} $lookup within each other")
        names = {name for name, _ in variables}
        inner = PipelineParser(self._codec, self._variables | names, self._depth + 1)
        inner._left = self._left
        steps = inner.steps(pipeline, place)
        self._left = inner._left
        return steps


_READERS: Final[Mapping[Any, Callable[[PipelineParser, Any, str], Stage | list[Stage]]]] = {
    "$match": PipelineParser._match,
    "$project": PipelineParser._project,
    "$addFields": PipelineParser._add_fields,
    "$set": PipelineParser._add_fields,
    "$unset": PipelineParser._unset,
    "$sort": PipelineParser._sort,
    "$skip": lambda _parser, operand, place: stages.Skip(_integer(operand, 0, place)),
    "$limit": lambda _parser, operand, place: stages.Limit(_integer(operand, 1, place)),
    "$count": lambda _parser, operand, place: stages.CountRows(_name(operand, place)),
    "$group": PipelineParser._group,
    "$unwind": PipelineParser._unwind,
    "$sortByCount": PipelineParser._sort_by_count,
    "$replaceRoot": PipelineParser._replace_root,
    "$replaceWith": PipelineParser._replace_with,
    "$lookup": PipelineParser._lookup,
}


def _path(dotted: Any, place: str) -> Keys:
    """Parse the dotted name of a field, without `$`."""
    if not isinstance(dotted, str):
        raise InvalidPipeline(place, f"must be the name of a field, got {shortened(dotted)}")
    keys = tuple(dotted.split("."))
    check_keys(keys, place, InvalidPipeline)
    return keys


def _makes_id(stage: Mapping[str, Any]) -> bool:
    """Return whether a stage makes rows of its own, or a field `_id`."""
    ((name, operand),) = stage.items()
    if name in {"$addFields", "$set", "$project"} and "_id" in operand:
        return name != "$project" or not isinstance(operand["_id"], int | float)
    return name in {"$group", "$sortByCount", "$count", "$replaceRoot", "$replaceWith"}


def _side(dotted: Any, place: str, names_id: bool) -> Side:
    """Parse a field of `$lookup`: a path, or metadata such as `$id`."""
    special = ("$", "_id") if names_id else ("$",)
    if not isinstance(dotted, str) or not dotted.startswith(special):
        return _path(dotted, place)
    try:
        target = read_target(dotted, InvalidPipeline, place)
    except InvalidFilter as error:  # no path
        raise InvalidPipeline(place, error.problem) from None
    return target.keys if isinstance(target, Path) else target


def _fields(operand: Any, place: str) -> dict[str, Any]:
    if not isinstance(operand, dict) or not operand:
        problem = f"must be a document with at least one field, got {shortened(operand)}"
        raise InvalidPipeline(place, problem)
    return operand


def _tree(leaves: Iterable[tuple[Keys, Entry, str]]) -> Tree:
    """Return the leaves as a tree; two for the same field are an error."""
    root: dict[str, Any] = {}
    for keys, entry, place in leaves:
        *above, last = keys
        fields = root
        for key in above:
            fields = fields.setdefault(key, {})
            if not isinstance(fields, dict):
                raise InvalidPipeline(place, "this field, or one above it, was named before")
        if last in fields:
            raise InvalidPipeline(place, "this field, or one below it, was named before")
        fields[last] = entry
    return _as_tree(root)


def _as_tree(fields: dict[str, Any]) -> Tree:
    pairs = ((k, _as_tree(v) if isinstance(v, dict) else v) for k, v in fields.items())
    return Tree(tuple(pairs))


def _integer(value: Any, least: int, place: str) -> int:
    if not is_number(value) or value != value // 1 or not least <= value < _MAX_COUNT:
        raise InvalidPipeline(place, f"must be an integer from {least} on, got {shortened(value)}")
    return int(value)


def _name(name: Any, place: str) -> str:
    if not isinstance(name, str) or not name or name.startswith("$") or "." in name:
        problem = (
            f"{shortened(name)}: a field's name is not empty, has no dot and does not begin with $"
        )
        raise InvalidPipeline(place, problem)
    return name
