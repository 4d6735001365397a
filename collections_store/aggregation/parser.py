"""Pipeline parser: what MongoDB's server accepts. An error names the path of everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
from ..query.conditions import read_target
from ..query.filter import Filter
from ..query.parser import FilterParser as FilterParser
from ..query.path import MAX_KEYS, Path
from ..query.sort import Sort
from .expressions.nodes import Constant, Node
from .expressions.parser import ExpressionParser
from .stages import (
    Accumulator,
    AccumulatorName,
    AddFields,
    CountRows,
    Entry,
    Group,
    Keys,
    LeaveOut,
    Limit,
    Lookup,
    Match,
    Named,
    PlacedStage,
    Project,
    ReplaceRoot,
    Side,
    Skip,
    SortRows,
    Stage,
    Tree,
    Unwind,
)

Leaf = bool | Node
Leaves = list[tuple[Keys, Leaf, str]]


def path(dotted: Any, place: str) -> Keys:
    """Read the dotted name of a field, without `$`."""
    if not isinstance(dotted, str):
        raise InvalidPipeline(place, f"must be the name of a field, got {shortened(dotted)}")
    keys = tuple(dotted.split("."))
    if not all(keys) or any(key.startswith("$") or "\0" in key for key in keys):
        raise InvalidPipeline(
            place, f"must be a path without empty keys and keys with $, got {shortened(dotted)}"
        )
    if len(keys) > MAX_KEYS:
        raise InvalidPipeline(place, f"a path has at most {MAX_KEYS} keys")
    return keys


def side(dotted: Any, place: str) -> Side:
    """Read a field that `$lookup` compares: a path, or `$id` and the like."""
    if not isinstance(dotted, str) or not dotted.startswith("$"):
        return path(dotted, place)
    try:
        target = read_target(dotted, InvalidPipeline, place)
    except InvalidFilter as error:  # no path
        raise InvalidPipeline(place, error.problem) from None
    return target.keys if isinstance(target, Path) else target


def project(operand: Any, place: str, expressions: ExpressionParser) -> Project | LeaveOut:
    """Read `$project`: either fields that stay and computed ones, or fields that are left out."""
    leaves = list(_leaves(_document(operand, place), (), place, expressions, flags=True))
    others = [each for each in leaves if each[0] != ("_id",)]
    id_leaf = next((leaf for keys, leaf, _ in leaves if keys == ("_id",)), None)
    keeps = others[0][1] is not False if others else id_leaf is not False
    for keys, leaf, where in leaves:
        says_nothing = keys == ("_id",) and (keeps or leaf is True)
        if (leaf is False) is keeps and not says_nothing:
            raise InvalidPipeline(where, "included and excluded fields do not mix")
    tree([(keys, Named(), where) for keys, _, where in leaves])
    if not keeps:
        return LeaveOut(tree([(k, Named(), at) for k, leaf, at in leaves if leaf is False]))
    named = [
        (k, Named() if leaf is True else leaf, at) for k, leaf, at in leaves if leaf is not False
    ]
    if id_leaf is None and not any(keys[0] == "_id" for keys, _, _ in leaves):
        named.insert(0, (("_id",), Named(), place))
    return Project(tree(named))


def add_fields(operand: Any, place: str, expressions: ExpressionParser) -> AddFields:
    """Read `$addFields`: every field is computed."""
    if operand == {}:
        return AddFields(Tree(()))
    leaves = _leaves(_document(operand, place), (), place, expressions, flags=False)
    return AddFields(tree(list(leaves)))


def unset(operand: Any, place: str) -> LeaveOut:
    """Read `$unset`: a field, or a list of them."""
    every = operand if isinstance(operand, list) else [operand]
    if not every:
        raise InvalidPipeline(place, "must be a field or a list of fields")
    return LeaveOut(tree([(path(each, place), Named(), f"{place}.{each}") for each in every]))


def _document(operand: Any, place: str) -> dict[str, Any]:
    if not isinstance(operand, dict) or not operand:
        raise InvalidPipeline(
            place, f"must be a document with at least one field, got {shortened(operand)}"
        )
    return operand


def _leaves(
    document: dict[str, Any], above: Keys, place: str, expressions: ExpressionParser, *, flags: bool
) -> Iterator[tuple[Keys, Any, str]]:
    """Yield the fields and their expressions; `flags`: a number or boolean is whether the field is included."""
    for key, value in document.items():
        here = f"{place}.{key}"
        keys = (*above, *path(key, here))
        if isinstance(value, dict) and not next(iter(value), "$" * (not flags)).startswith("$"):
            if not value:
                raise InvalidPipeline(here, "must not be an empty object: use $literal")
            yield from _leaves(value, keys, here, expressions, flags=flags)
        elif flags and isinstance(value, bool | int | float):
            yield keys, bool(value), here
        else:
            yield keys, expressions.parse(value, here), here


def tree(leaves: list[tuple[Keys, Entry, str]]) -> Tree:
    """Return the leaves as a tree; two for one field are an error."""
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
    return _frozen(root)


def _frozen(fields: dict[str, Any]) -> Tree:
    pairs = ((k, _frozen(v) if isinstance(v, dict) else v) for k, v in fields.items())
    return Tree(tuple(pairs))


MAX_STAGES: Final = 200
"""Stages of a pipeline, those within `$lookup` included: each takes a call or two for every row."""
MAX_LOOKUPS: Final = 20
"""`$lookup`s within each other; MongoDB's limit."""
_ACCUMULATORS: Final = frozenset(get_args(AccumulatorName))
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


class PipelineParser:
    """Parser of pipelines, with the codec of one store."""

    def __init__(
        self, rules: Codec, variables: frozenset[str] = frozenset(), depth: int = 0
    ) -> None:
        self._rules, self._variables, self._depth = rules, variables, depth
        self._expressions = ExpressionParser(InvalidPipeline, variables)
        self._left = MAX_STAGES

    def steps(self, stages: Any, place: str = "") -> tuple[PlacedStage, ...]:
        """Read a list of stages."""
        if not isinstance(stages, list | tuple):
            raise InvalidPipeline(
                place, f"a pipeline must be a list of stages, got {shortened(stages)}"
            )
        found: list[PlacedStage] = []
        for number, each in enumerate(stages):
            found.extend(self._step(each, f"{place}.{number}" if place else str(number)))
        return tuple(found)

    def _step(self, stage: Any, place: str) -> list[PlacedStage]:
        self._left -= 1
        if self._left < 0:
            raise InvalidPipeline(place, f"there are more than {MAX_STAGES} stages")
        if not isinstance(stage, Mapping) or len(stage) != 1:
            raise InvalidPipeline(
                place, f"a stage must be a document of one key, got {shortened(stage)}"
            )
        ((name, operand),) = stage.items()
        here = f"{place}.{name}"
        if name in _UNSUPPORTED:
            raise InvalidPipeline(here, "this stage is not supported")
        reader = _READERS.get(name)
        if reader is None:
            raise InvalidPipeline(here, "no such stage")
        if name not in {"$match", "$lookup"}:
            operand = self._plain(operand, here)
        return [PlacedStage(here, each) for each in reader(self, operand, here)]

    def _plain(self, operand: Any, place: str) -> Any:
        """Return an operand as plain JSON."""
        try:
            plain = codec.decode(self._rules.encode(operand))
        except InvalidBody as error:
            where = f"{place}.{error.path}" if error.path else place
            raise InvalidPipeline(where, error.problem) from error
        self._expressions.check_nesting(plain, place)
        return plain

    def _expression(self, what: Any, place: str) -> Node:
        return self._expressions.parse(what, place)

    def _match(self, operand: Any, place: str) -> list[Stage]:
        if isinstance(operand, Filter):
            return [Match(operand)]
        try:
            parser = FilterParser(self._rules, variables=self._variables)
            return [Match(Filter(parser.document(operand)))]
        except InvalidFilter as error:
            raise _moved(error, place) from error

    def _project(self, operand: Any, place: str) -> list[Stage]:
        return [project(operand, place, self._expressions)]

    def _add_fields(self, operand: Any, place: str) -> list[Stage]:
        return [add_fields(operand, place, self._expressions)]

    def _unset(self, operand: Any, place: str) -> list[Stage]:
        return [unset(operand, place)]

    def _sort(self, operand: Any, place: str) -> list[Stage]:
        if not isinstance(operand, dict) or not operand:
            raise InvalidPipeline(place, "must be a document of fields and 1 or -1")
        try:
            return [SortRows(Sort.parse(operand))]
        except InvalidSort as error:
            where = f"{place}.{error.field}" if error.field else place
            raise InvalidPipeline(where, error.problem) from error

    def _skip(self, operand: Any, place: str) -> list[Stage]:
        return [Skip(_integer(operand, 0, place))]

    def _limit(self, operand: Any, place: str) -> list[Stage]:
        return [Limit(_integer(operand, 1, place))]

    def _count(self, operand: Any, place: str) -> list[Stage]:
        return [CountRows(_name(operand, place))]

    def _group(self, operand: Any, place: str) -> list[Stage]:
        if not isinstance(operand, dict) or "_id" not in operand:
            raise InvalidPipeline(place, "must be a document with _id, the expression to group by")
        found = [
            (_name(name, f"{place}.{name}"), self._accumulator(each, f"{place}.{name}"))
            for name, each in operand.items()
            if name != "_id"
        ]
        return [Group(self._group_key(operand["_id"], f"{place}._id"), tuple(found))]

    def _group_key(self, what: Any, place: str) -> Node:
        """Read `_id`: in MongoDB a number or boolean in it would look as if a field was chosen."""
        for name, each in what.items() if isinstance(what, dict) else ():
            if isinstance(each, bool | int | float) and not name.startswith("$"):
                problem = f"{shortened(each)} does not choose a field: name it ('${name}'), or use $literal"
                raise InvalidPipeline(f"{place}.{name}", problem)
        return self._expression(what, place)

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
            there = name in _UNSUPPORTED_ACCUMULATORS
            problem = "this accumulator is not supported" if there else "no such accumulator"
            raise InvalidPipeline(here, problem)
        if isinstance(value, list):
            raise InvalidPipeline(here, "takes one operand, got a list")
        return Accumulator(name, self._expression(value, here))

    def _unwind(self, operand: Any, place: str) -> list[Stage]:
        given = operand if isinstance(operand, dict) else {"path": operand}
        _check_names(given, place, {"path"}, {"includeArrayIndex", "preserveNullAndEmptyArrays"})
        dotted, preserve = given["path"], given.get("preserveNullAndEmptyArrays", False)
        if not isinstance(dotted, str) or not dotted.startswith("$"):
            raise InvalidPipeline(
                place, f"the path must begin with $, as in '$tags', got {shortened(dotted)}"
            )
        if not isinstance(preserve, bool):
            raise InvalidPipeline(f"{place}.preserveNullAndEmptyArrays", "must be true or false")
        index = given.get("includeArrayIndex")
        keys = None if index is None else path(index, f"{place}.includeArrayIndex")
        return [Unwind(path(dotted[1:], place), keys, preserve)]

    def _sort_by_count(self, operand: Any, place: str) -> list[Stage]:
        is_path = isinstance(operand, str) and operand.startswith("$")
        if not is_path and not (
            isinstance(operand, dict) and str(next(iter(operand), "")).startswith("$")
        ):
            raise InvalidPipeline(place, "must be a path that begins with $, or an operator")
        key = self._expression(operand, place)
        fields = (("count", Accumulator("$sum", Constant.of(1))),)
        return [Group(key, fields), SortRows(Sort.parse({"count": -1}))]

    def _replace_root(self, operand: Any, place: str) -> list[Stage]:
        if not isinstance(operand, dict) or set(operand) != {"newRoot"}:
            raise InvalidPipeline(place, "must be a document of newRoot")
        return self._replace_with(operand["newRoot"], f"{place}.newRoot")

    def _replace_with(self, operand: Any, place: str) -> list[Stage]:
        return [ReplaceRoot(self._expression(operand, place))]

    def _lookup(self, operand: Any, place: str) -> list[Stage]:
        optional = {"localField", "foreignField", "let", "pipeline"}
        _check_names(operand, place, {"from", "as"}, optional)
        collection = _collection(operand["from"], f"{place}.from")
        local, foreign = (
            self._side(operand, "localField", place),
            self._side(operand, "foreignField", place),
        )
        if (local is None) != (foreign is None) or (local is None and "pipeline" not in operand):
            raise InvalidPipeline(
                place, "requires localField and foreignField, or pipeline, or all three"
            )
        if "let" in operand and "pipeline" not in operand:
            raise InvalidPipeline(f"{place}.let", "goes with pipeline")
        given = self._plain(operand.get("let", {}), f"{place}.let")
        variables = self._expressions.variables(given, f"{place}.let")
        if "CURRENT" in given:
            raise InvalidPipeline(f"{place}.let.CURRENT", "must not be redefined")
        into = path(operand["as"], f"{place}.as")
        steps = self._within(operand.get("pipeline", []), variables, f"{place}.pipeline")
        return [Lookup(collection, into, local, foreign, variables, steps)]

    def _side(self, operand: Mapping[str, Any], name: str, place: str) -> Side | None:
        return side(operand[name], f"{place}.{name}") if name in operand else None

    def _within(
        self, stages: Any, variables: tuple[tuple[str, Node], ...], place: str
    ) -> tuple[PlacedStage, ...]:
        if self._depth == MAX_LOOKUPS:
            raise InvalidPipeline(place, f"more than {MAX_LOOKUPS} $lookup within each other")
        names = {name for name, _ in variables}
        inner = PipelineParser(self._rules, self._variables | names, self._depth + 1)
        inner._left = self._left
        steps = inner.steps(stages, place)
        self._left = inner._left
        return steps


_READERS: Final[Mapping[Any, Callable[[PipelineParser, Any, str], list[Stage]]]] = {
    "$match": PipelineParser._match,
    "$project": PipelineParser._project,
    "$addFields": PipelineParser._add_fields,
    "$set": PipelineParser._add_fields,
    "$unset": PipelineParser._unset,
    "$sort": PipelineParser._sort,
    "$skip": PipelineParser._skip,
    "$limit": PipelineParser._limit,
    "$count": PipelineParser._count,
    "$group": PipelineParser._group,
    "$unwind": PipelineParser._unwind,
    "$sortByCount": PipelineParser._sort_by_count,
    "$replaceRoot": PipelineParser._replace_root,
    "$replaceWith": PipelineParser._replace_with,
    "$lookup": PipelineParser._lookup,
}


def _moved(error: InvalidFilter, place: str) -> InvalidPipeline:
    return InvalidPipeline(f"{place}.{error.place}" if error.place else place, error.problem)


def _integer(value: Any, least: int, place: str) -> int:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or value != value // 1 or not least <= value < _MAX_COUNT:
        raise InvalidPipeline(place, f"must be an integer from {least} on, got {shortened(value)}")
    return int(value)


def _collection(name: Any, place: str) -> str:
    try:
        return check_name(name)
    except InvalidName as error:
        raise InvalidPipeline(place, str(error)) from None


def _name(name: Any, place: str) -> str:
    if not isinstance(name, str) or not name or name.startswith("$") or "." in name:
        raise InvalidPipeline(
            place, f"{shortened(name)}: a field's name is not empty, has no dot and no $ in front"
        )
    return name


def _check_names(operand: Any, place: str, required: set[str], optional: set[str]) -> None:
    if not isinstance(operand, Mapping):
        raise InvalidPipeline(place, f"must be a document, got {shortened(operand)}")
    for name in sorted(required - set(operand)):
        raise InvalidPipeline(place, f"requires {name}")
    for name in operand:
        if name not in required | optional:
            known = ", ".join(sorted(required | optional))
            raise InvalidPipeline(f"{place}.{name}", f"must be one of {known}")
