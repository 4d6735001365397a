"""Operations from the arguments of a collection's methods, and from write requests, for sync and async alike."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..aggregation.change_pipeline import ChangePipeline
from ..codec import Codec
from ..document import (
    DeleteMany,
    DeleteOne,
    Document,
    InsertOne,
    ReplaceOne,
    Request,
    UpdateMany,
    UpdateOne,
    check_id,
    new_id,
    now,
    read_ttl,
)
from ..errors import (
    InvalidFilter,
    InvalidIndex,
    InvalidOption,
    missing_method,
    refuse_pickling,
    shortened,
)
from ..expressions.collation import Collation
from ..expressions.evaluation import MEMORY_LIMIT
from ..options import (
    CallOptions,
    check_flag,
    check_function,
    check_integer,
    check_iterable,
    check_version,
)
from ..options.calls import NO_OPTIONS, PLAIN, CallContext, read_hint
from ..query.change import ChangeFilter
from ..query.conditions import read_target
from ..query.explanation import Explanation
from ..query.filter import Filter
from ..query.index import Index, read_index_name
from ..query.sort import NATURAL, Sort
from ..query.text_index import TextIndex
from ..query.vector_index import VectorIndex
from ..results import (
    BulkWriteResult,
    DeleteResult,
    InsertManyResult,
    Page,
    PutManyResult,
    SearchPage,
    SearchResult,
    UpdateResult,
)
from ..search.chunks import cut_of
from ..search.embedders import Embedder
from ..search.fusion import TIER
from ..update import Update, read_replacement
from .by_id import Insert, Put, Replace
from .called import called, called_batches
from .editing import Editing
from .embedding import create_vector_index, find_nearest
from .explain import Explain
from .find import (
    Batches,
    Count,
    Distinct,
    Find,
    FindByIds,
    FindIdPrefixes,
    FindIdRange,
    FindPage,
    batches_of,
    check_page,
    check_part,
    check_window,
    read_id_range,
    read_ids,
    read_projection,
)
from .hybrid import Hybrid
from .indexes import CreateIndex
from .operation import Operation, Steps
from .procedures import Writing, bulk_write, change, check_mode, encoded
from .scores import find_scored
from .search import FindWords, read_marks, words_of
from .update import (
    Answer,
    DeleteFirst,
    DeleteMatching,
    FindAndDelete,
    Increment,
    Modification,
    ModifyMany,
    ModifyOne,
    Replacement,
    read_increment,
)

if TYPE_CHECKING:
    from .aggregate import Aggregate

_GREATEST: Final = sys.float_info.max


class ReturnDocument:
    """Which document `find_one_and_update` and `find_one_and_replace` return.

    >>> ReturnDocument.AFTER
    True
    """

    BEFORE: Final = False
    """The document before the change."""
    AFTER: Final = True
    """The document after the change."""


class OperationBuilder:
    """The base of collections: `_find` returns the operation of `find`, for example. A method of several operations has
    a procedure. Each builder checks the arguments.

    Every body passes two places: `_codec` encodes a body before the write, and `_run` of a collection returns a body.
    """

    __slots__ = ("_codec", "name")

    _codec: Codec
    name: str
    __reduce__ = refuse_pickling

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    if not TYPE_CHECKING:  # a type checker that saw this would take any misspelt name

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(missing_method(type(self).__name__, name), name=name, obj=self)

    # -- writes ------------------------------------------------------------------------------

    def _put(
        self, id: Any, body: Any, ttl: Any, if_version: Any, if_absent: Any
    ) -> Put | Insert | Replace:
        id, text = check_id(id), self._codec.encode_body(body)
        return put_of(self.name, id, text, ttl, if_version, if_absent)

    def _request(self, request: Request, call: CallContext) -> Operation[Any]:
        """Return the operation of a write request of a call."""
        hint, collation = (getattr(request, each, None) for each in ("hint", "collation"))
        if hint is not None:
            call = replace(call, hint=read_hint(hint))
        if collation is not None:
            call = replace(call, collation=Collation.parse(collation))
        match request:
            case InsertOne(body, id=id, ttl=ttl):
                return self._insert_one(body, id, ttl)
            case UpdateOne() | UpdateMany() | ReplaceOne():
                return self._modify(request, call=call)
            case DeleteOne(filter):
                return self._delete_one(filter, call=call)
            case DeleteMany(filter):
                return self._delete_many(filter, call=call)
        problem = f"must be write requests (InsertOne, UpdateOne, …), got {shortened(request)}"
        raise InvalidOption("requests", problem)

    def _insert_one(self, body: Any, id: Any, ttl: Any, beside: Any = None) -> Insert:
        text = encoded(self._codec, body) if id is None else self._codec.encode_body(body)
        id = new_id() if id is None else check_id(id)
        other = None if beside is None else (self.name, check_id(beside))
        return Insert(self.name, id, text, read_ttl(ttl), unique=True, beside=other)

    def _modify(
        self,
        request: UpdateOne | UpdateMany | ReplaceOne,
        answer: Answer = "result",
        projection: Any = None,
        expected: int | None = None,
        *,
        call: CallContext,
    ) -> Operation[UpdateResult]:
        """Return the operation of `update_one`, `update_many` or `replace_one`."""
        time = now() if call.time is None else call.time
        filter = self._filter(request.filter, required=True, call=call, time=time)
        if isinstance(request, UpdateMany):
            many = ModifyMany(self.name, self._modification(request, time, call), filter)
            return called(many, call)
        parts = None
        if projection is not None:
            parts = read_projection(projection, filter, self._codec, call, time)
        modification = self._modification(request, time, call)
        sort = self._order(request.sort, collation=call.collation)
        given: dict[str, Any] = {"answer": answer, "projection": parts, "expected": expected}
        decode = self._codec.decode_body
        one = ModifyOne(self.name, modification, filter, sort, **given, decode=decode)
        return called(one, call)

    def _update(self, id: Any, request: UpdateOne, if_version: Any) -> Operation[UpdateResult]:
        modification, expected = self._modification(request, now()), check_version(if_version)
        return ModifyOne(self.name, modification, id=check_id(id), expected=expected)

    def _find_and_modify(
        self,
        request: UpdateOne | ReplaceOne,
        projection: Any,
        return_document: Any,
        options: CallOptions,
        if_version: Any = None,
    ) -> Operation[Document | None]:
        after = check_flag("return_document", return_document)
        expected = check_version(if_version)
        if expected is not None and request.upsert:
            problem = "does not go with upsert: a new document has no version"
            raise InvalidOption("if_version", problem)
        answer: Answer = "after" if after else "before"
        operation: Any = self._modify(
            request, answer, projection, expected, call=self._call(options) if options else PLAIN
        )
        return operation  # type: ignore[no-any-return]

    def _find_and_delete(
        self, filter: Any, sort: Any, projection: Any, options: CallOptions
    ) -> Operation[Document | None]:
        call = self._call(options) if options else PLAIN
        time = _time(call, projection)
        parsed = self._filter(filter, required=True, call=call, time=time)
        parts = read_projection(projection, parsed, self._codec, call, time)
        order = self._order(sort, collation=call.collation)
        delete = FindAndDelete(self.name, parsed, order, parts, self._codec.decode_body)
        return called(delete, call)

    def _modification(
        self, request: UpdateOne | UpdateMany | ReplaceOne, time: int, call: CallContext = PLAIN
    ) -> Modification:
        codec, upsert = self._codec, check_flag("upsert", request.upsert)
        if isinstance(request, ReplaceOne):
            body = read_replacement(request.replacement, codec)
            return Modification(Replacement(body), codec, upsert, time, call.collation)
        filters, let = request.array_filters, call.let
        update = Update.parse(request.update, array_filters=filters, codec=codec, variables=let)
        if not codec.is_plain:
            codec.check_fields(update, "update")
        return Modification(update, codec, upsert, time, call.collation)

    def _delete_one(
        self, filter: Any, equals: Any = ..., *, call: CallContext
    ) -> Operation[DeleteResult]:
        parsed = self._filter(filter, equals, required=True, call=call)
        return called(DeleteFirst(self.name, parsed), call)

    def _delete_many(
        self, filter: Any, equals: Any = ..., *, call: CallContext
    ) -> Operation[DeleteResult]:
        parsed = self._filter(filter, equals, required=True, call=call)
        return called(DeleteMatching(self.name, parsed), call)

    def _call(self, options: CallOptions) -> CallContext:
        """Return the validated options of a call."""
        return CallContext.parse(options, self._codec)

    def _filter(self, filter: Any, equals: Any = ..., **options: Any) -> Filter:
        """Parse and simplify a filter: see `_sealed_filter`."""
        return self._sealed_filter(filter, equals, **options).simplified()

    def _sealed_filter(
        self,
        filter: Any,
        equals: Any = ...,
        *,
        required: bool = False,
        call: CallContext = PLAIN,
        time: int | None = None,
    ) -> Filter:
        """Parse a filter of a call that began at `time`, by default that of `call` or now; the filter of a write is
        `required`: `{}` for all documents, never None. Cursors seal the filter as given, not simplified.
        """
        if required and filter is None:
            raise InvalidFilter("", "must be given, got None: {} matches all documents")
        if call.let:
            parsed = Filter.parse(filter, equals, self._codec, frozenset(call.let))
        else:
            parsed = Filter.parse(filter, equals, self._codec)
        if not self._codec.is_plain:
            self._codec.check_fields(parsed)
        if parsed.plain is not None and call.collation is None:
            return parsed  # without expressions
        return parsed.at(call.time if time is None else time, call.let).collated(call.collation)

    def _sort(self, sort: Any, *, scored: bool = False, collation: Collation | None = None) -> Sort:
        order = Sort.parse(sort, scored=scored)
        if not self._codec.is_plain:
            self._codec.check_fields(order, "sort")
        return order.collated(collation)

    def _order(
        self,
        sort: Any,
        limit: int | None = 1,
        *,
        scored: bool = False,
        collation: Collation | None = None,
    ) -> Sort | None:
        """Return the order of a read; None: the order of the index that serves the filter."""
        if sort is not None:
            return self._sort(sort, scored=scored, collation=collation)
        return NATURAL if limit is None else None

    def _increment(self, id: Any, path: Any, by: Any, initial: Any) -> Increment:
        read = read_increment(path, by, initial)
        self._codec.check_fields(read, "update")
        return Increment(self.name, check_id(id), read, by, initial, self._codec)

    def _put_many(self, bodies: Any, mode: Any, ttl: Any, atomic: Any) -> Steps[PutManyResult]:
        options = check_mode(mode), read_ttl(ttl), check_flag("atomic", atomic)
        writing = Writing(self.name, self._codec, *options)
        return writing.put(check_iterable("bodies", bodies))

    def _insert_many(self, bodies: Any, ttl: Any, atomic: Any) -> Steps[InsertManyResult]:
        options = read_ttl(ttl), check_flag("atomic", atomic)
        writing = Writing(self.name, self._codec, "insert", *options, "insert_many")
        return writing.insert(check_iterable("bodies", bodies))

    def _bulk_write(
        self, requests: Iterable[Request], ordered: Any, atomic: Any, options: CallOptions
    ) -> Steps[BulkWriteResult]:
        call = self._call(options) if options else PLAIN
        if call.hint is not None:
            raise InvalidOption("hint", "belongs to a write request: UpdateOne(..., hint=...)")
        flags = {"ordered": check_flag("ordered", ordered), "atomic": check_flag("atomic", atomic)}
        read = check_iterable("requests", requests)
        time = now() if call.time is None else call.time
        parse = partial(self._request, call=replace(call, comment=None, time=time))
        return bulk_write(self.name, parse, read, call, **flags)

    def _change(self, id: Any, function: Any, default: Any, ttl: Any, attempts: Any) -> Steps[Any]:
        life, most = read_ttl(ttl), check_integer("attempts", attempts)
        options = {"default": default, "ttl": life, "attempts": most}
        checked = check_id(id), check_function("function", function)
        return change(self.name, self._codec, *checked, options)

    def _edit(self, id: Any, attempts: Any) -> Editing:
        most = check_integer("attempts", attempts)
        return Editing(self.name, self._codec, check_id(id), most)

    # -- reads and indexes -------------------------------------------------------------------

    def _find(  # noqa: PLR0917 - as the method has them
        self,
        filter: Any,
        equals: Any,
        sort: Any,
        skip: Any,
        limit: Any,
        projection: Any,
        options: CallOptions = NO_OPTIONS,
        method: str = "find",
    ) -> Operation[list[Document]]:
        call = self._call(options) if options else PLAIN
        window = check_window(skip, limit)
        end = limit if call.hint is None else 1
        order = self._order(sort, end, scored=True, collation=call.collation)
        is_plain = equals is ... and projection is None and type(filter) is dict
        by_ids = call.hint is None and call.collation is None
        if is_plain and by_ids and len(filter) == 1 and "$id" in filter:
            if ids := read_id_range(filter["$id"], order):
                found = FindIdRange(self.name, *ids, *window, self._codec.decode_body, method)
                return called(found, call)
            if not order and window == (0, None) and (some := read_ids(filter["$id"])):
                listed = FindByIds(self.name, some, self._codec.decode_body, method)
                return called(listed, call)
        time, parts = _time(call, projection), None
        parsed = self._filter(filter, equals, call=call, time=time)
        if projection is not None:
            parts = read_projection(projection, parsed, self._codec, call, time, scored=True)
        by_score = order is not None and order is not NATURAL and order.by_score
        if by_score or (parts is not None and parts.has_score):
            given = order or NATURAL, *window, parts, self._codec.decode_body, method
            return called(find_scored(self.name, parsed, *given), call)
        find = Find(self.name, parsed, order, *window, parts, self._codec.decode_body, method)
        return find if call is PLAIN else called(find, call)

    def _page(  # noqa: PLR0917 - as the method has them
        self,
        filter: Any,
        equals: Any,
        sort: Any,
        limit: Any,
        after: Any,
        projection: Any,
        options: CallOptions,
    ) -> Operation[Page]:
        call = self._call(options) if options else PLAIN
        time = _time(call, projection)
        parsed = self._sealed_filter(filter, equals, call=call, time=time)
        parts = read_projection(projection, parsed, self._codec, call, time)
        window = check_page(limit), after
        order = self._sort(sort, collation=call.collation)
        page = FindPage(self.name, parsed, order, *window, parts, self._codec.decode_body)
        return called(page, call)

    def _id_prefixes(self, delimiter: Any, prefix: Any, after: Any, limit: Any) -> FindIdPrefixes:
        parts = check_part("prefix", prefix), check_part("delimiter", delimiter)
        if not delimiter:
            raise InvalidOption("delimiter", "must be one or more characters, got ''")
        last = None if after is None else check_part("after", after)
        return FindIdPrefixes(self.name, *parts, last, check_window(0, limit)[1])

    def _search(  # noqa: PLR0917 - as the method has them
        self,
        query: Any,
        filter: Any,
        limit: Any,
        offset: Any,
        after: Any,
        highlight: Any,
        match: Any,
    ) -> FindWords:
        words = words_of(query, match)
        skip, _ = check_window(offset, None)
        if skip and after is not None:
            raise InvalidOption("offset", "does not go with after: a cursor is a position itself")
        parsed, marks = self._sealed_filter(filter), read_marks(highlight)
        window = check_page(limit), skip, after
        return FindWords(self.name, words, parsed, *window, marks, self._codec.decode_body)

    def _hybrid(
        self,
        query: Any,
        meaning: Any,
        options: dict[str, Any],
        index: Any,
        diversity: Any,
        *,
        store: bool,
    ) -> Steps[SearchPage[Any]]:
        if options["after"] is not None:
            raise InvalidOption("after", "does not go with meaning: use offset")
        is_share = isinstance(diversity, int | float) and 0 <= diversity <= 1
        if diversity is not None and not is_share:
            raise InvalidOption("diversity", f"must be from 0 to 1, got {shortened(diversity)}")
        limit, skip = check_page(options["limit"]), check_window(options["offset"], None)[0]
        depth = -(-(skip + limit) // TIER) * TIER
        words = None
        if query is not None:
            some = options["filter"], depth, 0, None, options["highlight"], options["match"]
            words = self._search(query, *some)
        near = self._nearest(meaning, depth, options["filter"], None, index, store=store)
        return Hybrid(words, near, self.name, index, skip, limit, diversity).steps()

    def _count(self, filter: Any, equals: Any, options: CallOptions) -> Operation[int]:
        call = self._call(options) if options else PLAIN
        count = Count(self.name, self._filter(filter, equals, call=call))
        return count if call is PLAIN else called(count, call)

    def _distinct(self, field: Any, filter: Any, options: CallOptions) -> Operation[list[Any]]:
        call = self._call(options) if options else PLAIN
        parsed = self._filter(filter, call=call)
        target = read_target(field, InvalidFilter)
        self._codec.check_fields(target, "field")
        return called(Distinct(self.name, target, parsed, call.collation), call)

    def _explain(  # noqa: PLR0917 - as the method has them
        self, filter: Any, equals: Any, sort: Any, skip: Any, limit: Any, options: CallOptions
    ) -> Operation[Explanation]:
        call = self._call(options) if options else PLAIN
        parsed = self._filter(filter, equals, call=call)
        window = check_window(skip, limit)
        end = limit if call.hint is None else 1
        order = self._order(sort, end, collation=call.collation)
        return called(Explain(self.name, parsed, order, *window), call)

    def _aggregate(
        self, pipeline: Any, memory_limit: Any, allow_disk_use: Any, options: CallOptions
    ) -> Operation[list[Any]]:
        call = self._call(options) if options else PLAIN
        source = self._aggregated(pipeline, memory_limit, allow_disk_use, call)
        reading, last = source.pipeline.output()
        if last is None:
            return called(source, call)
        from .merge import merge_of

        merge = merge_of(replace(source, pipeline=reading), last, self._codec)
        merge = replace(merge, source=called(merge.source, call))
        return called(merge, replace(call, hint=None))

    def _aggregated(
        self, pipeline: Any, memory_limit: Any, allow_disk_use: Any, call: CallContext
    ) -> Aggregate:
        """Return the operation that runs a pipeline, whose last stage may write."""
        from ..aggregation.pipeline import Pipeline
        from .aggregate import Aggregate, check_memory

        time = now() if call.time is None else call.time
        parsed = Pipeline.parse(pipeline, self._codec, call.let, call.collation, time)
        if not self._codec.is_plain:
            for _, match in parsed.leading_matches():
                self._codec.check_fields(match.filter, "pipeline")
        memory = check_memory(memory_limit)
        spills = check_flag("allow_disk_use", allow_disk_use)
        read = parsed.at(time, call.let).collated(call.collation)
        limits: Any = {"allow_disk_use": spills, "collation": call.collation}
        return Aggregate(self.name, read, memory, time, call.let, **limits)

    def _explain_aggregate(self, pipeline: Any, options: CallOptions) -> Operation[Explanation]:
        from .explain_aggregate import ExplainAggregate

        call = self._call(options) if options else PLAIN
        source = self._aggregated(pipeline, MEMORY_LIMIT, False, call)
        return called(ExplainAggregate(source), call)

    def _stream_aggregate(
        self, pipeline: Any, memory_limit: Any, allow_disk_use: Any, options: CallOptions
    ) -> Batches:
        from .aggregate_stream import aggregate_batches

        call = self._call(options) if options else PLAIN
        source = self._aggregated(pipeline, memory_limit, allow_disk_use, call)
        return called_batches(aggregate_batches(source), call)

    def _stream(
        self, filter: Any, equals: Any, sort: Any, projection: Any, options: CallOptions
    ) -> Batches:
        call = self._call(options) if options else PLAIN
        time = _time(call, projection)
        parsed = self._filter(filter, equals, call=call, time=time)
        parts = read_projection(projection, parsed, self._codec, call, time)
        order = self._sort(sort, collation=call.collation)
        batches = batches_of(self.name, parsed, order, parts, self._codec)
        return called_batches(batches, call)

    def _watched(self, filter: Any, kinds: Any, pipeline: Any) -> ChangeFilter | ChangePipeline:
        if pipeline is not None:
            if filter is not None or kinds is not None:
                problem = "takes the place of filter and kinds: begin the pipeline with a $match"
                raise InvalidOption("pipeline", problem)
            return ChangePipeline.parse(pipeline, self._codec)
        parsed = ChangeFilter.parse(filter, kinds, self._codec)
        self._codec.check_fields(parsed.filter)
        return parsed

    def _create_vector_index(
        self, fields: Any, options: dict[str, Any], embed: Any, chunks: Any, *, again: bool = False
    ) -> Steps[str]:
        embedder = None
        if chunks is not None and embed is None:
            raise InvalidIndex(
                "chunks", "goes with embed= alone: without it, fields have vectors, not texts"
            )
        if embed is not None:
            cut = None if chunks is None else cut_of(chunks)
            embedder = Embedder.of(embed, options["model"], cut)
            if embedder.model is None:
                raise InvalidIndex("model", "must be the name of the model of embed, got None")
            options = {**options, "model": embedder.model}
        index = VectorIndex.parse(fields, **options)
        for path in index.paths:
            self._codec.check_fields(path, "index")
        return create_vector_index(self.name, index, embedder, again=again)

    def _nearest(
        self, query: Any, k: Any, filter: Any, min_score: Any, index: Any, *, store: bool
    ) -> Steps[list[SearchResult[Any]]]:
        parsed, most = self._filter(filter), check_integer("k", k)
        is_number = isinstance(min_score, int | float) and -_GREATEST <= min_score <= _GREATEST
        if min_score is not None and not is_number:
            raise InvalidOption("min_score", f"must be a finite number, got {shortened(min_score)}")
        name = None if index is None else read_index_name(index)
        limits = most, parsed, min_score
        return find_nearest(self.name, query, name, *limits, self._codec.decode_body, store=store)

    def _create_text_index(self, fields: Any, **options: Any) -> CreateIndex:
        index = TextIndex.parse(fields, **options)
        for path, _ in index.weights:
            self._codec.check_fields(path, "index")
        return CreateIndex(self.name, index)

    def _create_index(self, keys: Any, options: dict[str, Any]) -> CreateIndex:
        index = Index.parse(keys, **options)
        self._codec.check_fields(index, "index")
        return CreateIndex(self.name, index)


def _time(call: CallContext, projection: Any) -> int | None:
    """Return the time of `$$NOW` in a filter and a projection; None: only the filter can have it."""
    return now() if call.time is None and projection is not None else call.time


def put_of(  # noqa: PLR0917 - as the method has them
    collection: str, id: str, text: str, ttl: Any, if_version: Any, if_absent: Any
) -> Put | Insert | Replace:
    """Return the operation of a `put`; raise `InvalidOption`."""
    life, expected = read_ttl(ttl), check_version(if_version)
    if not check_flag("if_absent", if_absent):
        if expected is None:
            return Put(collection, id, text, life)
        return Replace(collection, id, text, expected, life)
    if expected is not None:
        raise InvalidOption(
            "if_absent", "cannot be combined with if_version: a missing document has no version"
        )
    return Insert(collection, id, text, life)
