"""The pages that compare the store with another one, as after a copy. They only read, both stores."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from ..codec import canonical
from ..document import Document
from ..errors import CollectionNotFound, InvalidOption
from ..operations.copying import ListStored, StoredCollection
from ..operations.survey import CollectionSurvey, Survey
from ..results import UpgradeSample
from .collection import affordable
from .pages import Call, PageRoute, as_json

if TYPE_CHECKING:
    from starlette.responses import Response

    from ..collection import Collection
    from ..store import Store

MOST: Final = 50
"""Collections, or differing documents, on a page."""
READ: Final = 500
"""Documents that one operation reads."""
PATIENCE: Final = 2.0
"""Seconds for which a page reads documents."""
SIDES: Final = ("only here", "only in the other store")
_FIELDS: Final = ("version", "created_at", "updated_at", "expires_at")
_NO_OPTIONS: Final = ("format", "indexes", "text", "substrings", "vector_indexes")
"""Keys of stored options that are about indexes."""

Stored = tuple[StoredCollection | None, StoredCollection | None]


@dataclass(frozen=True, slots=True)
class ComparedCollection:
    """A collection of either store. `problems` are the differences, except those of documents."""

    name: str
    surveys: list[CollectionSurvey | None]
    problems: list[str]


@dataclass(frozen=True, slots=True)
class Difference:
    """A document that differs. `documents` has one or both, by the side; `problems` names what differs."""

    id: str
    documents: dict[int, Document]
    problems: list[str]

    @property
    def diff(self) -> list[str]:
        """The lines of the difference of two bodies, or of a body that the other store does not have."""
        if len(self.documents) == 2:
            here, there = (self.documents[side].body for side in (0, 1))
            return UpgradeSample(self.id, here, there).diff().splitlines()
        [(side, document)] = self.documents.items()
        return [f"{'-+'[side]} {line}" for line in as_json(document.body, 2).splitlines()]


def has_other(call: Call) -> bool:
    """Return whether the studio has a second store."""
    return call.studio.other is not None


def _stores(call: Call) -> tuple[Store, Store]:
    if call.studio.other is None:
        raise InvalidOption("--compare", "must be given to compare the store with another one")
    return call.store, call.studio.other


def _stored(call: Call) -> dict[str, Stored]:
    """Return the entries of the collections of both stores, by name."""
    here, there = ({each.name: each for each in s.run(ListStored())} for s in _stores(call))
    return {name: (here.get(name), there.get(name)) for name in sorted({*here, *there})}


# -- collections -----------------------------------------------------------------------------------


def show_comparison(call: Call) -> Response:
    """Show the collections of both stores with their numbers of documents, `MOST` on a page."""
    found = {name: each for name, each in _stored(call).items() if name > call.query("after")}
    rows = []
    for name in [*found][:MOST]:
        surveys = [each.run(Survey(name, 1)) for each in _stores(call)]
        rows.append(ComparedCollection(name, surveys, _problems(found[name])))
    after = rows[-1].name if len(found) > MOST else None
    return call.render("comparison.html", rows=rows, after=after)


def _problems(stored: Stored) -> list[str]:
    """Return what differs in the entries of a collection."""
    here, there = stored
    if here is None or there is None:
        return [SIDES[here is None]]
    names = [name for name, *_ in _options(here, there)]
    return [*names, "indexes"] if _indexes(here, there) else names


def _options(here: StoredCollection, there: StoredCollection) -> list[tuple[str, str, str]]:
    """Return the names of different options, with both values as JSON."""
    names = sorted({*here.options, *there.options}.difference(_NO_OPTIONS))
    found = [(name, *(as_json(each.options.get(name)) for each in (here, there))) for name in names]
    return [(name, one, other) for name, one, other in found if one != other]


def _indexes(here: StoredCollection, there: StoredCollection) -> list[tuple[str, str]]:
    """Return the indexes that only one of two collections has, each with the side."""
    both = [{str(index) for index in each.indexes} for each in (here, there)]
    return [(each, SIDES[each in both[1]]) for each in sorted(both[0] ^ both[1])]


# -- documents -------------------------------------------------------------------------------------


def show_compared(call: Call) -> Response:
    """Show the differences of a collection: options, indexes, and documents in the order of their ids."""
    every = _stored(call)
    if call.name not in every:
        raise CollectionNotFound(call.name, every)
    here, there = every[call.name]
    differences, compared, after = _differences(call, call.request.query_params.get("after"))
    return call.render(
        "compared.html",
        missing=None if here and there else SIDES[here is None],
        options=_options(here, there) if here and there else [],
        indexes=_indexes(here, there) if here and there else [],
        differences=differences,
        compared=compared,
        after=after,
    )


def _differences(call: Call, after: str | None) -> tuple[list[Difference], int, str | None]:
    """Return the documents past the id `after` that differ, how many documents were compared, and the id after which to go
    on; None at the end.
    """
    found: list[Difference] = []
    surveys = [each.run(Survey(call.name, 10)) for each in _stores(call)]
    most, limit = (min(affordable(n, each) for each in surveys if each) for n in (MOST, READ))
    sides = [
        _in_order(side, store[call.name], after, limit) for side, store in enumerate(_stores(call))
    ]
    until, compared = time.monotonic() + PATIENCE, 0
    for id, group in groupby(merge(*sides, key=_id), key=_id):
        documents = {side: document for _, side, document in group}
        if problems := _differing(documents):
            found.append(Difference(id, documents, problems))
        compared += 1
        if len(found) == most or time.monotonic() > until:
            return found, compared, id
    return found, compared, None


def _id(item: tuple[str, int, Document]) -> str:
    return item[0]


def _in_order(
    side: int, collection: Collection, after: str | None, limit: int
) -> Iterator[tuple[str, int, Document]]:
    """Yield ids, the side and documents past an id, in the order of the ids. One batch of `limit` is in memory."""
    filter: dict[str, Any] = {} if after is None else {"$id": {"$gt": after}}
    cursor = None
    while True:
        page = collection.page(filter, sort="$id", limit=limit, after=cursor)
        yield from ((each.id, side, each) for each in page)
        if (cursor := page.cursor) is None:
            return


def _differing(documents: dict[int, Document]) -> list[str]:
    """Return what differs, by names."""
    if len(documents) == 1:
        return [SIDES[side] for side in documents]
    here, there = documents[0], documents[1]
    names = [name for name in _FIELDS if getattr(here, name) != getattr(there, name)]
    return ["body", *names] if canonical(here.body) != canonical(there.body) else names


PAGES: Final = (
    PageRoute("/compare", show_comparison, section="Compare", is_shown=has_other),
    PageRoute("/compare/{name}", show_compared),
)
