"""Updates: MongoDB's update language, parsed once, and its exact meaning on a body.

Pure: makes a new body from an old body. Must not know a store, a database or a version. Begin with `Update` here, then
`operators` (the table of operators), `parser` (the parts of an update) and `apply`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias

from ..aggregation.pipeline import Pipeline
from ..codec import Codec, decode, plain_text
from ..document import Document
from ..errors import InvalidUpdate, UpdateRefused, shortened
from ..expressions.collation import Ordered
from ..expressions.evaluation import NO_VARIABLES
from ..query.filter import Filter
from .apply import Application, Fields, changed, seed, seed_id, transformed, tree_of
from .parser import (
    ArrayFilter,
    FieldChange,
    check_names,
    parse_array_filters,
    parse_operators,
    parse_stages,
)

CACHED: Final = 256
CACHED_BYTES: Final = 512
"""The size of an update that is parsed once, about. Many programs repeat few updates, such as `{"$inc": {"n": 1}}`: to parse
this takes ten times as long as to find the update. Any other update takes a tenth more.
"""


@dataclass(frozen=True, slots=True)
class Update:
    """An update of a body: operators, or a pipeline.

    >>> update = Update.parse({"$inc": {"visits": 1}, "$set": {"seen.last": "Rome"}})
    >>> print(update)
    {'$inc': {'visits': 1}, '$set': {'seen.last': 'Rome'}}
    >>> update.apply(Document("ada", {"visits": 2}), now=0)
    {'visits': 3, 'seen': {'last': 'Rome'}}
    """

    changes: tuple[FieldChange, ...] = ()
    array_filters: tuple[ArrayFilter, ...] = ()
    pipeline: Pipeline | None = None
    _written: Any = field(default=None, compare=False, repr=False)
    _limit: int = field(default=Codec().max_bytes, compare=False, repr=False)
    _variables: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    _tree: Fields = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        parts: Any = (self.changes, FieldChange), (self.array_filters, ArrayFilter)
        for part, kind in parts:
            if type(part) is not tuple or not {kind}.issuperset(map(type, part)):
                raise InvalidUpdate("", "must be parsed by Update.parse")
        if not isinstance(self.pipeline, Pipeline | None):
            raise InvalidUpdate("", "must be parsed by Update.parse")
        check_names(self.changes, self.array_filters)
        object.__setattr__(self, "_tree", tree_of(self.changes))

    @classmethod
    def parse(
        cls,
        what: Any,
        *,
        array_filters: Any = None,
        codec: Codec = Codec(),  # noqa: B008 - it is frozen
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> Update:
        """Parse a document of operators or a list of stages, or return an `Update`; raise `InvalidUpdate`, which names
        the position.

        `array_filters` are the filters of the elements of `$[name]`: a list, each filter on one name. `variables` have
        values in the expressions of stages.
        """
        if array_filters is None and type(what) is dict and isinstance(codec, Codec):
            text = plain_text(what, CACHED_BYTES)
            if text is not None:
                return _cached(text, codec.max_bytes, codec.nul)
        match what:
            case Mapping():
                return _of_operators(what, array_filters, codec)
            case Update() | list() | tuple() if array_filters is not None:
                raise InvalidUpdate("array_filters", "goes with a document of operators")
            case Update():
                return what
            case list() | tuple():
                pipeline = parse_stages(what, codec, frozenset(variables))
                written = deepcopy(list(what)), None
                return cls((), (), pipeline, written, _variables=variables)
        problem = f"must be a document of operators or a list of stages, got {shortened(what)}"
        raise InvalidUpdate("", problem)

    def apply(
        self,
        document: Document,
        *,
        filter: Filter = Filter(),  # noqa: B008 - it is frozen
        now: int,
        inserting: bool = False,
        ordered: Ordered = True,
    ) -> Any:
        """Return the new body. The old body is unchanged, and is returned itself if nothing changes.

        `filter` is the filter that found the document, for `$`. `now` is in microseconds since 1970. `inserting`: an
        upsert inserts, so `$setOnInsert` applies. `ordered`: the order of an object's keys counts. Raise
        `UpdateRefused` if the update does not fit the body.
        """
        body = document.body
        if not isinstance(body, dict):
            problem = f"only objects have fields, got the body {shortened(body)}: replace it"
            raise UpdateRefused(document.id, "", problem)
        if self.pipeline is not None:
            options: dict[str, Any] = {"ordered": ordered, "variables": self._variables or {}}
            return transformed(self.pipeline, document, now=now, **options)
        filters, limit = self.array_filters, self._limit
        conditions = {each.name: each.condition for each in filters} if filters else {}
        the = Application(now, ordered, document, filter, conditions, inserting, limit, limit)
        return changed(self._tree, body, (), the)

    def to_json(self) -> Any:
        """Return the document of operators, or the list of stages. A key without a dotted path is a `Path`."""
        return deepcopy(self._written[0]) if self._written else {}

    def __str__(self) -> str:
        filters = self._written[1] if self._written else None
        return f"{self.to_json()} with array_filters {filters}" if filters else str(self.to_json())


def _of_operators(what: Mapping[Any, Any], array_filters: Any, codec: Codec) -> Update:
    filters = () if array_filters is None else parse_array_filters(array_filters, codec)
    changes, written = parse_operators(what, codec)
    as_json = written, deepcopy(array_filters) if filters else None
    return Update(changes, filters, None, as_json, codec.max_bytes)


@lru_cache(maxsize=CACHED)
def _cached(text: bytes, max_bytes: int, nul: Any) -> Update:
    """Parse the text of an update. Plain values need no other option of the codec."""
    return _of_operators(decode(text), None, Codec(max_bytes, nul))


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """A body that a pipeline makes of another body: the pipeline does not show which fields are new."""

    body: Any
    before: Any


UpdateLike: TypeAlias = Update | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""What `Update.parse` reads."""


def read_replacement(what: Any, codec: Codec) -> Any:
    """Return the replacement of a body as JSON; raise `InvalidBody`, and `InvalidUpdate` for operators."""
    if isinstance(what, Update) or (
        isinstance(what, Mapping) and str(next(iter(what), "")).startswith("$")
    ):
        problem = f"a replacement must be a body, got operators: {shortened(what)}; use update_one"
        raise InvalidUpdate("", problem)
    if isinstance(what, Mapping) and "_id" in what:
        problem = "the id is beside the body, and stays: leave it out; put takes any body"
        raise InvalidUpdate("_id", problem)
    for key in what if isinstance(what, Mapping) else ():
        if isinstance(key, str) and key.startswith("$"):
            problem = (
                "a field at the top of a replacement must not begin with $; put takes any body"
            )
            raise InvalidUpdate(key, problem)
    return decode(codec.encode_body(what))


__all__ = ["Update", "read_replacement", "seed", "seed_id"]
