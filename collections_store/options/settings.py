"""The settings of collections: declared by a caller, and validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, Protocol, Self, TypeAlias, TypedDict

from .. import codec
from ..document import read_ttl
from ..errors import InvalidOption, shortened
from .checks import check_flag, check_integer, check_known
from .collections import MAX_CHANGES, Bodies, CollectionOptions, Feed

Ttl: TypeAlias = float | timedelta | None
Changes: TypeAlias = bool | Literal["after", "both"] | None


class ChangeSettings(TypedDict, total=False):
    """How a collection records its changes.

    * `changes`: True records the id and version of each change for `watch`, "after" also the new body, "both" also the
      old body. False, the default of a new collection, records none and deletes the record.
    * `changes_kept`: the minimum number of changes to keep; 100,000.
    * `changes_ttl`: seconds, or a timedelta, the maximum time to keep changes; `math.inf`.
    """

    changes: Changes
    changes_kept: int | None
    changes_ttl: Ttl


class CollectionSettings(ChangeSettings, total=False):
    """The options of a collection: `ChangeSettings` and the following. None leaves an option unchanged.

    * `ttl`: seconds, or a timedelta, until a written document expires, unless the write has a `ttl` of its own;
      `math.inf`, the default of a new collection: never.
    * `sliding`: each update of a document with a time to live restarts the time to live; False.
    """

    ttl: Ttl
    sliding: bool | None


class BodyFunction(Protocol):
    """A function that upgrades a body. Not a `Callable` of `Any`: mypy would find no single overload."""

    def __call__(self, body: Any, /) -> object:
        """Return the new body, or None for the same object."""


class VersionSettings(CollectionSettings, total=False):
    """The arguments of `collection`: `CollectionSettings`, and the following, for the returned object only.

    * `schema_version`: the version of the documents that this program reads and writes, an integer from 1 on. Each body
      stores the version in the field `schema_version`; a document without the field has version 1.
    * `upgrades`: functions that convert a body to the next version, by the old version:
      `{1: one_to_two, 2: two_to_three}`. The classes in a function's annotations are models of the argument and the
      result.
    * `downgrades`: functions that convert a newer body to the version before it, likewise; without them a newer
      document raises `DocumentTooNew`.
    * `write_back`: `get`, `document` and `get_many` write upgraded bodies; False.
    """

    schema_version: int
    upgrades: Mapping[int, BodyFunction] | None
    downgrades: Mapping[int, BodyFunction] | None
    write_back: bool


class ReadSettings(VersionSettings, total=False):
    """`ModelSettings` without `invalid`: `invalid` decides the type of the bodies."""

    trusted: bool
    extra: codec.Extra


class ModelSettings(ReadSettings, total=False):
    """The arguments of `collection` with a model: `VersionSettings`, and the following, for the returned object only.

    * `invalid`: how a read treats a stored body that does not fit the model. "raise" raises `InvalidBody` with the
      document's id; "return" returns an `Invalid` in the place of the body; "skip" leaves the document out and logs a
      warning. A change stream returns an `Invalid` in each case. "raise".
    * `trusted`: reads skip the "after" validators of pydantic models. Types and constraints are checked all the same:
      pydantic and msgspec cannot decode without the checks. False.
    * `extra`: whether filters, sort orders, indexes and updates may name fields that the model does not declare. "forbid"
      raises `UnknownField`; "allow" checks no names. "forbid".
    """

    invalid: codec.Unreadable


@dataclass(frozen=True, slots=True)
class Settings:
    """Validated `CollectionSettings`."""

    ttl: int | None = None
    sliding: bool | None = None
    bodies: Bodies | Literal["off"] | None = None
    limit: int | None = None
    age: int | None = None

    @classmethod
    def parse(cls, settings: Mapping[str, object], declared: type = CollectionSettings) -> Self:
        """Validate settings; raises `InvalidOption`, and `TypeError` for an undeclared setting."""
        check_known("a collection", settings, declared)
        sliding, limit = settings.get("sliding"), settings.get("changes_kept")
        return cls(
            read_ttl(settings.get("ttl")),
            sliding if sliding is None else check_flag("sliding", sliding),
            _bodies(settings.get("changes")),
            limit if limit is None else check_integer("changes_kept", limit, most=MAX_CHANGES),
            read_ttl(settings.get("changes_ttl"), "changes_ttl"),
        )

    def apply(self, options: CollectionOptions) -> CollectionOptions:
        """Return the options with these settings; a new `Feed` has no table yet."""
        return replace(
            options,
            ttl=options.ttl if self.ttl is None else (self.ttl or None),
            sliding=options.sliding if self.sliding is None else self.sliding,
            feed=self._feed(options.feed),
        )

    def _feed(self, feed: Feed | None) -> Feed | None:
        if self.bodies == "off" or (feed is None and self.bodies is None):
            if self.limit is not None or self.age is not None:
                raise InvalidOption(
                    "changes",
                    "must be set for changes_kept and changes_ttl: no changes are recorded",
                )
            return None
        feed = feed or Feed()
        return replace(
            feed,
            bodies=feed.bodies if self.bodies is None else self.bodies,
            limit=feed.limit if self.limit is None else self.limit,
            age=feed.age if self.age is None else (self.age or None),
        )


def _bodies(changes: Any) -> Bodies | Literal["off"] | None:
    if changes is None or isinstance(changes, bool):
        return None if changes is None else "none" if changes else "off"
    if isinstance(changes, str) and changes in {"after", "both"}:
        return changes  # type: ignore[return-value]
    raise InvalidOption(
        "changes", f"must be True, False, 'after' or 'both', got {shortened(changes)}"
    )
