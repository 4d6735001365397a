"""The first page: the collections of the store, with measures that read few rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from ..operations.survey import (
    COUNTED,
    CollectionSurvey,
    LastPosition,
    ListNames,
    SampleDocuments,
    Survey,
)
from ..results import Invalid
from .collection import SAMPLED, affordable
from .pages import Call, PageRoute

if TYPE_CHECKING:
    from starlette.responses import Response

MOST: Final = 100
PERIODS: Final = ("1 hour", "1 day", "7 days", "30 days", "later")
"""The labels of `operations.survey.PERIODS`."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A row of the page. `versions` has pairs of a schema version, or "none", and a share of the sampled documents. `invalid` is
    the share of sampled documents that do not fit the model; None without a model.
    """

    survey: CollectionSurvey
    created: datetime
    indexes: list[str]
    versions: list[tuple[str, float]]
    invalid: float | None


def _names(call: Call) -> tuple[list[tuple[str, datetime]], str | None]:
    """Return the names and times of the collections on the page, and the last name if more follow."""
    after = call.query("after")
    names = [each for each in call.store.run(ListNames()) if each[0] > after]
    shown = names[:MOST]
    return shown, shown[-1][0] if len(names) > MOST else None


def show_collections(call: Call) -> Response:
    """Show the collections, `MOST` on a page."""
    names, after = _names(call)
    rows = []
    for name, created in names:
        survey = call.store.run(Survey(name))
        if survey is not None:  # it was dropped meanwhile
            indexes = [str(each) for each in call.store[name].indexes()]
            rows.append(Listed(survey, created, indexes, _shares(survey), _invalid(call, survey)))
    expiring = [sum(each.survey.expiring[n] for each in rows) for n in range(len(PERIODS))]
    return call.render(
        "overview.html",
        rows=rows,
        expiring=[*zip(PERIODS, expiring, strict=True)],
        is_cut=any(COUNTED in each.survey.expiring for each in rows),
        after=after,
    )


def _shares(survey: CollectionSurvey) -> list[tuple[str, float]]:
    """Return the shares of the schema versions, the greatest first; none if no document has a version."""
    if survey.versions.keys() <= {None}:
        return []
    ordered = sorted(survey.versions.items(), key=lambda each: -each[1])
    return [(version or "none", count / survey.sampled) for version, count in ordered]


def _invalid(call: Call, survey: CollectionSurvey) -> float | None:
    codec = call.studio.models.get(survey.name)
    if codec is None:
        return None
    size = affordable(SAMPLED, survey)
    found = call.store.run(SampleDocuments(survey.name, size, codec.decode_body))
    return sum(isinstance(each.body, Invalid) for each in found) / max(1, len(found))


def list_positions(call: Call) -> Response:
    """Return a number for each collection on the page that grows with each write, for the script."""
    names, _ = _names(call)
    return call.json({name: call.store.run(LastPosition(name)) for name, _ in names})


PAGES: Final = (
    PageRoute("/", show_collections, section="Collections"),
    PageRoute("/positions", list_positions),
)
