"""The pages of a collection: documents by filter, sort order and search, and the completions of a filter."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ..document import Document
from ..errors import CollectionNotFound, CollectionsStoreError
from ..expressions.path import Path
from ..operations.survey import CollectionSurvey, ListNames, SampleDocuments, Scans, Survey
from ..query.filter import Filter
from ..query.parser import OPERATORS
from ..query.sort import Sort
from ..query.text_index import TextIndex
from ..query.vector_index import VectorIndex
from ..results import SearchResult
from .cells import columns_of, kind_of, row
from .entries import (
    BadEntry,
    read_fields,
    read_filter,
    read_meaning,
    read_number,
    read_sort,
    sort_entry,
)
from .pages import Call, PageRoute, as_json

if TYPE_CHECKING:
    from starlette.responses import Response

LIMITS: Final = (25, 50, 100, 250)
MAX_PAGE: Final = 16 * 2**20
"""Bytes of bodies on a page, about."""
MANY: Final = 10_000
"""Documents of a collection from which on a scan needs consent; up to here counts are exact."""
SAMPLED: Final = 100
_TOP: Final = ("$and", "$or", "$nor", "$expr", "$jsonSchema", "$id", "$version", "$created_at", "$updated_at", "$expires_at", "$body")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Question:
    """The query of a page, as in the URL: strings that a person entered."""

    filter: str = ""
    sort: str = ""
    fields: str = ""
    words: str = ""
    meaning: str = ""
    limit: str = ""
    after: str = ""
    scan: str = ""

    @classmethod
    def of(cls, call: Call) -> Question:
        """Return the question of a URL."""
        return cls(**{name: call.query(name) for name in cls.__slots__})

    @property
    def is_search(self) -> bool:
        """Whether documents are found by words or by meaning."""
        return bool(self.words.strip() or self.meaning.strip())

    @property
    def size(self) -> int:
        """The number of documents on a page."""
        return int(self.limit) if self.limit in map(str, LIMITS) else LIMITS[1]

    def url(self, call: Call, **changes: object) -> str:
        """Return the URL of the question with changes, on the first page."""
        entries = {**asdict(self), "after": "", "scan": "", **changes}
        return call.url("/c/{name}", **{name: value or None for name, value in entries.items()})


@dataclass(frozen=True, slots=True)
class FoundPage:
    """The documents of a page. `scores` are of a search; `after` leads to the next page."""

    documents: list[Document]
    scores: list[SearchResult]
    after: str | None


def show_documents(call: Call) -> Response:
    """Show a page of documents."""
    survey = surveyed(call)
    question = Question.of(call)
    found, scans, copies = FoundPage([], [], None), False, dict[str, str]()
    bad: Exception | None = None
    try:
        parsed = _parsed(question)
        copies = _copies(call, question, parsed)
        scans = not question.scan and _scans(call, survey, question, parsed)
        if not scans:
            found = _find(call, survey, question, parsed)
    except (BadEntry, CollectionsStoreError) as error:
        bad = error
    columns = columns_of(each.body for each in found.documents)
    if not columns and found.documents:
        columns = ["body"]
    indexes = call.collection.indexes()
    return call.render(
        "collection.html",
        bad=bad,
        question=question,
        survey=survey,
        found=found,
        rows=[(each, row(each.body, columns)) for each in found.documents],
        columns=[(name, *_order(call, question, name)) for name in columns],
        scans=scans,
        limits=LIMITS,
        copies=copies,
        has_words=any(isinstance(each, TextIndex) and not each.substring for each in indexes),
        has_meaning=any(isinstance(each, VectorIndex) for each in indexes),
    )


def surveyed(call: Call) -> CollectionSurvey:
    """Return the measures of the page's collection; raise `CollectionNotFound`."""
    survey = call.store.run(Survey(call.name, 10))
    if survey is None:
        raise CollectionNotFound(call.name, [name for name, _ in call.store.run(ListNames())])
    return survey


def _parsed(question: Question) -> dict[str, Any]:
    """Return the arguments of `find`; raise `BadEntry`."""
    return {
        "filter": read_filter(question.filter),
        "sort": read_sort(question.sort),
        "projection": read_fields(question.fields),
    }


def _scans(
    call: Call, survey: CollectionSurvey, question: Question, parsed: dict[str, Any]
) -> bool:
    """Return whether a question would read all documents of a large collection."""
    if survey.count <= MANY or question.is_search or not (parsed["filter"] or parsed["sort"]):
        return False
    filter, sort = Filter.parse(parsed["filter"]), Sort.parse(parsed["sort"])
    return call.store.run(Scans(call.name, filter, sort))


def _find(
    call: Call, survey: CollectionSurvey, question: Question, parsed: dict[str, Any]
) -> FoundPage:
    """Return the documents of a page: fewer if they are large."""
    limit = affordable(question.size, survey)
    after = question.after or None
    if not question.is_search:
        page = call.collection.page(**parsed, limit=limit, after=after)
        return FoundPage([*page], [], page.cursor)
    words, filter = question.words.strip() or None, parsed["filter"]
    if not question.meaning.strip():
        results = call.collection.search(words, filter=filter, limit=limit, after=after)
        return FoundPage([each.document for each in results], [*results], results.cursor)
    offset = read_number(question.after) or 0
    options: dict[str, Any] = {"filter": filter, "limit": limit, "offset": offset}
    options["meaning"] = read_meaning(question.meaning.strip())
    results = _search_by_meaning(call, words, options)
    more = str(offset + limit) if len(results) == limit else None
    return FoundPage([each.document for each in results], [*results], more)


def affordable(count: int, survey: CollectionSurvey) -> int:
    """Return a number of documents whose bodies are about `MAX_PAGE` at most."""
    return max(1, min(count, MAX_PAGE // max(survey.average, 1)))


def _search_by_meaning(call: Call, words: str | None, options: dict[str, Any]) -> Any:
    """Search. A studio that only reads stores no vectors: it searches in a read-only transaction."""
    if call.studio.write:
        return call.collection.search(words, **options)
    with call.store.transaction(read_only=True) as transaction:
        return transaction[call.name].search(words, **options)


def _order(call: Call, question: Question, name: str) -> tuple[str, str]:
    """Return the direction in which a column is sorted, for `aria-sort`, and the URL of the next direction."""
    up, down = sort_entry([name], 1), sort_entry([name], -1)
    if question.sort == up:
        return "ascending", question.url(call, sort=down)
    if question.sort == down:
        return "descending", question.url(call, sort="")
    return "none", question.url(call, sort=up)


# -- the same in Python and as a command -----------------------------------------------------------


def _copies(call: Call, question: Question, parsed: dict[str, Any]) -> dict[str, str]:
    """Return a question as Python, and as a command if there is one."""
    copies = {"Python": _as_python(call, question, parsed)}
    if not question.meaning.strip():
        copies["Command"] = _as_command(call, question, parsed)
    return copies


def _as_python(call: Call, question: Question, parsed: dict[str, Any]) -> str:
    filter, sort, projection = (parsed[name] or None for name in ("filter", "sort", "projection"))
    given: dict[str, Any] = {"filter": filter, "limit": question.size}
    if question.is_search:
        meaning = question.meaning.strip()
        given = {"meaning": read_meaning(meaning) if meaning else None, **given}
        arguments = [repr(question.words.strip())] if question.words.strip() else []
        method = "search"
    else:
        arguments, method = [], "find"
        given = {**given, "sort": sort, "projection": projection}
    arguments += [f"{name}={value!r}" for name, value in given.items() if value is not None]
    options = "".join(f", {name}={value!r}" for name, value in _names(call).items())
    kinds = "Path, Store" if "Path(" in str(arguments) else "Store"
    return (
        f"from collections_store import {kinds}\n\n"
        f"with Store({call.store.core.shown!r}{options}) as store:\n"
        f"    found = store[{call.name!r}].{method}({', '.join(arguments)})\n"
    )


def _as_command(call: Call, question: Question, parsed: dict[str, Any]) -> str:
    filter = as_json(parsed["filter"]) if parsed["filter"] else ""
    options = [
        f"--url={call.store.core.shown}",
        *(f"--{name}={value}" for name, value in _names(call).items()),
    ]
    if question.words.strip():
        words = [
            "search",
            call.name,
            *([f"--filter={filter}"] if filter else []),
            f"--limit={question.size}",
            "--",
        ]
        return shlex.join(["collections-store", *options, *words, question.words.strip()])
    command = ["find", call.name, *([filter] if filter else [])]
    command += [f"--sort={_word(*pair)}" for pair in parsed["sort"]]
    if parsed["projection"] is not None:
        command.append(_projection(parsed["projection"]))
    return shlex.join(["collections-store", *options, *command, f"--limit={question.size}"])


def _names(call: Call) -> dict[str, str]:
    """Return the options of the store's tables that are no default."""
    options = call.store.core.options
    given = {
        "prefix": options.prefix if options.prefix != "cs_" else None,
        "schema": options.schema,
    }
    return {name: value for name, value in given.items() if value is not None}


def _projection(given: Any) -> str:
    """Return the option of a projection."""
    if isinstance(given, list) and not any("," in name for name in given):
        return f"--fields={','.join(given)}"
    return f"--projection={as_json(given if isinstance(given, dict) else dict.fromkeys(given, 1))}"


def _word(field: str | Path, direction: int) -> str:
    """Return an argument of `--sort`."""
    if isinstance(field, Path) or ":" in field or field.startswith(("-", "[", "{")):
        keys = [*field.keys] if isinstance(field, Path) else field
        return as_json([[keys, direction]])
    return field if direction == 1 else f"{field}:desc"


# -- completions of a filter -----------------------------------------------------------------------


def list_fields(call: Call) -> Response:
    """Return the fields of sampled documents with their types and usual values, and the operators, for the script."""
    survey = surveyed(call)
    found: dict[str, Counter[str]] = {}
    values: dict[str, Counter[str]] = {}
    for each in call.store.run(SampleDocuments(call.name, affordable(SAMPLED, survey))):
        for path, value in _paths(each.body):
            found.setdefault(path, Counter())[kind_of(value)] += 1
            if isinstance(value, str | bool | int | float) and len(str(value)) <= 40:
                values.setdefault(path, Counter())[as_json(value)] += 1
    fields = [
        {
            "path": path,
            "types": [kind for kind, _ in kinds.most_common()],
            "values": [value for value, _ in values.get(path, Counter()).most_common(8)],
        }
        for path, kinds in sorted(found.items())
    ]
    return call.json({"fields": fields, "operators": sorted(OPERATORS), "top": _TOP})


def _paths(body: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the dotted paths of a body that a filter can name by a string, with their values."""
    if isinstance(body, list):
        for each in islice(body, 5):
            if isinstance(each, dict):
                yield from _paths(each, prefix, depth)
    elif isinstance(body, dict) and depth < 5:
        for key, value in islice(body.items(), 200):
            if key and "." not in key and not key.startswith("$"):
                yield f"{prefix}{key}", value
                yield from _paths(value, f"{prefix}{key}.", depth + 1)


PAGES: Final = (
    PageRoute("/c/{name}", show_documents, tab="Documents"),
    PageRoute("/c/{name}/fields", list_fields),
)
