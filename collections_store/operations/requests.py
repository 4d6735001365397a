"""Operations built from write requests: `UpdateOne` and the others, and the methods of the same names."""

from __future__ import annotations

from typing import Any, Final

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
    UpdateResult,
    check_id,
    new_id,
    read_ttl,
)
from ..errors import InvalidOption, shortened
from ..options import check_flag, check_version
from ..query.sort import Sort
from ..update import Update, read_replacement
from .by_id import Insert
from .find import DeleteFirst, DeleteMatching, parse_required, read_projection
from .operation import Operation
from .update import Answer, FindAndDelete, Modification, ModifyMany, ModifyOne, Replacement


class ReturnDocument:
    """Which document `find_one_and_update` and `find_one_and_replace` return.

    >>> ReturnDocument.AFTER
    True
    """

    BEFORE: Final = False
    """As it was found."""
    AFTER: Final = True
    """As it is now."""


def operation_of(collection: str, codec: Codec, request: Request) -> Operation[Any]:
    """Return the operation of a request; raises what is wrong with it."""
    match request:
        case InsertOne(body, id=id, ttl=ttl):
            id = new_id() if id is None else check_id(id)
            return Insert(collection, id, codec.encode(body), read_ttl(ttl), unique=True)
        case UpdateOne() | UpdateMany() | ReplaceOne():
            return update_of(collection, codec, request)
        case DeleteOne(filter):
            return DeleteFirst(collection, parse_required(filter, ..., codec))
        case DeleteMany(filter):
            return DeleteMatching(collection, parse_required(filter, ..., codec))
    problem = f"must be write requests (InsertOne, UpdateOne, …), got {shortened(request)}"
    raise InvalidOption("requests", problem)


def update_of(
    collection: str, codec: Codec, request: UpdateOne | UpdateMany | ReplaceOne
) -> Operation[UpdateResult]:
    """Return the operation of `update_one`, `update_many` or `replace_one`."""
    if isinstance(request, UpdateMany):
        filter = parse_required(request.filter, ..., codec)
        return ModifyMany(collection, _modification(codec, request), filter)
    return _modify_one(collection, codec, request)


def update_by_id(
    collection: str, codec: Codec, id: Any, request: UpdateOne, if_version: Any
) -> Operation[UpdateResult]:
    """Return the operation of `update`."""
    modification, expected = _modification(codec, request), check_version(if_version)
    return ModifyOne(collection, modification, id=check_id(id), expected=expected)


def find_and_modify(
    collection: str,
    codec: Codec,
    request: UpdateOne | ReplaceOne,
    *,
    projection: Any,
    return_document: Any,
    if_version: Any = None,
) -> Operation[Document | None]:
    """Return the operation of `find_one_and_update` or `find_one_and_replace`."""
    after = check_flag("return_document", return_document)
    expected = check_version(if_version)
    if expected is not None and request.upsert:
        raise InvalidOption("if_version", "does not go with upsert: a new document has no version")
    options = {"answer": "after" if after else "before", "projection": projection}
    return _modify_one(collection, codec, request, expected=expected, **options)


def find_and_delete(
    collection: str, codec: Codec, filter: Any, *, sort: Any, projection: Any
) -> FindAndDelete:
    """Return the operation of `find_one_and_delete`."""
    parsed = parse_required(filter, ..., codec)
    parts = read_projection(projection, parsed, codec)
    return FindAndDelete(collection, parsed, Sort.parse(sort), parts)


def _modify_one(
    collection: str,
    codec: Codec,
    request: UpdateOne | ReplaceOne,
    *,
    answer: Answer = "result",
    projection: Any = None,
    expected: int | None = None,
) -> ModifyOne:
    filter = parse_required(request.filter, ..., codec)
    parts = read_projection(projection, filter, codec)
    modification, sort = _modification(codec, request), Sort.parse(request.sort)
    options: dict[str, Any] = {"answer": answer, "projection": parts, "expected": expected}
    return ModifyOne(collection, modification, filter, sort, **options)


def _modification(codec: Codec, request: UpdateOne | UpdateMany | ReplaceOne) -> Modification:
    upsert = check_flag("upsert", request.upsert)
    if isinstance(request, ReplaceOne):
        body = read_replacement(request.replacement, codec)
        return Modification(Replacement(body), codec, upsert)
    update = Update.parse(request.update, array_filters=request.array_filters, rules=codec)
    return Modification(update, codec, upsert)
