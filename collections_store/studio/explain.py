"""The plan of a query as a picture, and the indexes of a collection."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from ..errors import CollectionsStoreError
from ..operations.survey import MeasureIndexes
from ..query.explanation import Explanation
from ..query.index import Index
from .collection import MANY, surveyed
from .entries import BadEntry, read_filter, read_sort
from .pages import Call, PageRoute

if TYPE_CHECKING:
    from starlette.responses import Response

_ORDERS: Final = {
    "index": (
        "good",
        "Already in order",
        "An index returns the documents in the order of the sort.",
    ),
    "database": ("warn", "Sort in the database", "The database sorts all matching documents."),
    "python": ("bad", "Sort in Python", "Python reads and sorts all matching documents."),
}


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A box of the picture: "good", "warn" or "bad", a title and what it means."""

    kind: str
    title: str
    text: str


def show_plan(call: Call) -> Response:
    """Show how the database finds the documents of a filter and a sort order."""
    survey = surveyed(call)
    filter_text, sort_text = call.query("filter"), call.query("sort")
    explanation, bad = None, None
    try:
        explanation = _explanation(call, filter_text, sort_text)
    except (BadEntry, CollectionsStoreError) as error:
        bad = error
    is_large = survey.count > MANY and call.store.core.database.diagnosis.reads_for_index_sizes
    is_measured = not is_large or bool(call.query("measure"))
    return call.render(
        "explain.html",
        bad=bad,
        survey=survey,
        filter=filter_text,
        sort=sort_text,
        explanation=explanation,
        steps=steps_of(explanation) if explanation else [],
        indexes=call.collection.indexes(),
        is_measured=is_measured,
        measures=call.store.run(MeasureIndexes(call.name)) if is_measured else {},
        is_created=call.query("created"),
    )


def _explanation(call: Call, filter: str, sort: str) -> Explanation:
    """Return the explanation of two entries; raise `BadEntry`."""
    return call.collection.explain(read_filter(filter), sort=read_sort(sort) or None)


def steps_of(explanation: Explanation) -> list[PlanStep]:
    """Return the steps of a query, in their order."""
    steps = []
    names = ", ".join(explanation.indexes)
    if explanation.scans:
        text = "Each document is read and compared."
        if names:
            is_walked = explanation.order == "index"
            text = f"In the order of {names}." if is_walked else f"All may be read, beside {names}."
        steps.append(PlanStep("bad", "Scan of the collection", text))
    elif names:
        steps.append(PlanStep("good", f"Index {names}", "Only the entries that match are read."))
    if explanation.in_matcher is not None:
        text = f"The database cannot decide this part: {explanation.in_matcher}"
        steps.append(PlanStep("warn", "Filter in Python", text))
    if explanation.order in _ORDERS:
        steps.append(PlanStep(*_ORDERS[explanation.order]))
    return steps


def create_index(call: Call) -> Response:
    """Create the index that helps a query, or stop hiding it, as its explanation advises; other indexes are made elsewhere."""
    filter, sort = call.form.get("filter", ""), call.form.get("sort", "")
    try:
        advised: Index | None = _explanation(call, filter, sort).missing_index
    except BadEntry as error:
        return call.fail(HTTPStatus.BAD_REQUEST, error.problem)
    name = None
    if advised is not None and advised.hidden:
        name = advised.name
        call.collection.unhide_index(name)
    elif advised is not None:
        name = call.collection.create_index(advised.sort, arrays=advised.arrays, name=advised.name)
    return call.go("/c/{name}/plan", filter=filter, sort=sort, created=name)


def drop_index(call: Call) -> Response:
    """Drop an index."""
    call.collection.drop_index(call.form.get("index", ""))
    return call.go("/c/{name}/plan")


PAGES: Final = (
    PageRoute("/c/{name}/plan", show_plan, tab="Plan and indexes"),
    PageRoute("/c/{name}/indexes", create_index, method="POST", writes=True),
    PageRoute("/c/{name}/indexes/drop", drop_index, method="POST", writes=True),
)
