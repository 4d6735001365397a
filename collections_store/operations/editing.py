"""`edit`: the caller changes a body in place, and only the changed fields are written.

Rules:

1. Changes are found by comparison: the body as JSON at the beginning of the block, and at the end.
2. The changes are written over the version that was read. After a concurrent write the document is read again, and the
   same changes are made to the current body, unless the concurrent write changed the same fields.
3. An array with any change counts as a single field: elements have no names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ..codec import Codec, decode
from ..document import Document, now
from ..errors import DocumentNotFound, VersionConflict
from ..update import Update
from ..update.difference import difference
from .by_id import GetDocument, Rewrite
from .operation import Steps
from .procedures import changeable, pause_before
from .update import current

EDIT_ATTEMPTS: Final = 20
"""Attempts to write an edit, by default."""


@dataclass(slots=True)
class Editing:
    """An edit of a document: `begin` returns the body, `end` writes the changes."""

    collection: str
    codec: Codec
    id: str
    attempts: int
    _found: Document | None = field(default=None, repr=False)
    _body: Any = field(default=None, repr=False)
    _before: Any = field(default=None, repr=False)

    def begin(self) -> Steps[Any]:
        """Read the document; raise `DocumentNotFound` and `InvalidBody`."""
        self._found = yield GetDocument(self.collection, self.id)
        if self._found is None:
            raise DocumentNotFound(self.collection, self.id)
        self._body = changeable(self.collection, self.codec, self._found)
        self._before = self._as_json()
        return self._body

    def end(self) -> Steps[None]:
        """Write the changes; raise `VersionConflict` if another write changed the same fields, and the errors of
        `put`.
        """
        after = self._as_json()
        found = self._found
        assert found is not None
        original = self._current(found).body
        update = difference(self._before, after, original)
        if update == {}:
            return
        for attempt in range(self.attempts):
            text = self._changed_text(found, update, after)
            try:
                yield Rewrite(self.collection, found, text)
            except VersionConflict:
                if attempt + 1 == self.attempts:
                    raise
                found = yield GetDocument(self.collection, self.id)
                if found is None or self._overlaps(original, self._current(found).body, update):
                    raise
                yield pause_before(attempt)
            else:
                return

    def _as_json(self) -> Any:
        return decode(self.codec.encode_body(self._body))

    def _changed_text(self, found: Document, update: dict[str, Any] | None, after: Any) -> str:
        if update is None:
            return self.codec.encode_updated(after)
        parsed = Update.parse(update, codec=self.codec)
        return self.codec.encode_updated(parsed.apply(self._current(found), now=now()))

    def _current(self, document: Document) -> Document:
        return current(self.codec, self.collection, document)

    def _overlaps(self, original: Any, found: Any, update: dict[str, Any] | None) -> bool:
        """Return whether another write changed the fields of the update."""
        theirs = difference(original, found)
        if update is None or theirs is None:
            return True
        other = [*_fields(theirs, original)]
        return any(
            each[: len(path)] == path[: len(each)]
            for path in _fields(update, original)
            for each in other
        )


def _fields(update: dict[str, Any], body: Any) -> Iterator[tuple[str, ...]]:
    """Yield the paths that an update changes, each up to the first array."""
    for changes in update.values():
        for path in changes:
            keys, inside = path.split("."), body
            for length, key in enumerate(keys):
                if not isinstance(inside, dict):
                    keys = keys[:length]
                    break
                inside = inside.get(key)
            yield tuple(keys)
