"""The names of a store's tables and indexes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from ..errors import InvalidOption, shortened

_PREFIX: Final = re.compile(r"[a-z][a-z0-9_]{0,19}", re.ASCII)
_SCHEMA: Final = re.compile(r"[ -$&-~]{1,63}", re.ASCII)
_SLUG_LENGTH: Final = 20


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a store's tables."""

    prefix: str = "cs_"
    schema: str | None = None

    def __post_init__(self) -> None:
        prefix: Any = self.prefix
        schema: Any = self.schema
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            must = "must be 1 to 20 of a-z, 0-9 and _, beginning with a letter"
            raise InvalidOption("prefix", f"{must}, got {shortened(prefix)}")
        if re.search("_[0-9]+(_|$)", prefix):  # cs_1_collections may be a collection's, of cs_
            must = "must have no number after a _, as the tables of another prefix have"
            raise InvalidOption("prefix", f"{must}, got {shortened(prefix)}")
        if schema is not None and not (isinstance(schema, str) and _SCHEMA.fullmatch(schema)):
            must = "must be 1 to 63 ASCII characters without %"
            raise InvalidOption("schema", f"{must}, got {shortened(schema)}")

    @property
    def revision(self) -> str:
        """The table of the schema's revision: alembic's version table."""
        return f"{self.prefix}revision"

    @property
    def catalogue(self) -> str:
        """The table of collections."""
        return f"{self.prefix}collections"

    @property
    def identity(self) -> str:
        """The table of the database's identity; without recorded changes there is none."""
        return f"{self.prefix}identity"

    @property
    def checksums(self) -> str:
        """The table of the checksums, in a backup that is a database file."""
        return f"{self.prefix}checksums"

    def documents(self, number: int, collection: str) -> str:
        """Return a collection's table. No prefix holds a $: number 11 of `zz` differs from number 1 of `zz1`."""
        separator = "" if self.prefix.endswith("_") else "$"
        return f"{self.prefix}{separator}{number}_{collection[:_SLUG_LENGTH].lower()}"

    def index(self, table: str, number: int) -> str:
        """Return an index of a collection's table; no table has such a name."""
        return f"{self._stem(table)}$i{number}"

    def expiry_index(self, table: str) -> str:
        """Return the index of the documents that expire."""
        return f"{self._stem(table)}$x"

    def feed(self, table: str) -> str:
        """Return the table of a collection's recorded changes."""
        return f"{self._stem(table)}$changes"

    def owns(self, table: str) -> bool:
        """Return whether a store with this prefix may have a table of this name."""
        known = f"{self.prefix}(revision|collections|identity|checksums|\\$?[0-9]+[_$].*)"
        return re.fullmatch(known, table) is not None

    def _stem(self, table: str) -> str:
        """Return the name of a collection's table up to the number; older names have no $."""
        found = re.match(f"{self.prefix}\\$?[0-9]+", table)
        assert found is not None
        return found[0]
