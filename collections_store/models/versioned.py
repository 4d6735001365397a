"""The codec of a collection with a schema version: writes the version, and upgrades on reading.

The version is the first field of a written body. SQLite keeps the order of fields, so the beginning of a text shows
whether the body has the declared version, and a model is decoded from the rest of the text. PostgreSQL sorts the
fields: there the text is decoded to find the version, and encoded again for a model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

from ..codec import Codec, decode
from ..document import SCHEMA_VERSION, Document
from ..errors import InvalidBody, UpgradeFailed
from .upgrades import Upgrades

_UNLIMITED: Final = Codec(2**40)
"""For stored bodies: a codec with another limit may have written them."""
_QUOTED: Final = f'"{SCHEMA_VERSION}"'


@dataclass(frozen=True, slots=True)
class UpgradedBody:
    """An upgraded body from `VersionedCodec.decode_noting`: for the caller, and for the store."""

    body: Any
    stored: Any
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedCodec(Codec):
    """Bodies with a schema version around those of `inner`, the codec of the collection without a version."""

    is_plain: ClassVar[bool] = False

    inner: Codec
    upgrades: Upgrades
    prefix: str = field(repr=False)

    @classmethod
    def of(cls, inner: Codec, upgrades: Upgrades) -> Self:
        prefix = f'{{"{SCHEMA_VERSION}":{upgrades.version}'
        parts = inner.max_bytes, inner.nul, inner.default
        return cls(*parts, inner=inner, upgrades=upgrades, prefix=prefix)

    @property
    def has_model(self) -> bool:
        return self.inner.has_model

    def check_fields(self, parsed: object, what: str = "filter") -> None:
        self.inner.check_fields(parsed, what)

    def encode_body(self, body: Any) -> str:
        """Return the text of a caller's body, with the version."""
        return self._with_version(self.inner.encode_body(body))

    def encode_updated(self, body: Any) -> str:
        """Return the text of an updated body, with the version."""
        if isinstance(body, dict) and SCHEMA_VERSION in body:
            if body[SCHEMA_VERSION] != self.upgrades.version:
                raise InvalidBody(SCHEMA_VERSION, "an update must not change the schema version")
            body = {key: value for key, value in body.items() if key != SCHEMA_VERSION}
        return self._with_version(self.inner.encode_updated(body))

    def decode_body(self, text: str | bytes) -> Any:
        """Return the body in the declared version, without the field of the version."""
        if self.inner.is_plain:
            body = decode(text)
            if self.is_current(body):
                del body[SCHEMA_VERSION]
                return body
            return self.upgrades.apply(body)
        if isinstance(text, str) and text.startswith(self.prefix + ","):
            return self.inner.decode_body("{" + text[len(self.prefix) + 1 :])
        return self.inner.decode_body(_UNLIMITED.encode(self.upgrades.apply(decode(text))))

    def decode_noting(self, id: str, text: str | bytes) -> Any:
        """Return the result of `decode_body`, or an `UpgradedBody` of an older body that can be written and kept its
        id.
        """
        stored = decode(text)
        if self.upgrades.version_of(stored) >= self.upgrades.version:
            return self.decode_body(text)
        try:
            written = self.encode_upgraded(Document(id, stored))
        except UpgradeFailed:
            raise
        except InvalidBody:  # too large, or not what the model wants
            return self.decode_body(text)
        return UpgradedBody(self.decode_body(written), stored, written)

    def current(self, document: Document) -> Any:
        """Return the stored body of a document in the declared version, with the field of the version."""
        body = document.body
        if self.is_current(body):
            return body
        copy = decode(_UNLIMITED.encode(body))
        upgraded = self.upgrades.apply(copy, document.id)
        return {SCHEMA_VERSION: self.upgrades.version, **upgraded}

    def is_current(self, body: Any) -> bool:
        """Return whether a stored body has the declared version."""
        return type(body) is dict and body.get(SCHEMA_VERSION) == self.upgrades.version

    def encode_upgraded(self, document: Document) -> str:
        """Return the text of a stored document in the declared version."""
        return self.encode_updated(self.current(document))

    def _with_version(self, text: str) -> str:
        if not text.startswith("{"):
            raise InvalidBody("", "must be a JSON object: its schema version is a field")
        if _QUOTED in text and SCHEMA_VERSION in decode(text):
            raise InvalidBody(SCHEMA_VERSION, "the store writes this field: leave it out")
        return self.prefix + ("}" if text == "{}" else f",{text[1:]}")
