"""The page that runs a pipeline, and shows its results as a table, as JSON or as a plot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from ..aggregation.pipeline import Leading, Pipeline
from ..errors import CollectionsStoreError, InvalidPipeline
from ..expressions.values import is_number
from ..operations.survey import CollectionSurvey, Scans, Survey
from ..query.filter import Filter
from ..query.sort import NATURAL
from .cells import cell, columns_of, row
from .collection import MANY, MAX_PAGE, surveyed
from .entries import BadEntry, locate, read_json
from .pages import Call, PageRoute, as_json

if TYPE_CHECKING:
    from starlette.responses import Response

MOST: Final = 1000
"""Results that a page shows."""
MARKS: Final = 100
"""Bars or points of a plot."""
BINS: Final = 20
VIEWS: Final = {
    "": "Table",
    "json": "JSON",
    "bar": "Bars",
    "line": "Line",
    "histogram": "Histogram",
}
WIDTH, HEIGHT = 720, 240
EXAMPLE: Final = '[{"$sortByCount": "$field"}]'
_WRITING: Final = ("$merge", "$out")


@dataclass(frozen=True, slots=True)
class Plot:
    """A number for each label. `points` are those of a line; without them the numbers are bars."""

    label: str
    value: str
    pairs: list[tuple[str, float]]
    points: list[tuple[float, float]]

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the greatest number."""
        numbers = [number for _, number in self.pairs]
        return min(numbers), max(numbers)


def show_aggregation(call: Call) -> Response:
    """Run the pipeline of the URL."""
    survey = surveyed(call)
    text, view = call.query("pipeline"), call.query("view")
    shown, is_cut, scanned = list[Any](), False, list[CollectionSurvey]()
    bad: Exception | None = None
    try:
        pipeline = _pipeline(text)
        if pipeline is not None and not call.query("scan"):
            scanned = _scanned(call, survey, pipeline)
        if pipeline is not None and not scanned:
            stages = [*pipeline, {"$limit": MOST + 1}]
            shown, is_cut = _bounded(call.collection.stream_aggregate(stages))
    except (BadEntry, CollectionsStoreError) as error:
        bad = error
    columns = columns_of(shown) or ["result"]
    return call.render(
        "aggregation.html",
        bad=bad,
        survey=survey,
        text=text,
        example=EXAMPLE,
        view=view if view in VIEWS else "",
        views=VIEWS,
        shown=shown,
        columns=columns,
        rows=[row(each, columns) for each in shown],
        json="\n".join(map(as_json, shown)) if view == "json" else "",
        plot=plot_of(shown, view),
        is_cut=is_cut,
        scanned=scanned,
        width=WIDTH,
        height=HEIGHT,
    )


def _pipeline(text: str) -> list[Any] | None:
    """Return the stages of an entry, None without one; raise `BadEntry`."""
    if not text.strip():
        return None
    stages = read_json("pipeline", text)
    try:
        Pipeline.parse(stages)
    except InvalidPipeline as error:
        raise BadEntry("pipeline", text, error.problem, *locate(text, error.place)) from error
    for name in _WRITING:
        if any(name in stage for stage in stages):
            problem = f"{name} writes: run it in a program"
            raise BadEntry("pipeline", text, problem, *locate(text, name))
    return [*stages]


def _bounded(results: Iterable[Any]) -> tuple[list[Any], bool]:
    """Return up to `MOST` results, of up to `MAX_PAGE` characters except the first, and whether there are more."""
    shown, room = list[Any](), MAX_PAGE
    for each in results:
        room -= len(as_json(each))
        if shown and (len(shown) == MOST or room < 0):
            return shown, True
        shown.append(each)
    return shown, False


def _scanned(call: Call, survey: CollectionSurvey, stages: list[Any]) -> list[CollectionSurvey]:
    """Return the large collections of which a pipeline may read all documents."""
    pipeline = Pipeline.parse(stages)
    others = {*pipeline.collections()}
    surveys = [call.store.run(Survey(name, 10)) for name in sorted(others - {call.name})]
    if call.name in others or _scans(call, survey, pipeline.leading()):
        surveys.append(survey)
    return [each for each in surveys if each is not None and each.count > MANY]


def _scans(call: Call, survey: CollectionSurvey, leading: Leading) -> bool:
    if survey.count <= MANY:
        return False
    if leading.filter == Filter():
        if leading.limit is None or leading.skip + leading.limit > MANY:
            return True
        if leading.sort is None:
            return False
    return call.store.run(Scans(call.name, leading.filter, leading.sort or NATURAL))


# -- plots -----------------------------------------------------------------------------------------


def plot_of(results: list[Any], view: str) -> Plot | None:
    """Return the plot of results: the first field with numbers, over the first other field. None: there is none."""
    if view not in {"bar", "line", "histogram"}:
        return None
    objects = [each for each in results if isinstance(each, dict)]
    names = list(dict.fromkeys(key for each in objects for key in each))
    numeric = [name for name in names if any(is_number(each.get(name)) for each in objects)]
    value = next((name for name in numeric if name != "_id"), numeric[0] if numeric else None)
    if value is None:
        return None
    if view == "histogram":
        numbers = [each[value] for each in objects if is_number(each.get(value))]
        return Plot("", value, binned(numbers, BINS), [])
    label = next((name for name in names if name != value), "")
    pairs = [
        (cell(each.get(label, "")).text, each[value])
        for each in objects[:MARKS]
        if is_number(each.get(value))
    ]
    return Plot(label, value, pairs, _points(pairs) if view == "line" else [])


def binned(numbers: list[float], count: int) -> list[tuple[str, float]]:
    """Return how many numbers are in each of `count` ranges between the least and the greatest."""
    low, high = min(numbers) / 2, max(numbers) / 2  # the difference itself may be infinite
    step = (high - low) / count or 0.5
    counts = [0] * count
    for each in numbers:
        counts[min(count - 1, int((each / 2 - low) / step))] += 1
    edges = [2 * (low + n * step) for n in range(count + 1)]
    labels = [f"{start:.4g} to {end:.4g}" for start, end in pairwise(edges)]
    return [*zip(labels, counts, strict=True)]


def _points(pairs: list[tuple[str, float]]) -> list[tuple[float, float]]:
    numbers = [number for _, number in pairs]
    low, high = min(numbers), max(numbers)
    step, half = WIDTH / max(1, len(pairs) - 1), high / 2 - low / 2 or 1
    return [
        (round(n * step, 2), round(HEIGHT - (y / 2 - low / 2) / half * HEIGHT, 2))
        for n, y in enumerate(numbers)
    ]


PAGES: Final = (PageRoute("/c/{name}/aggregation", show_aggregation, tab="Aggregation"),)
