"""Names of tables and indexes as SQL."""

from __future__ import annotations

from sqlalchemy.sql.compiler import IdentifierPreparer


class ForgottenNames(IdentifierPreparer):
    """Quotes names, and keeps none: SQLAlchemy's class keeps each name for ever, and so those of dropped collections."""

    def quote(self, ident: str) -> str:
        """Return a name, in quotes if it needs them."""
        forced: bool | None = getattr(ident, "quote", None)
        is_quoted = self._requires_quotes(ident) if forced is None else forced
        return self.quote_identifier(ident) if is_quoted else ident
