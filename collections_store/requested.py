"""Requests to operations: what `update_one` and its like ask for, read and checked."""

from __future__ import annotations

from typing import Any, Final

from . import requests
from .codec import Codec
from .document import Document, check_id, new_id
from .errors import InvalidOption, shortened
from .expiry import read_ttl
from .filter import Filter
from .operations import (
    Answer,
    DeleteMany,
    DeleteOne,
    FindAndDelete,
    Insert,
    Modification,
    ModifyMany,
    ModifyOne,
    Operation,
    Replacement,
    check_version,
    read_doomed,
    read_projection,
)
from .options import check_flag
from .ordering import Sort
from .requests import InsertOne, ReplaceOne, Request, UpdateMany, UpdateOne
from .results import UpdateResult
from .update import Update, read_replacement


class ReturnDocument:
    """Which object `find_one_and_update` and `find_one_and_replace` return.

    >>> ReturnDocument.AFTER
    True
    """

    BEFORE: Final = False
    """As it was found."""
    AFTER: Final = True
    """As it is now."""


def operation_of(collection: str, rules: Codec, request: Request) -> Operation[Any]:
    """Return the operation that a request asks for; raises what is wrong with it."""
    match request:
        case InsertOne(body, id=id, ttl=ttl):
            chosen = new_id() if id is None else check_id(id)
            return Insert(collection, chosen, rules.encode(body), read_ttl(ttl), unique=True)
        case UpdateOne() | UpdateMany() | ReplaceOne():
            return update_of(collection, rules, request)
        case requests.DeleteOne(filter):
            return DeleteOne(collection, read_doomed(filter, ..., rules))
        case requests.DeleteMany(filter):
            return DeleteMany(collection, read_doomed(filter, ..., rules))
    raise InvalidOption("requests", f"{shortened(request)} is no request: InsertOne, UpdateOne, …")


def update_of(
    collection: str, rules: Codec, request: UpdateOne | UpdateMany | ReplaceOne
) -> Operation[UpdateResult]:
    """Return the operation that changes one object, or many."""
    if isinstance(request, UpdateMany):
        asked = read_doomed(request.filter, ..., rules)
        return ModifyMany(collection, modification_of(rules, request), asked)
    return _one(collection, rules, request)


def modification_of(rules: Codec, request: UpdateOne | UpdateMany | ReplaceOne) -> Modification:
    """Return what a request wants to become of an object."""
    upsert = check_flag("upsert", request.upsert)
    if isinstance(request, ReplaceOne):
        return Modification(
            Replacement(read_replacement(request.replacement, rules)), rules, upsert
        )
    update = Update.parse(request.update, array_filters=request.array_filters, rules=rules)
    return Modification(update, rules, upsert)


def modify_by_id(
    collection: str, rules: Codec, id: Any, request: UpdateOne, if_version: Any
) -> Operation[UpdateResult]:
    """Return the operation of `update`."""
    modification, expected = modification_of(rules, request), check_version(if_version)
    return ModifyOne(collection, modification, id=check_id(id), expected=expected)


def find_and_modify(
    collection: str,
    rules: Codec,
    request: UpdateOne | ReplaceOne,
    *,
    projection: Any,
    return_document: Any,
) -> Operation[Document | None]:
    """Return the operation of `find_one_and_update` or `find_one_and_replace`."""
    after = check_flag("return_document", return_document)
    answer: Answer = "after" if after else "before"
    return _one(collection, rules, request, answer=answer, projection=projection)


def find_and_delete(
    collection: str, rules: Codec, filter: Any, *, sort: Any, projection: Any
) -> FindAndDelete:
    """Return the operation of `find_one_and_delete`."""
    asked = read_doomed(filter, ..., rules)
    parts = read_projection(projection, asked, rules)
    return FindAndDelete(collection, asked, Sort.parse(sort), parts)


def _one(
    collection: str,
    rules: Codec,
    request: UpdateOne | ReplaceOne,
    *,
    answer: Answer = "result",
    projection: Any = None,
) -> ModifyOne:
    asked: Filter = read_doomed(request.filter, ..., rules)
    parts = read_projection(projection, asked, rules)
    options: dict[str, Any] = {"answer": answer, "projection": parts}
    modification, sort = modification_of(rules, request), Sort.parse(request.sort)
    return ModifyOne(collection, modification, asked, sort, **options)
