"""What the catalogue keeps of a collection, and what a caller may set of it."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, Self, TypeAlias

from . import codec
from .errors import InvalidOption
from .expiry import read_ttl
from .index import Index

Bodies: TypeAlias = Literal["none", "after", "both"]
"""Which bodies a change is recorded with: those that were written, or also those before."""
Changes: TypeAlias = bool | Literal["after", "both"] | None
"""The same as callers say it."""
CHANGES_KEPT: Final = 100_000
MAX_CHANGES: Final = 10**9
_RULES: Final = codec.Codec()


@dataclass(frozen=True, slots=True)
class Feed:
    """How the changes of a collection are recorded: in the table `physical`, the last `limit` of them,
    none older than `age` microseconds. `key` begins the tokens.
    """

    physical: str = ""
    key: str = field(default_factory=lambda: secrets.token_hex(4))
    bodies: Bodies = "none"
    limit: int = CHANGES_KEPT
    age: int | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What a caller wants of a collection; None: whatever it is."""

    ttl: int | None = None
    sliding: bool | None = None
    bodies: Bodies | Literal["off"] | None = None
    limit: int | None = None
    age: int | None = None

    @classmethod
    def parse(
        cls,
        *,
        ttl: Any = None,
        sliding: Any = None,
        changes: Any = None,
        changes_kept: Any = None,
        changes_ttl: Any = None,
    ) -> Self:
        """Read what a caller says; raises `InvalidOption`."""
        if sliding is not None and not isinstance(sliding, bool):
            raise InvalidOption("sliding", f"{sliding!r} is neither True nor False")
        life, age = read_ttl(ttl), read_ttl(changes_ttl, "changes_ttl")
        return cls(life, sliding, _bodies(changes), _limit(changes_kept), age)

    def apply(self, options: CollectionOptions) -> CollectionOptions:
        """Return the options as they shall be; a new `Feed` has no table yet."""
        return replace(
            options,
            ttl=options.ttl if self.ttl is None else (self.ttl or None),
            sliding=options.sliding if self.sliding is None else self.sliding,
            feed=self._feed(options.feed),
        )

    def _feed(self, feed: Feed | None) -> Feed | None:
        """Return the recording as it shall be, by what it is."""
        if self.bodies == "off" or (feed is None and self.bodies is None):
            if self.limit is not None or self.age is not None:
                raise InvalidOption(
                    "changes", "none are recorded, so none are kept: say changes=True"
                )
            return None
        feed = feed or Feed()
        return replace(
            feed,
            bodies=feed.bodies if self.bodies is None else self.bodies,
            limit=feed.limit if self.limit is None else self.limit,
            age=feed.age if self.age is None else (self.age or None),
        )


@dataclass(frozen=True, slots=True)
class CollectionOptions:
    """What the catalogue keeps of a collection besides its name and table.

    `body_index`: has PostgreSQL an index over whole bodies? `cursor_key` seals the cursors of its pages;
    `counter` numbers its indexes. `ways` are the places at which the objects with an array are
    indexed, with the names of these indexes. An object lives for `ttl` microseconds unless its writer
    says otherwise (None: for ever), anew with each update if `sliding`. `feed` tells how changes are
    recorded; None: they are not. `jsonb`: does SQLite keep bodies as JSONB?
    """

    cursor_key: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    body_index: bool = True
    indexes: tuple[Index, ...] = ()
    ways: tuple[tuple[tuple[str, ...], str], ...] = ()
    counter: int = 1
    ttl: int | None = None
    sliding: bool = False
    feed: Feed | None = None
    jsonb: bool = False

    def to_text(self) -> str:
        """Return the JSON that the catalogue keeps."""
        kept = {
            "cursor_key": self.cursor_key or secrets.token_hex(16),
            "body_index": self.body_index,
            "indexes": [index.to_json() for index in self.indexes],
            "ways": self.ways,
            "counter": self.counter,
            "ttl": self.ttl,
            "sliding": self.sliding,
            "feed": None if self.feed is None else asdict(self.feed),
            "jsonb": self.jsonb,
        }
        return _RULES.encode(_lists(kept))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read it."""
        kept = codec.decode(text)
        return cls(
            kept.get("cursor_key", ""),  # none where a version before 0003 made the collection
            kept.get("body_index", True),
            tuple(map(Index.from_json, kept.get("indexes", ()))),
            tuple((tuple(way), physical) for way, physical in kept.get("ways", ())),
            kept.get("counter", 1),
            kept.get("ttl"),
            kept.get("sliding", False),
            Feed(**kept["feed"]) if kept.get("feed") else None,
            kept.get("jsonb", False),
        )

    def find(self, name: str) -> Index | None:
        """Return the index of that name."""
        return next((index for index in self.indexes if index.name == name), None)

    def paths(self) -> frozenset[tuple[str, ...]]:
        """Return the fields over which a whole index goes, first or not."""
        whole = (index for index in self.indexes if index.where is None and not index.arrays)
        return frozenset(path.keys for index in whole for path in index.paths)


def _bodies(changes: Any) -> Bodies | Literal["off"] | None:
    match changes:
        case None:
            return None
        case False:
            return "off"
        case True:
            return "none"
        case "after" | "both":
            return changes  # type: ignore[no-any-return]
    raise InvalidOption("changes", f"{changes!r} is none of True, False, 'after' and 'both'")


def _limit(kept: Any) -> int | None:
    if kept is None:
        return None
    if isinstance(kept, bool) or not isinstance(kept, int) or not 0 < kept <= MAX_CHANGES:
        raise InvalidOption("changes_kept", f"{kept!r} is not between 1 and {MAX_CHANGES:,}")
    return kept


def _lists(value: Any) -> Any:
    """Make lists of tuples."""
    if isinstance(value, dict):
        return {key: _lists(each) for key, each in value.items()}
    return [_lists(each) for each in value] if isinstance(value, list | tuple) else value
