"""The options of a collection as the catalogue stores them: JSON with a format version."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self, TypeAlias, get_args

from .. import codec
from ..document import MAX_TTL
from ..errors import InvalidOption, check_format, shortened
from ..query.index import Index, unknown_keys
from ..query.text_index import TextIndex
from ..query.vector_index import VectorIndex
from .checks import check_choice, check_flag, check_integer

Bodies: TypeAlias = Literal["none", "after", "both"]
"""The bodies in a recorded change: none, the new body, or the new and the old body."""
FORMAT: Final = 7
"""The newest format of a stored entry, for collections with an index under a collation, whose keys older versions cannot make. Format 6 is that of
collections with a sparse or wildcard index, or a unique or compound index through arrays, which older versions take for another. Format 5 is that of collections with an index of substrings, which older versions would leave behind. Formats 3 and 4 are those of collections with a text index or vector indexes. Format 2 is that of distributed collections, and format 1 of all others.
"""
CHANGES_KEPT: Final = 100_000
MAX_CHANGES: Final = 10**9
_CODEC: Final = codec.Codec()
_FEED_KEYS: Final = ("physical", "key", "bodies", "limit", "age")
_KEYS: Final = (
    "cursor_key", "body_index", "indexes", "ways", "counter", "ttl", "sliding", "feed", "jsonb", "copy_of",
    "versions", "distributed", "text", "substrings", "vector_indexes",
)  # fmt: skip
"""The stored keys besides `format`: the fields of `CollectionOptions`, by `_NAMES`."""
_NAMES: Final = {**{key: key for key in _KEYS}, "ways": "array_guards"}
_OMITTED: Final = frozenset(
    {"copy_of", "versions", "distributed", "text", "substrings", "vector_indexes"}
)
"""Keys that are not stored with their default, so that older versions know all stored keys."""
_LOCAL: Final = ("cursor_key", "ways", "counter", "copy_of", "versions")
"""Keys that a copy of the collection does not take over; for a feed and an index see `_LOCAL_NAMES`."""
_LOCAL_NAMES: Final = ("physical", "key", "key_name")
_TEXT_KINDS: Final = ("text", "substrings")


@dataclass(frozen=True, slots=True)
class Feed:
    """How a collection's changes are recorded: in the table `physical`, the last `limit` changes, none older than `age`
    microseconds. Tokens begin with `key`. `unknown` are keys of a newer version.
    """

    physical: str = ""
    key: str = field(default_factory=lambda: secrets.token_hex(4))
    bodies: Bodies = "none"
    limit: int = CHANGES_KEPT
    age: int | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in _FEED_KEYS}, **self.unknown}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        known = {name: stored[name] for name in _FEED_KEYS if name in stored}
        return cls(**known, unknown=unknown_keys(stored, _FEED_KEYS))


@dataclass(frozen=True, slots=True)
class CollectionOptions:
    """The catalogue's entry of a collection, besides the name and the table.

    `body_index`: PostgreSQL has an index over whole bodies. `cursor_key` seals the cursors of pages; `counter` numbers
    the indexes. `array_guards` are the path prefixes whose arrays are indexed, with the names of these indexes. A
    document expires after `ttl` microseconds unless its write has a `ttl` (None: never), again with each update if
    `sliding`. `feed`: how changes are recorded; None: changes are not recorded. `jsonb`: SQLite stores bodies as JSONB.
    `copy_of` identifies the source of an incomplete copy. `versions` are the declared schema versions, each with the
    name of the index of the documents that have a different version. `distributed`: the documents are on several
    servers. `text`: the index of words. `substrings`: the index of substrings. `vector_indexes`: the indexes of vectors.

    The JSON has a format; JSON of older versions without the key has format 1. `unknown` are the preserved keys of a
    newer version. A change that older versions must not ignore takes a higher format.
    """

    cursor_key: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    body_index: bool = True
    indexes: tuple[Index, ...] = ()
    array_guards: tuple[tuple[tuple[str, ...], str], ...] = ()
    counter: int = 1
    ttl: int | None = None
    sliding: bool = False
    feed: Feed | None = None
    jsonb: bool = False
    copy_of: str = ""
    versions: tuple[tuple[int, str], ...] = ()
    distributed: bool = False
    text: TextIndex | None = None
    substrings: TextIndex | None = None
    vector_indexes: tuple[VectorIndex, ...] = ()
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)

    def to_text(self) -> str:
        """Return the stored form, JSON."""
        values = {key: getattr(self, name) for key, name in _NAMES.items()}
        stored = {key: each for key, each in values.items() if each or key not in _OMITTED}
        stored["cursor_key"] = self.cursor_key or secrets.token_hex(16)
        stored["indexes"] = [index.to_json() for index in self.indexes]
        stored["feed"] = None if self.feed is None else self.feed.to_json()
        for index in self.text_indexes:
            stored[index.kind] = index.to_json()
        if self.vector_indexes:
            stored["vector_indexes"] = [index.to_json() for index in self.vector_indexes]
        return _CODEC.encode(_lists({**self.unknown, "format": self._format, **stored}))

    @property
    def _format(self) -> int:
        if any(e.collation is not None for e in self.indexes):
            return FORMAT
        if any(e.has_entries or e.sparse or e.is_wildcard for e in self.indexes):
            return 6
        if self.substrings is not None:
            return 5
        if any(index.method != "exact" for index in self.vector_indexes):
            return 4
        return 3 if self.text is not None or self.vector_indexes else 2 if self.distributed else 1

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read the stored form; raises `SchemaTooNew`."""
        stored = codec.decode(text)
        check_format("the catalogue's entry of a collection", stored.get("format"), FORMAT)
        read = {name: stored[key] for key, name in _NAMES.items() if key in stored}
        read["cursor_key"] = stored.get("cursor_key", "")  # none of a version before 0003
        read["indexes"] = tuple(map(Index.from_json, stored.get("indexes", ())))
        read["array_guards"] = tuple((tuple(keys), name) for keys, name in stored.get("ways", ()))
        read["feed"] = Feed.from_json(stored["feed"]) if stored.get("feed") else None
        read["versions"] = tuple((version, name) for version, name in stored.get("versions", ()))
        for kind in _TEXT_KINDS:
            if stored.get(kind):
                read[kind] = TextIndex.from_json(stored[kind])
        vectors = stored.get("vector_indexes", ())
        read["vector_indexes"] = tuple(map(VectorIndex.from_json, vectors))
        return cls(**read, unknown=unknown_keys(stored, ("format", *_KEYS)))

    def to_portable(self) -> dict[str, Any]:
        """Return the stored form, without the local parts of this store: names of tables, keys, a copy's state."""
        stored = codec.decode(self.to_text())
        portable = unknown_keys(stored, _LOCAL)
        for kind in ("indexes", "vector_indexes"):
            if kind in portable:
                portable[kind] = [unknown_keys(each, _LOCAL_NAMES) for each in portable[kind]]
        for index in self.text_indexes:
            portable[index.kind] = unknown_keys(stored[index.kind], _LOCAL_NAMES)
        portable["feed"] = stored["feed"] and unknown_keys(stored["feed"], _LOCAL_NAMES)
        return portable

    @classmethod
    def from_portable(cls, portable: Mapping[str, Any]) -> Self:
        """Read `to_portable`, without the local parts of a store. Raises `SchemaTooNew`, `InvalidOption`, and any error
        for a malformed value.
        """
        check_format("the collection", portable.get("format"), FORMAT)
        _check_portable(portable)
        stored = unknown_keys(portable, _LOCAL)
        indexes = (unknown_keys(each, _LOCAL_NAMES) for each in portable.get("indexes", ()))
        stored["indexes"] = [{**each, "physical": ""} for each in indexes]
        for kind in _TEXT_KINDS:
            if portable.get(kind):
                stored[kind] = unknown_keys(portable[kind], _LOCAL_NAMES)
        stored["feed"] = portable.get("feed") and unknown_keys(portable["feed"], _LOCAL_NAMES)
        return cls.from_text(_CODEC.encode(stored))

    @property
    def every_index(self) -> tuple[Index | TextIndex | VectorIndex, ...]:
        """The indexes, then the text indexes, then those of vectors."""
        return (*self.indexes, *self.text_indexes, *self.vector_indexes)

    @property
    def text_indexes(self) -> tuple[TextIndex, ...]:
        """The index of words and the index of substrings, each if it exists."""
        return tuple(each for each in (self.text, self.substrings) if each is not None)

    def find(self, name: str) -> Index | TextIndex | VectorIndex | None:
        """Return the index of this name."""
        return next((index for index in self.every_index if index.name == name), None)

    def paths(self) -> frozenset[tuple[str, ...]]:
        """Return the fields of the indexes that cover every document, arrays apart, and compare strings by code point."""
        plain = (index for index in self.indexes if index.collation is None)
        whole = (index for index in plain if not index.is_partial and not index.arrays)
        return frozenset(path.keys for index in whole for path in index.paths)


def _check_portable(portable: Mapping[str, Any]) -> None:
    """Raise `InvalidOption` for an option that the catalogue cannot have."""
    for option in ("body_index", "jsonb", "sliding", "distributed"):
        check_flag(option, portable.get(option, False))
    check_integer("format", portable.get("format", FORMAT))
    _check_age("ttl", portable.get("ttl"))
    feed = portable.get("feed")
    if feed is not None:
        if not isinstance(feed, Mapping):
            raise InvalidOption("feed", f"must be an object or null, got {shortened(feed)}")
        check_choice("feed.bodies", feed.get("bodies", "none"), get_args(Bodies))
        check_integer("feed.limit", feed.get("limit", CHANGES_KEPT), most=MAX_CHANGES)
        _check_age("feed.age", feed.get("age"))


def _check_age(option: str, value: Any) -> None:
    if value is not None:
        check_integer(option, value, most=MAX_TTL * 1_000_000)


def _lists(value: Any) -> Any:
    """Return a value with lists in place of tuples."""
    if isinstance(value, dict):
        return {key: _lists(each) for key, each in value.items()}
    return [_lists(each) for each in value] if isinstance(value, list | tuple) else value
