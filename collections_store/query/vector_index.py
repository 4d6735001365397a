"""Definitions of vector indexes, and the vectors and texts that an index has of a body."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self, TypeAlias, get_args

from ..errors import InvalidIndex, shortened
from ..expressions.path import FieldLike, NamedField, Path, path_or_text
from ..search.vectors import Method, Metric
from .conditions import read_target
from .index import MAX_NAME, unknown_keys

VectorFields: TypeAlias = FieldLike | Iterable[FieldLike]
"""The fields of a vector index."""
MAX_DIMENSIONS: Final = 16_000
MAX_VECTOR_FIELDS: Final = 8
_KEYS: Final = (
    "name",
    "fields",
    "dimensions",
    "metric",
    "model",
    "method",
    "physical",
    "extension",
)


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """The vector index of a collection. `model` names the model that makes vectors of texts; None: the fields have
    vectors. `method`: how the nearest are found.

    >>> with Store("sqlite://") as store:
    ...     name = store["notes"].create_vector_index("embedding", dimensions=384)
    ...     print(*store["notes"].indexes())
    embedding_vector: {'embedding': 384}, cosine
    """

    name: str
    paths: tuple[Path, ...]
    dimensions: int
    metric: Metric = "cosine"
    model: str | None = None
    method: Method = "exact"
    physical: str = field(default="", compare=False, repr=False)
    extension: str = field(default="", compare=False, repr=False)
    """The schema of the database's extension that has the index; empty for "exact"."""
    unknown: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What a newer version of the library stores besides."""
    unique: ClassVar[bool] = False

    @classmethod
    def parse(
        cls,
        fields: Any,
        *,
        dimensions: Any,
        metric: Any = "cosine",
        model: Any = None,
        method: Any = "exact",
        name: Any = None,
    ) -> Self:
        """Read the arguments of a caller; raises `InvalidIndex`."""
        several = isinstance(fields, Iterable) and not isinstance(fields, str | Path | NamedField)
        paths = tuple(_path(each) for each in (fields if several else (fields,)))
        if not 0 < len(paths) <= MAX_VECTOR_FIELDS or len(set(paths)) < len(paths):
            raise InvalidIndex("", f"must have 1 to {MAX_VECTOR_FIELDS} different fields")
        if type(dimensions) is not int or not 0 < dimensions <= MAX_DIMENSIONS:
            problem = f"must be an integer from 1 to {MAX_DIMENSIONS}, got {shortened(dimensions)}"
            raise InvalidIndex("dimensions", problem)
        for option, value, known in (("metric", metric, Metric), ("method", method, Method)):
            if value not in get_args(known):
                problem = f"must be one of {', '.join(get_args(known))}, got {shortened(value)}"
                raise InvalidIndex(option, problem)
        if model is not None:
            _check_text("model", model)
        if name is None:
            name = f"{'_'.join(map(str, paths))}_vector"[:MAX_NAME]
        else:
            _check_text("name", name)
        if name.startswith("$"):
            raise InvalidIndex("name", "must not begin with $, as the store's own indexes do")
        return cls(name, paths, dimensions, metric, model, method)

    def check(self) -> None:
        """Raise `InvalidIndex` for an index that only `from_json` returns, never `parse`."""
        options: Any = {"dimensions": self.dimensions, "metric": self.metric, "model": self.model}
        VectorIndex.parse(self.paths, **options, method=self.method, name=self.name)

    @property
    def fields(self) -> tuple[tuple[str, int], ...]:
        """Field and dimensions."""
        return tuple((str(path_or_text(path)), self.dimensions) for path in self.paths)

    def __str__(self) -> str:
        model = "" if self.model is None else f", model {self.model}"
        method = "" if self.method == "exact" else f", {self.method}"
        return f"{self.name}: {dict(self.fields)}, {self.metric}{method}{model}"

    def vectors(self, body: Any) -> Iterator[tuple[str, Any]]:
        """Yield the vectors at the fields of a body, each with its place; and what else is there, except null."""
        for path in self.paths:
            for place, value in _values(body, path.keys, ()):
                if isinstance(value, list) and value and isinstance(value[0], list | str):
                    yield from ((f"{place}.{n}", each) for n, each in enumerate(value))
                elif value is not None:
                    yield place, value

    def texts(self, body: Any) -> Iterator[tuple[str, str]]:
        """Yield the strings at the fields of a body, also in arrays, each with its place."""
        for path in self.paths:
            for place, value in _values(body, path.keys, ()):
                several = isinstance(value, list)
                pairs = ((f"{place}.{n}", each) for n, each in enumerate(value)) if several else ()
                for where, text in pairs if several else ((place, value),):
                    if isinstance(text, str) and text.strip():
                        yield where, text

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the catalogue."""
        method = {"method": self.method, "extension": self.extension}
        return {
            "name": self.name,
            "fields": [list(path.keys) for path in self.paths],
            "dimensions": self.dimensions,
            "metric": self.metric,
            "model": self.model,
            "physical": self.physical,
            **({} if self.method == "exact" else method),
            **self.unknown,
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Self:
        """Read an entry of the catalogue."""
        paths = tuple(Path(*keys) for keys in entry["fields"])
        parts = entry["dimensions"], entry["metric"], entry["model"], entry.get("method", "exact")
        local = entry.get("physical", ""), entry.get("extension", "")
        return cls(entry["name"], paths, *parts, *local, unknown_keys(entry, _KEYS))


def _path(given: Any) -> Path:
    target = read_target(given, InvalidIndex)
    if not isinstance(target, Path) or not target.keys:
        raise InvalidIndex(str(given), "must be a field of the body")
    return target


def _check_text(option: str, value: Any) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME or not value.isprintable():
        problem = (
            f"must be a printable string of up to {MAX_NAME} characters, got {shortened(value)}"
        )
        raise InvalidIndex(option, problem)


def _values(value: Any, keys: tuple[str, ...], place: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield the values at a path, through the objects of arrays, each with its place."""
    if not keys:
        yield ".".join(place), value
    elif isinstance(value, dict) and keys[0] in value:
        yield from _values(value[keys[0]], keys[1:], (*place, keys[0]))
    elif isinstance(value, list) and place:
        for number, each in enumerate(value):
            if isinstance(each, dict):
                yield from _values(each, keys, (*place, str(number)))
