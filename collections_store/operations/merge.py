"""Writing the results of a pipeline into a collection: `$merge` and `$out`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import reduce
from operator import getitem
from typing import Any

from ..aggregation.pipeline import WHOLE, run
from ..aggregation.rows import Context, NoCollections, name_at, placed
from ..aggregation.stages import Output, PlacedStage
from ..codec import Codec, decode
from ..document import Document, check_id, new_id
from ..errors import DocumentNotFound, DuplicateKey, InvalidOperand, InvalidPipeline
from ..expressions.classes import value_class
from ..expressions.collation import Collation, under
from ..expressions.evaluation import named
from ..expressions.fields import Keys
from ..expressions.path import Path
from ..expressions.values import MISSING, identical
from ..query.conditions import And, Equals, Field, Value
from ..query.filter import Filter
from ..query.index import Index
from ..results import AggregationResults
from .aggregate import Aggregate
from .by_id import GetDocument, id_taken
from .catalogue import CollectionAbsent
from .find import Find
from .operation import Operation, Written
from .session import Session
from .update import DeleteMatching, changed_by_others
from .write import Writer


@value_class
class Merge(Operation[list[Any]]):
    """Run a pipeline and write its results, in one transaction; returns an empty list. All results are read before the first
    is written.
    """

    source: Operation[list[Any]]
    place: str
    output: Output
    memory_limit: int
    variables: Mapping[str, Any]
    codec: Codec = field(repr=False)
    collation: Collation | None = None
    """How the values at `on` compare, and the pipeline of `whenMatched`; None: by code point."""
    _written: dict[str, str] = field(default_factory=dict, repr=False)
    _created: set[str] = field(default_factory=set, repr=False)
    """The collection, if it did not exist: a merge by ids under a collation is accepted, as on MongoDB's server."""
    method = "aggregate"
    writes = True
    creates_collection = True

    @property
    def collection(self) -> str:
        """The collection that is written."""
        return self.output.collection

    @property
    def collections(self) -> tuple[str, ...]:
        return (self.output.collection, *self.source.collections)

    def __call__(self, session: Session) -> list[Any]:
        self._written.clear()
        try:
            rows = self.source(session)
        except CollectionAbsent:
            rows = self.source.absent()
        try:
            writer = Writer(session, self.output.collection)
        except CollectionAbsent:
            self._created.add(self.output.collection)
            self._write_all(session, _NewCollection(), rows)
            raise
        if self.output.replaces:
            DeleteMatching(self.output.collection, Filter())(session)
        self._write_all(session, writer, rows)
        return AggregationResults()

    def written(self, _: Session) -> Written:
        return self._written.items()

    def _write_all(
        self, session: Session, writer: Writer | _NewCollection, rows: list[Any]
    ) -> None:
        compares_ids = not self.output.replaces and not self._created
        if self.output.on or (self.collation is not None and compares_ids):
            self._unique_index(writer)
        with placed(self.place):
            for row in rows:
                self._write(session, writer, row)

    def _unique_index(self, writer: Writer | _NewCollection) -> Index:
        """Return the unique index of `on`; raise `InvalidPipeline` if several documents could have the same values there. Ids are
        unique by code point.
        """
        wanted = {Path(*keys) for keys in self.output.on}
        for each in writer.statements.options.indexes if isinstance(writer, Writer) else ():
            if (
                each.unique
                and each.where is None
                and not each.sparse
                and each.serves(self.collation)
                and {f.target for f in each.sort.fields} == wanted
            ):
                return each
        problem = (
            "requires a unique index of these fields that is neither sparse nor partial: "
            "create_index(..., unique=True)"
        )
        if self.collation is not None:
            problem = (
                "requires fields with a unique index under the collation of the call that is neither sparse nor "
                "partial: the ids have none"
            )
        raise InvalidPipeline(f"{self.place}.on", problem)

    def _write(self, session: Session, writer: Writer | _NewCollection, row: Any) -> None:
        id, body = self._id(row.get("_id", row.get("id", MISSING))), row["body"]
        if isinstance(body, dict):
            body = {key: value for key, value in body.items() if key != "_id"}
        found = None
        if isinstance(writer, _NewCollection):
            found = writer.found(id)
        elif not self.output.replaces:
            found = self._found(session, id, body)
        if found is None or self.output.replaces:
            self._insert(writer, new_id() if id is None else id, body)
            return
        if self.output.matched == "fail":
            raise self._duplicate(session, writer, id, body)
        new = self._new_body(session, found, body, row)
        if new is MISSING or identical(new, found.body, ordered=session.database.ordered_keys):
            return
        if not writer.rewrite(found, self._text(found.id, new)):
            raise changed_by_others(self)

    def _id(self, given: Any) -> str | None:
        if given is MISSING:
            return None
        if not isinstance(given, str):
            problem = f"requires a string as _id, got {named(given)}: use $toString"
            raise InvalidOperand(name_at(self.place), problem, given)
        return check_id(given)

    def _found(self, session: Session, id: str | None, body: Any) -> Document | None:
        name = self.output.collection
        if not self.output.on:
            return None if id is None else GetDocument(name, id)(session)
        tests = [Field(Path(*keys), Equals(self._value(keys, body))) for keys in self.output.on]
        alike = Filter(And(tuple(tests))).collated(self.collation)
        found = Find(name, alike, limit=1)(session)
        return found[0] if found else None

    def _value(self, keys: Keys, body: Any) -> Value:
        value = body
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if value is None or isinstance(value, list):
            problem = f"requires a value at {'.'.join(keys)} that is no array, got {named(value)}"
            raise InvalidOperand(name_at(self.place), problem, value)
        return Value.of(value, self.codec)

    def _insert(self, writer: Writer | _NewCollection, id: str, body: Any) -> None:
        if self.output.unmatched == "fail":
            raise DocumentNotFound(self.output.collection, id)
        if self.output.unmatched == "insert" and not writer.insert(id, self._text(id, body), None):
            raise id_taken(self.output.collection, id)

    def _new_body(self, session: Session, found: Document, body: Any, row: Any) -> Any:
        if self.output.matched in {"merge", "replace"} and row.get("_id", found.id) != found.id:
            problem = f"must not change _id from {named(found.id)} to {named(row['_id'])}"
            raise InvalidOperand(name_at(self.place), f"{problem}: unset _id before", row["_id"])
        match self.output.matched:
            case "merge" if isinstance(found.body, dict) and isinstance(body, dict):
                return {**found.body, **body}
            case "merge" | "replace":
                return body
            case "keepExisting":
                return MISSING
        ordered = session.database.ordered_keys
        by = under(self.collation, ordered)
        context = Context(NoCollections(), self.memory_limit, by, self.variables)
        variables = {
            name: row["body"] if each == WHOLE else row["let"].get(name, MISSING)
            for name, each in self.output.variables
        }
        inner = replace(context, variables={**self.variables, **variables})
        [row] = run(self.output.steps, [found], inner)
        return self._without_id(found, row.body)

    def _duplicate(
        self, session: Session, writer: Writer | _NewCollection, id: str | None, body: Any
    ) -> DuplicateKey:
        """Return the error of an insertion: of the index of the ids, or else of that of `on`."""
        name = self.output.collection
        if id is not None and (not self.output.on or GetDocument(name, id)(session) is not None):
            return id_taken(name, id)
        index = self._unique_index(writer)
        key = {str(path): reduce(getitem, path.keys, body) for path in index.paths}
        return DuplicateKey(name, index.name, key, id)

    def _without_id(self, found: Document, body: Any) -> Any:
        """Return a new body without the id of its document in `_id`. Raise `InvalidOperand` for another `_id`, unless
        the stored body has it.
        """
        before = found.body.get("_id", MISSING) if isinstance(found.body, dict) else MISSING
        given = body.get("_id", MISSING) if isinstance(body, dict) else MISSING
        if given is MISSING or (before is not MISSING and identical(given, before)):
            return body
        if given != found.id:
            problem = f"must not change _id from {named(found.id)} to {named(given)}"
            raise InvalidOperand(name_at(self.place), problem, given)
        return {key: value for key, value in body.items() if key != "_id"}

    def _text(self, id: str, body: Any) -> str:
        if self.output.collection == self.source.collection:
            text = self.codec.encode_updated(body)
        else:  # a model of the source's collection says nothing of this one
            text = Codec.encode_body(self.codec, body)
        self._written[id] = text
        return text


class _NewCollection:
    """Takes the writes to a collection that does not exist, in memory. They raise their errors before the collection is
    created, so a failed pipeline leaves no collection.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def found(self, id: str | None) -> Document | None:
        return Document(id, decode(self._texts[id])) if id in self._texts else None

    def insert(self, id: str, text: str, _: None) -> bool:
        if id in self._texts:
            return False
        self._texts[id] = text
        return True

    def rewrite(self, document: Document, text: str) -> bool:
        self._texts[document.id] = text
        return True


def merge_of(source: Aggregate, step: PlacedStage, codec: Codec) -> Merge:
    """Return the operation of a pipeline that ends with `step`."""
    assert isinstance(step.stage, Output)
    parts = source.memory_limit, source.variables(), codec
    return Merge(source, step.place, step.stage, *parts, collation=source.collation)
