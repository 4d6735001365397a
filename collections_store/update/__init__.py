"""What to change: MongoDB's update language, parsed once, and its exact meaning on a body.

Pure: makes a new body from an old one. Must not know a store, a database or a version. Begin with `Update` here, then
`actions` (what an update consists of), `parser` and `apply`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import codec
from ..codec import Codec
from ..document import Document
from ..errors import InvalidUpdate, UpdateRefused, shortened
from ..query.filter import Filter
from ..query.values import lazy_type
from .actions import ArrayFilter, FieldChange
from .apply import Application, Budget, Fields, changed, tree_of
from .parser import check_names, read_array_filters, read_operators
from .upsert import seed, seed_id

if TYPE_CHECKING:
    from ..aggregation.pipeline import Pipeline
else:
    Pipeline = lazy_type("collections_store.aggregation.pipeline", "Pipeline")


@dataclass(frozen=True, slots=True)
class Update:
    """What is to change in a body: operators, or a pipeline.

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
    _tree: Fields = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        parts: Any = (self.changes, FieldChange), (self.array_filters, ArrayFilter)
        for part, kind in parts:
            if type(part) is not tuple or not all(isinstance(each, kind) for each in part):
                raise InvalidUpdate("", "Update.parse reads what is to change")
        if not (self.pipeline is None or hasattr(self.pipeline, "steps")):
            raise InvalidUpdate("", "Update.parse reads what is to change")
        check_names(self.changes, self.array_filters)
        object.__setattr__(self, "_tree", tree_of(self.changes))

    @classmethod
    def parse(
        cls,
        what: Any,
        *,
        array_filters: Any = None,
        rules: Codec = Codec(),  # noqa: B008 - it is frozen
    ) -> Update:
        """Read a document of operators, or a list of stages, or take an `Update`; raises
        `InvalidUpdate` naming the place.

        `array_filters` say which elements `$[name]` stands for: a list of filters, each on one name.
        """
        match what:
            case Mapping():
                filters = () if array_filters is None else read_array_filters(array_filters, rules)
                changes, written = read_operators(what, rules)
                as_json = written, deepcopy(array_filters)
                return cls(changes, filters, None, as_json, rules.max_bytes)
            case Update() | list() | tuple() if array_filters is not None:
                raise InvalidUpdate("array_filters", "goes with a document of operators")
            case Update():
                return what
            case list() | tuple():
                from .apply import read_stages

                pipeline = read_stages(what, rules)
                return cls((), (), pipeline, (deepcopy(list(what)), None))
        raise InvalidUpdate(
            "", f"a document of operators or a list of stages, not {shortened(what)}"
        )

    def apply(
        self,
        document: Document,
        *,
        filter: Filter = Filter(),  # noqa: B008 - it is frozen
        now: int,
        inserting: bool = False,
        ordered: bool = True,
    ) -> Any:
        """Return the new body; the old one stays as it is, and comes back itself if nothing changes.

        `filter` is what found the document: `$` needs it. `now` is in microseconds since 1970.
        `inserting`: an upsert inserts, so `$setOnInsert` counts. `ordered`: do objects with other key
        order differ? Raises `UpdateRefused` where the body does not let itself be changed so.
        """
        if not isinstance(document.body, dict):
            problem = f"only objects have fields, and the body is {shortened(document.body)}"
            raise UpdateRefused(document.id, "", f"{problem}: replace it")
        if self.pipeline is not None:
            from .apply import transformed

            return transformed(self.pipeline, document, now=now, ordered=ordered)
        conditions = {each.name: each.condition for each in self.array_filters}
        budget = Budget.of(self._limit)
        the = Application(document, filter, conditions, now, inserting, ordered, budget)
        return changed(self._tree, document.body, (), the)

    def to_json(self) -> Any:
        """Return the document of operators, or the list of stages. A key of the body that no text names
        stands in a `Path`.
        """
        return deepcopy(self._written[0]) if self._written else {}

    def __str__(self) -> str:
        filters = self._written[1] if self._written else None
        return f"{self.to_json()} with array_filters {filters}" if filters else str(self.to_json())


def read_replacement(what: Any, rules: Codec) -> Any:
    """Return a body that shall take another's place, as JSON; raises `InvalidUpdate` for operators and
    `InvalidBody`.
    """
    if isinstance(what, Update) or (
        isinstance(what, Mapping) and str(next(iter(what), "")).startswith("$")
    ):
        raise InvalidUpdate(
            "",
            f"{shortened(what)} holds operators, which update_one takes; a replacement is a body",
        )
    for key in what if isinstance(what, Mapping) else ():
        if isinstance(key, str) and key.startswith("$"):
            problem = "no field of a replacement begins with $ at the top; put writes any body"
            raise InvalidUpdate(key, problem)
    return codec.decode(rules.encode(what))


__all__ = ["Update", "read_replacement", "seed", "seed_id"]
