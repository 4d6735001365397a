"""Definitions of text indexes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final, Self, TypeAlias

from ..errors import InvalidIndex, shortened
from ..expressions.path import FieldLike, Path, field_name, path_or_text
from ..search.matching import Texts
from ..search.query import SearchQuery, parsed
from ..search.words import WORDS_VERSION
from .index import Index, can_open, read_own_name, unknown_keys
from .matcher import distinct_values

NO_TEXT_INDEX: Final = 'the collection has no text index: create one, for example create_text_index({"title": 3, "body": 1})'
TextFields: TypeAlias = FieldLike | Iterable[FieldLike] | Mapping[Any, float]
"""The fields of a text index."""
MAX_TEXT_FIELDS: Final = 4
"""PostgreSQL's words have four labels."""
MAX_WEIGHT: Final = 1000
BODY: Final = "$body"
"""The name of a body that is a string, or an array of strings."""
_LANGUAGE: Final = re.compile("[a-z][a-z0-9_]{0,62}")
_KEYS: Final = ("name", "fields", "language", "words", "physical")


@dataclass(frozen=True, slots=True)
class TextIndex:
    """The text index of a collection: its fields with their weights, and the language of its words.

    >>> with Store("sqlite://") as store:
    ...     name = store["notes"].create_text_index({"title": 3, "body": 1})
    ...     print(*store["notes"].indexes())
    text: {'title': 3, 'body': 1}
    """

    name: str
    weights: tuple[tuple[Path, float], ...]
    language: str | None = None
    words: int = WORDS_VERSION
    physical: str = field(default="", compare=False, repr=False)
    unknown: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What a newer version of the library stores besides."""
    fields: tuple[tuple[str, float], ...] = field(init=False, compare=False, repr=False)
    """Field and weight."""
    _names: frozenset[str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        fields = tuple((_name(path), weight) for path, weight in self.weights)
        object.__setattr__(self, "fields", fields)  # each search reads them
        object.__setattr__(self, "_names", frozenset(name for name, _ in fields))

    @classmethod
    def parse(cls, fields: Any, *, language: Any = None, name: Any = None) -> Self:
        """Read the arguments of a caller; raises `InvalidIndex`."""
        weights = tuple(_weights(fields))
        if not weights:
            raise InvalidIndex("", "must have at least one field")
        if len(weights) > MAX_TEXT_FIELDS:
            problem = f"must have at most {MAX_TEXT_FIELDS} fields, got {len(weights)}"
            raise InvalidIndex(str(weights[MAX_TEXT_FIELDS][0]), problem)
        if language is not None and not (
            isinstance(language, str) and _LANGUAGE.fullmatch(language)
        ):
            problem = f"must be None or a language such as 'english', got {shortened(language)}"
            raise InvalidIndex("language", problem)
        return cls("text" if name is None else read_own_name(name), weights, language)

    def check(self) -> None:
        """Raise `InvalidIndex` for an index that only `from_json` returns, never `parse`."""
        TextIndex.parse(dict(self.weights), language=self.language, name=self.name)

    def __str__(self) -> str:
        language = "" if self.language is None else f", language {self.language}"
        return f"{self.name}: {dict(self.fields)}{language}"

    def parsed(self, query: str) -> SearchQuery:
        """Parse a query over the fields; raises `InvalidSearch`."""
        return parsed(query, self._names)

    def texts(self, body: Any) -> Texts:
        """Return the strings that the index has of a body."""
        return {
            _name(path): [
                each for each in distinct_values(body, path.keys) if isinstance(each, str)
            ]
            for path, _ in self.weights
        }

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the catalogue."""
        fields = [[*path.keys, weight] for path, weight in self.weights]
        return {
            "name": self.name,
            "fields": fields,
            "language": self.language,
            "words": self.words,
            "physical": self.physical,
            **self.unknown,
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Self:
        """Read an entry of the catalogue."""
        weights = tuple((Path(*keys), weight) for *keys, weight in entry["fields"])
        parts = entry["name"], weights, entry["language"], entry["words"], entry.get("physical", "")
        return cls(*parts, unknown_keys(entry, _KEYS))


def _weights(fields: Any) -> Iterable[tuple[Path, float]]:
    """Yield the fields of a caller with their weights; raises `InvalidIndex`."""
    if isinstance(fields, Mapping):
        pairs = list(fields.items())
    elif isinstance(fields, Iterable) and not isinstance(fields, str | bytes | Path):
        pairs = [(each, 1) for each in fields]
    else:
        pairs = [(fields, 1)]
    seen = set()
    for given, weight in pairs:
        path = _path(given)
        name = _name(path)
        if name in seen:
            raise InvalidIndex(name, "must appear once")
        seen.add(name)
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not is_number or not isfinite(weight) or not 0 < weight <= MAX_WEIGHT:
            problem = (
                f"its weight must be a number above 0, up to {MAX_WEIGHT}, got {shortened(weight)}"
            )
            raise InvalidIndex(name, problem)
        yield path, weight


def _path(given: Any) -> Path:
    name = field_name(given)
    if isinstance(name, str | Path) and name in {BODY, Path()}:
        return Path()
    [only] = Index.parse([(given, 1)]).sort.fields
    path = only.target
    if not isinstance(path, Path) or not can_open(path.keys):
        problem = "must be a field of the body of at most 3 keys, and no numbers"
        raise InvalidIndex(only.name, problem)
    return path


def _name(path: Path) -> str:
    return str(path_or_text(path)) if path.keys else BODY
