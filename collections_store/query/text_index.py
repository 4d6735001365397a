"""Definitions of text indexes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from typing import Any, Final, Literal, Self, TypeAlias

from ..errors import InvalidIndex, shortened
from ..expressions.path import FieldLike, Path, Wildcard, field_name, path_or_text
from ..search.matching import Texts
from ..search.query import SearchQuery, parsed
from ..search.words import WORDS_VERSION
from .conditions import (
    Condition,
    Field,
    Matches,
)
from .index import Index, read_own_name, unknown_keys
from .matcher import distinct_values
from .serving import can_open, every_conjunct
from .shapes import values_of

NO_TEXT_INDEX: Final = 'the collection has no text index: create one, for example create_text_index({"title": 3, "body": 1})'
TextFields: TypeAlias = FieldLike | Iterable[FieldLike] | Mapping[Any, float]
"""The fields of a text index."""
MAX_TEXT_FIELDS: Final = 4
"""PostgreSQL's words have four labels."""
MAX_WEIGHT: Final = 1000
BODY: Final = "$body"
"""The name of a body that is a string, or an array of strings."""
_LANGUAGE: Final = re.compile("[a-z][a-z0-9_]{0,62}")
_KEYS: Final = ("name", "fields", "language", "words", "physical", "substring")
MIN_SUBSTRING: Final = 3
"""Characters of the shortest text that an index of substrings finds."""
_MAX_SUBSTRINGS: Final = 10
"""Conditions of a filter that an index of substrings serves."""
_LITERAL: Final = frozenset({"plain regex", "prefix regex"})


@dataclass(frozen=True, slots=True)
class TextIndex:
    """A text index of a collection: its fields with their weights, and the language of its words. `substring`: the index is
    one of substrings, without weights and language.

    >>> with Store("sqlite://") as store:
    ...     name = store["notes"].create_text_index({"title": 3, "body": 1})
    ...     print(*store["notes"].indexes())
    text: {'title': 3, 'body': 1}
    """

    name: str
    weights: tuple[tuple[Path, float], ...]
    language: str | None = None
    words: int = WORDS_VERSION
    substring: bool = False
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

    @property
    def kind(self) -> Literal["text", "substrings"]:
        """The option of a collection that has the index."""
        return "substrings" if self.substring else "text"

    @classmethod
    def parse(
        cls, fields: Any, *, language: Any = None, name: Any = None, substring: Any = False
    ) -> Self:
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
        if not isinstance(substring, bool):
            problem = f"must be True or False, got {shortened(substring)}"
            raise InvalidIndex("substring", problem)
        if substring and language is not None:
            raise InvalidIndex("language", f"must be None with substring=True, got {language!r}")
        for path, weight in weights:
            if substring and weight != 1:
                problem = f"must have no weight with substring=True, got {weight}"
                raise InvalidIndex(_name(path), problem)
        default = "substring" if substring else "text"
        own = default if name is None else read_own_name(name)
        return cls(own, weights, language, substring=substring)

    def check(self) -> None:
        """Raise `InvalidIndex` for an index that only `from_json` returns, never `parse`."""
        options = {"language": self.language, "substring": self.substring}
        TextIndex.parse(dict(self.weights), name=self.name, **options)

    def __str__(self) -> str:
        language = "" if self.language is None else f", language {self.language}"
        substring = ", substring" if self.substring else ""
        return f"{self.name}: {dict(self.fields)}{language}{substring}"

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

    def substrings(self, condition: Condition) -> Iterator[tuple[int, int, Field]]:
        """Yield the conditions that all matches pass and that are about a substring of a field, each with its number among
        the conjuncts, and the number of the field.
        """
        numbers = {path.keys: number for number, (path, _) in enumerate(self.weights)}
        for position, each in enumerate(every_conjunct(condition)):
            match each:
                case Field(path, Matches(pattern)) if path.keys in numbers:
                    if pattern.kind in _LITERAL:
                        yield position, numbers[path.keys], each

    def served(self, condition: Condition) -> tuple[int, ...]:
        """Return the numbers of the `substrings` that the index finds: those with texts that are long enough."""
        found = (
            position
            for position, _, each in self.substrings(condition)
            for value in values_of(each)
            if len(value.value.characters.text) >= MIN_SUBSTRING
        )
        return tuple(islice(found, _MAX_SUBSTRINGS))

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the catalogue."""
        fields = [[*path.keys, weight] for path, weight in self.weights]
        return {
            "name": self.name,
            "fields": fields,
            "language": self.language,
            "words": self.words,
            "physical": self.physical,
            **({"substring": True} if self.substring else {}),
            **self.unknown,
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Self:
        """Read an entry of the catalogue."""
        weights = tuple((Path(*keys), weight) for *keys, weight in entry["fields"])
        return cls(
            entry["name"],
            weights,
            entry["language"],
            entry["words"],
            entry.get("substring", False),
            entry.get("physical", ""),
            unknown_keys(entry, _KEYS),
        )


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
    if not isinstance(path, Path) or isinstance(path, Wildcard) or not can_open(path.keys):
        problem = "must be a field of the body of at most 3 keys, and no numbers"
        raise InvalidIndex(only.name, problem)
    return path


def _name(path: Path) -> str:
    return str(path_or_text(path)) if path.keys else BODY
