"""Pipeline parser: accepts the pipelines of MongoDB's server; an error names the place of anything else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, Final, get_args

from .. import codec
from ..codec import Codec
from ..errors import (
    InvalidBody,
    InvalidFilter,
    InvalidPipeline,
    InvalidSort,
    shortened,
)
from ..expressions.collation import Ordered
from ..expressions.fields import NAMED, Keys, Tree, tree_of
from ..expressions.language import ABSENT
from ..expressions.nodes import Bucket, Constant, Node, Reference
from ..expressions.parser import MAX_NESTING, ExpressionParser, check_keys
from ..expressions.path import Path
from ..expressions.values import MISSING, RANKS, compare
from ..query.conditions import holds_text
from ..query.filter import Filter
from ..query.parser import FilterParser
from ..query.sort import BY_SCORE, Sort
from . import stages
from .accumulators import ACCUMULATORS
from .granularity import SERIES
from .operands import (
    collection_of,
    fields_of,
    integer_of,
    name_of,
    path_of,
    side_of,
    source_of,
)
from .redact import DECISIONS
from .stages import Accumulator, PlacedStage, Stage
from .window_parser import WindowParser
from .windows import FUNCTIONS

MAX_STAGES: Final = 200
"""Stages of a pipeline, including those within stages: each takes a call or two for every row."""
MAX_LEVELS: Final = 20
"""Levels of pipelines within stages; MongoDB's limit for `$lookup`."""
_WITH_PIPELINES: Final = frozenset({"$facet", "$graphLookup", "$lookup", "$merge", "$unionWith"})
"""The stages whose filters and pipelines take what JSON does not have, such as a `Filter`."""
_MAKING_IDS: Final = frozenset({
    "$bucket", "$bucketAuto", "$count", "$documents", "$facet", "$group", "$replaceRoot", "$replaceWith",
    "$sortByCount",
})  # fmt: skip
_MATCHED: Final = ("replace", "keepExisting", "merge", "fail")
_UNMATCHED: Final = ("insert", "discard", "fail")
_COUNT: Final = {"count": {"$sum": 1}}


def _check_words(steps: list[PlacedStage], *, is_inner: bool) -> None:
    """Raise `InvalidPipeline` for a `$text` behind the leading `$match` stages, or in a pipeline within a stage."""
    behind = is_inner
    for step in steps:
        if not isinstance(step.stage, stages.Match):
            behind = True
        elif behind and _finds_words(step):
            raise InvalidPipeline(f"{step.place}.$text", "must be in the first stage, a $match")


def _check_output(steps: list[PlacedStage], *, is_inner: bool) -> None:
    """Raise `InvalidPipeline` for a `$merge` or `$out` that is not the last stage, or in a pipeline within a stage."""
    for step in steps if is_inner else steps[:-1]:
        if isinstance(step.stage, stages.Output):
            raise InvalidPipeline(step.place, "must be the last stage of the whole pipeline")


def _finds_words(step: PlacedStage) -> bool:
    return isinstance(step.stage, stages.Match) and holds_text(step.stage.filter.condition)


class PipelineParser:
    """Parser of pipelines, with the codec of one store."""

    def __init__(
        self,
        codec: Codec,
        variables: frozenset[str] = frozenset(),
        depth: int = 0,
        *,
        names_id: bool = True,
        ordered: Ordered = True,
    ) -> None:
        self._codec, self._variables, self._depth = codec, variables, depth
        self._ordered = ordered
        self._expressions = ExpressionParser(InvalidPipeline, variables)
        self._windows = WindowParser(self._expressions, self._accumulator, self._sort)
        self._left = MAX_STAGES
        self._names_id = names_id
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
        _check_output(found, is_inner=bool(place))
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
        reader = READERS.get(name)
        if reader is None:
            known = name in ABSENT["stages"]
            raise InvalidPipeline(here, "this stage is not supported" if known else "no such stage")
        if name not in _WITH_PIPELINES and name != "$match":
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
        leaves = list(self._leaves(fields_of(operand, place), (), place, flags=True))
        others = [leaf for keys, leaf, _ in leaves if keys != ("_id",)]
        id_leaf = next((leaf for keys, leaf, _ in leaves if keys == ("_id",)), None)
        includes = others[0] is not False if others else id_leaf is not False
        for keys, leaf, here in leaves:
            is_neutral = keys == ("_id",) and (includes or leaf is True)
            if (leaf is False) is includes and not is_neutral:
                raise InvalidPipeline(here, "included and excluded fields do not mix")
        if not includes:
            named = [(k, NAMED if leaf is False else None, at) for k, leaf, at in leaves]
            return stages.ExcludeFields(tree_of(named, InvalidPipeline))
        entries = {True: NAMED, False: None}
        chosen = [
            (k, entries[leaf] if isinstance(leaf, bool) else leaf, at) for k, leaf, at in leaves
        ]
        if id_leaf is None and not any(keys[0] == "_id" for keys, _, _ in leaves):
            chosen.insert(0, (("_id",), NAMED, place))
        return stages.Project(tree_of(chosen, InvalidPipeline))

    def _add_fields(self, operand: Any, place: str) -> Stage:
        if operand == {}:
            return stages.AddFields(Tree(()))
        return stages.AddFields(
            tree_of(
                self._leaves(fields_of(operand, place), (), place, flags=False), InvalidPipeline
            )
        )

    def _leaves(
        self, document: dict[str, Any], above: Keys, place: str, *, flags: bool
    ) -> Iterator[tuple[Keys, Any, str]]:
        """Yield paths, expressions and places; `flags`: a number or boolean includes or excludes the field."""
        for key, value in document.items():
            here = f"{place}.{key}"
            keys = (*above, *path_of(key, here))
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
            tree_of(
                ((path_of(each, place), NAMED, f"{place}.{each}") for each in fields),
                InvalidPipeline,
            )
        )

    def _sort(self, operand: Any, place: str) -> stages.SortRows:
        if not isinstance(operand, dict) or not operand:
            raise InvalidPipeline(place, "must be a document of fields and 1 or -1")
        try:
            named = {self._sorted_by(key, f"{place}.{key}"): each for key, each in operand.items()}
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
        fields = self._accumulators({k: v for k, v in operand.items() if k != "_id"}, place)
        key, here = operand["_id"], f"{place}._id"
        for name, each in key.items() if isinstance(key, dict) else ():
            # in MongoDB a number or boolean in it would look as if a field was chosen
            if isinstance(each, bool | int | float) and not name.startswith("$"):
                problem = f"{shortened(each)} does not choose a field: name it ('${name}'), or use $literal"
                raise InvalidPipeline(f"{here}.{name}", problem)
        return stages.Group(self._expressions.parse(key, here), fields)

    def _accumulators(self, fields: Any, place: str) -> tuple[tuple[str, Accumulator], ...]:
        if not isinstance(fields, dict):
            problem = f"must be a document of accumulators, got {shortened(fields)}"
            raise InvalidPipeline(place, problem)
        if "_id" in fields:
            raise InvalidPipeline(f"{place}._id", "must be another field: _id is the bucket")
        return tuple([
            (name_of(name, f"{place}.{name}"), self._accumulator(each, f"{place}.{name}"))
            for name, each in fields.items()
        ])  # fmt: skip

    def _bucket(self, operand: Any, place: str) -> list[Stage]:
        """Parse `$bucket` as a `$group` by the bucket, and a `$sort`, as MongoDB's server does."""
        given = self._expressions.named(
            operand, place, ("groupBy", "boundaries"), ("default", "output")
        )
        self._grouped_by(given["groupBy"], f"{place}.groupBy")
        limits = given["boundaries"]
        if not isinstance(limits, list) or len(limits) < 2:
            problem = f"must be a list of at least two values, got {shortened(limits)}"
            raise InvalidPipeline(f"{place}.boundaries", problem)
        boundaries = tuple([
            self._expressions.constant(each, f"{place}.boundaries.{n}")
            for n, each in enumerate(limits)
        ])  # fmt: skip
        limits = [each.value for each in boundaries]
        compared = partial(compare, ordered=self._ordered)
        for number, (lower, upper) in enumerate(pairwise(limits), 1):
            if RANKS[type(lower)] != RANKS[type(upper)] or compared(lower, upper) >= 0:
                problem = "must be of the type of the value before it, and greater"
                raise InvalidPipeline(f"{place}.boundaries.{number}", problem)
        default = None
        if "default" in given:
            here = f"{place}.default"
            default = self._expressions.constant(given["default"], here)
            if RANKS[type(default.value)] == RANKS[type(limits[0])] and (
                compared(limits[0], default.value) <= 0 < compared(limits[-1], default.value)
            ):
                raise InvalidPipeline(
                    here, "must be less than the first boundary, or at least the last"
                )
        value = self._expressions.parse(given["groupBy"], f"{place}.groupBy")
        key = Bucket(value, boundaries, default)
        fields = self._accumulators(given.get("output", _COUNT), f"{place}.output")
        return [stages.Group(key, fields), stages.SortRows(Sort.parse([(Path("_id"), 1)]))]

    def _bucket_auto(self, operand: Any, place: str) -> Stage:
        given = self._expressions.named(
            operand, place, ("groupBy", "buckets"), ("output", "granularity")
        )
        granularity = given.get("granularity")
        if "granularity" in given:
            _check_choice(granularity, (*SERIES,), f"{place}.granularity")
        key = self._grouped_by(given["groupBy"], f"{place}.groupBy")
        count = integer_of(given["buckets"], 1, f"{place}.buckets", 2**31 - 1)
        output = given.get("output", _COUNT)
        fields = self._accumulators(_COUNT if output == {} else output, f"{place}.output")
        return stages.BucketAuto(key, count, fields, granularity)

    def _grouped_by(self, expression: Any, place: str) -> Node:
        _check_path_or_operator(expression, place)
        return self._expressions.parse(expression, place)

    def _sample(self, operand: Any, place: str) -> Stage:
        given = self._expressions.named(operand, place, ("size",))
        return stages.Sample(integer_of(given["size"], 1, f"{place}.size"))

    def _redact(self, operand: Any, place: str) -> Stage:
        parser = ExpressionParser(InvalidPipeline, self._variables | set(DECISIONS))
        parser.scores = self._expressions.scores
        return stages.Redact(parser.parse(operand, place))

    def _documents(self, operand: Any, place: str) -> Stage:
        if not self._depth or not place.endswith(".0.$documents"):
            problem = "must be the first stage of the pipeline of a $unionWith or $lookup without a collection"
            raise InvalidPipeline(place, problem)
        return stages.Documents(self._expressions.parse(operand, place))

    def _facet(self, operand: Any, place: str) -> Stage:
        if not isinstance(operand, Mapping) or not operand:
            problem = f"must be a document of pipelines, got {shortened(operand)}"
            raise InvalidPipeline(place, problem)
        pipelines = []
        for name, pipeline in operand.items():
            here = f"{place}.{name}"
            name_of(name, here)
            steps = self._of_same_rows(pipeline, here)
            for step in steps:
                if isinstance(step.stage, stages.Facet | stages.Documents):
                    raise InvalidPipeline(step.place, "must not be within a $facet")
            pipelines.append((name, steps))
        return stages.Facet(tuple(pipelines))

    def _union(self, operand: Any, place: str) -> Stage:
        if isinstance(operand, str):
            return stages.Union(collection_of(operand, place))
        given = self._expressions.named(operand, place, (), ("coll", "pipeline"))
        steps, names_id = self._inner(given.get("pipeline", []), (), f"{place}.pipeline")
        self._names_id = self._names_id and names_id
        return stages.Union(source_of(given, "coll", steps, place), steps)

    def _merge(self, operand: Any, place: str) -> Stage:
        if isinstance(operand, str):
            return stages.Output(collection_of(operand, place))
        optional = "on", "let", "whenMatched", "whenNotMatched"
        given = self._expressions.named(operand, place, ("into",), optional)
        matched, unmatched = (
            given.get(name, default)
            for name, default in (("whenMatched", "merge"), ("whenNotMatched", "insert"))
        )
        names = given.get("on", "_id")
        names = names if isinstance(names, list | tuple) and names else [names]
        on = () if names == ["_id"] else tuple([path_of(each, f"{place}.on") for each in names])
        if len(set(on)) < len(on):
            problem = f"must name each field once, got {shortened(names)}"
            raise InvalidPipeline(f"{place}.on", problem)
        variables, steps = self._merging(given, matched, place)
        if not steps:
            _check_choice(matched, _MATCHED, f"{place}.whenMatched")
        _check_choice(unmatched, _UNMATCHED, f"{place}.whenNotMatched")
        into = collection_of(given["into"], f"{place}.into")
        action: Any = "pipeline" if steps else matched
        return stages.Output(into, on, action, unmatched, variables=variables, steps=steps)

    def _merging(
        self, given: Mapping[str, Any], matched: Any, place: str
    ) -> tuple[tuple[tuple[str, Node], ...], tuple[PlacedStage, ...]]:
        """Return the variables and stages of `whenMatched`, if it is a pipeline."""
        if not isinstance(matched, list):
            if "let" in given:
                raise InvalidPipeline(f"{place}.let", "requires a pipeline as whenMatched")
            return (), ()
        variables = self._let(given, place)
        place = f"{place}.whenMatched"
        if "new" not in given.get("let", ()):
            variables = (*variables, ("new", Reference("ROOT")))
        steps, _ = self._inner(matched, variables, place)
        for step in steps:
            if not isinstance(step.stage, get_args(stages.Change)):
                problem = "must be $set, $unset, $project or $replaceWith within $merge"
                raise InvalidPipeline(step.place, problem)
        if not steps:
            raise InvalidPipeline(place, "must have a stage")
        return variables, steps

    def _graph_lookup(self, operand: Any, place: str) -> Stage:
        required = "from", "startWith", "connectFromField", "connectToField", "as"
        optional = "maxDepth", "depthField", "restrictSearchWithMatch"
        self._expressions.named(operand, place, required, optional)
        limit, field = operand.get("maxDepth", MISSING), operand.get("depthField", MISSING)
        inner = self._of_stage()
        match = inner._match(
            operand.get("restrictSearchWithMatch", {}), f"{place}.restrictSearchWithMatch"
        )
        assert isinstance(match, stages.Match)
        start = self._plain(operand["startWith"], f"{place}.startWith")
        return stages.GraphLookup(
            collection_of(operand["from"], f"{place}.from"),
            path_of(operand["as"], f"{place}.as"),
            self._expressions.parse(start, f"{place}.startWith"),
            side_of(operand["connectFromField"], f"{place}.connectFromField", True),
            side_of(operand["connectToField"], f"{place}.connectToField", True),
            None if limit is MISSING else integer_of(limit, 0, f"{place}.maxDepth"),
            None if field is MISSING else path_of(field, f"{place}.depthField"),
            match.filter,
        )

    def _accumulator(self, operand: Any, place: str) -> Accumulator:
        if not isinstance(operand, dict) or len(operand) != 1:
            raise InvalidPipeline(place, "must be one accumulator, such as {'$sum': '$price'}")
        ((name, value),) = operand.items()
        here = f"{place}.{name}"
        if name == "$count":
            if value != {}:
                raise InvalidPipeline(here, "takes an empty document")
            return Accumulator("$sum", Constant.of(1))
        declared = ACCUMULATORS.get(name)
        if declared is None:
            known = name in ABSENT["accumulators"]
            problem = "this accumulator is not supported" if known else "no such accumulator"
            if name in FUNCTIONS:
                problem = "is a function of $setWindowFields"
            raise InvalidPipeline(here, problem)
        if declared.form == "value":
            if isinstance(value, list):
                raise InvalidPipeline(here, "takes one operand, got a list")
            return Accumulator(name, self._expressions.parse(value, here))
        if declared.form in {"median", "percentile"}:
            input, points = self._expressions.percentile(name, value, here)
            return Accumulator(name, input, points=points)
        return self._several(name, declared.form, value, here)

    def _several(self, name: str, form: str, operand: Any, place: str) -> Accumulator:
        """Parse an accumulator of several values, or of a sorted one."""
        what = "output" if form.startswith("sorted") else "input"
        names = (
            what,
            *(["sortBy"] if what == "output" else []),
            *(["n"] if form[-1] == "n" else []),
        )
        given = self._expressions.named(operand, place, names)
        parse, count, sort = self._expressions.parse, None, None
        if "n" in given:
            count = parse(given["n"], f"{place}.n")
            if isinstance(count, Constant):
                integer_of(count.value, 1, f"{place}.n")
        if "sortBy" in given:
            sort = self._sort(given["sortBy"], f"{place}.sortBy").sort
        return Accumulator(name, parse(given[what], f"{place}.{what}"), count, sort)

    def _count(self, operand: Any, place: str) -> Stage:
        if operand == "_id":
            raise InvalidPipeline(place, "must be a field other than _id")
        return stages.CountRows(name_of(operand, place))

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
        keys = None
        if "includeArrayIndex" in given:
            keys = path_of(given["includeArrayIndex"], f"{place}.includeArrayIndex")
        return stages.Unwind(path_of(dotted[1:], place), keys, preserve)

    def _sorted_by(self, name: str, place: str) -> str | Path:
        if not name.startswith("$"):
            check_keys(name.split("."), place, InvalidPipeline)
        is_field = name.startswith("_id") and not self._names_id
        return Path.parse(name) if is_field else name

    def _sort_by_count(self, operand: Any, place: str) -> list[Stage]:
        _check_path_or_operator(operand, place)
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
        optional = "from", "localField", "foreignField", "let", "pipeline"
        self._expressions.named(operand, place, ("as",), optional)
        local, foreign = (
            side_of(operand[name], f"{place}.{name}", names_id) if name in operand else None
            for name, names_id in (("localField", self._names_id), ("foreignField", True))
        )
        if (local is None) != (foreign is None) or (local is None and "pipeline" not in operand):
            problem = "requires localField and foreignField, or pipeline, or all three"
            raise InvalidPipeline(place, problem)
        if "let" in operand and "pipeline" not in operand:
            raise InvalidPipeline(f"{place}.let", "requires pipeline")
        variables = self._let(operand, place)
        into = path_of(operand["as"], f"{place}.as")
        steps, _ = self._inner(operand.get("pipeline", []), variables, f"{place}.pipeline")
        collection = source_of(operand, "from", steps, place)
        return stages.Lookup(collection, into, local, foreign, variables, steps)

    def _let(self, operand: Mapping[str, Any], place: str) -> tuple[tuple[str, Node], ...]:
        """Return the variables of a stage for the pipeline within it."""
        given = self._plain(operand.get("let", {}), f"{place}.let")
        if isinstance(given, dict) and "CURRENT" in given:
            raise InvalidPipeline(f"{place}.let.CURRENT", "must not be redefined")
        return self._expressions.variables(given, f"{place}.let")

    def _inner(
        self, pipeline: Any, variables: tuple[tuple[str, Node], ...], place: str
    ) -> tuple[tuple[PlacedStage, ...], bool]:
        """Return the stages of a pipeline within a stage, and whether `_id` is the id of the rows' documents there."""
        names = {name for name, _ in variables}
        inner = self._of_stage(names)
        return self._counted(inner, pipeline, place), inner._names_id

    def _of_stage(self, names: Iterable[str] = ()) -> PipelineParser:
        """Return a parser of a pipeline within a stage; `names`: variables of the stage."""
        variables = self._variables.union(names)
        return PipelineParser(self._codec, variables, self._depth + 1, ordered=self._ordered)

    def _of_same_rows(self, pipeline: Any, place: str) -> tuple[PlacedStage, ...]:
        """Return the stages of a pipeline within a stage that run over the rows of the stage itself."""
        inner = self._of_stage()
        inner._names_id, inner._expressions.scores = self._names_id, self._expressions.scores
        return self._counted(inner, pipeline, place)

    def _counted(self, inner: PipelineParser, pipeline: Any, place: str) -> tuple[PlacedStage, ...]:
        if self._depth == MAX_LEVELS:
            raise InvalidPipeline(place, f"more than {MAX_LEVELS} pipelines within each other")
        inner._left = self._left
        steps = inner.steps(pipeline, place)
        self._left = inner._left
        return steps


READERS: Final[Mapping[Any, Callable[[PipelineParser, Any, str], Stage | list[Stage]]]] = {
    "$match": PipelineParser._match,
    "$project": PipelineParser._project,
    "$addFields": PipelineParser._add_fields,
    "$set": PipelineParser._add_fields,
    "$unset": PipelineParser._unset,
    "$sort": PipelineParser._sort,
    "$skip": lambda _parser, operand, place: stages.Skip(integer_of(operand, 0, place)),
    "$limit": lambda _parser, operand, place: stages.Limit(integer_of(operand, 1, place)),
    "$count": PipelineParser._count,
    "$group": PipelineParser._group,
    "$unwind": PipelineParser._unwind,
    "$sortByCount": PipelineParser._sort_by_count,
    "$replaceRoot": PipelineParser._replace_root,
    "$replaceWith": PipelineParser._replace_with,
    "$lookup": PipelineParser._lookup,
    "$merge": PipelineParser._merge,
    "$out": lambda _parser, operand, place: stages.Output(
        collection_of(operand, place), replaces=True
    ),
    "$setWindowFields": lambda parser, operand, place: parser._windows.set_window_fields(
        operand, place
    ),
    "$fill": lambda parser, operand, place: parser._windows.fill(operand, place),
    "$densify": lambda parser, operand, place: parser._windows.densify(operand, place),
    "$bucket": PipelineParser._bucket,
    "$bucketAuto": PipelineParser._bucket_auto,
    "$sample": PipelineParser._sample,
    "$redact": PipelineParser._redact,
    "$documents": PipelineParser._documents,
    "$facet": PipelineParser._facet,
    "$unionWith": PipelineParser._union,
    "$graphLookup": PipelineParser._graph_lookup,
}


def _makes_id(stage: Mapping[str, Any]) -> bool:
    """Return whether a stage makes rows of its own, or a field `_id`."""
    ((name, operand),) = stage.items()
    if name in {"$addFields", "$set", "$project"}:
        made = [each for key, each in operand.items() if key.split(".")[0] == "_id"]
        return any(name != "$project" or not isinstance(each, int | float) for each in made)
    return name in _MAKING_IDS


def _check_path_or_operator(expression: Any, place: str) -> None:
    first = next(iter(expression), "") if isinstance(expression, dict) else expression
    if not isinstance(first, str) or not first.startswith("$"):
        raise InvalidPipeline(place, "must be a path that begins with $, or an operator")


def _check_choice(value: Any, choices: tuple[str, ...], place: str) -> None:
    if value not in choices:
        problem = f"must be one of {', '.join(choices)}, got {shortened(value)}"
        raise InvalidPipeline(place, problem)
