"""The protocol of text indexes: the tables, triggers and queries by which a database searches words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import sqlalchemy as sa

from ...query.text_index import TextIndex
from ...search.query import SearchQuery


class Extension(Protocol):
    """An extension of the database."""

    name: str
    advice: str
    """What a database without the extension needs."""
    installer: str
    """Who can install the extension."""
    probe: str
    """The query for the schema of the extension, null if it is not installed; whether it is recent enough; and whether the
    server has its files.
    """
    install: str
    """The statement that installs the extension."""


class TextIndexes(Protocol):
    """Text indexes: tables beside a collection's table, maintained by triggers, for the user's own SQL writes bodies too."""

    languages: frozenset[str] | None
    """The languages; None: `language_probe` finds them."""
    language_probe: str
    """The query for a row if there is the language `:language`."""
    probe: str
    """The query for a row if the database has text indexes."""

    def create(self, table: sa.Table, index: TextIndex) -> Sequence[str]:
        """Return the statements that create an index, fill it, and create its triggers."""

    trigrams: Extension | None
    """The extension that indexes of substrings need."""

    def create_substrings(self, table: sa.Table, index: TextIndex, extension: str) -> Sequence[str]:
        """Return the statements that create an index of substrings and fill it; the extension is in the schema `extension`."""

    def contains(
        self, table: sa.Table, index: TextIndex, fields: Sequence[int], names: Sequence[str]
    ) -> sa.ColumnElement[bool]:
        """Return a test of the index of substrings: the row's strings of each field contain the parameter of the same
        position, a `pattern`. More rows may pass.
        """

    def pattern(self, field: int, text: str) -> str:
        """Return the parameter of `contains` for a text of at least `MIN_SUBSTRING` characters."""

    def drop(self, table: sa.Table, index: TextIndex) -> Sequence[str]:
        """Return the statements that drop an index."""

    def tables(self, physical: str) -> Sequence[str]:
        """Return the tables of an index."""

    def differing(self, table: sa.Table, index: TextIndex) -> str:
        """Return the query for the ids of documents whose words are not in the index, and for null for words of no document,
        `:rows` at most.
        """

    names: Sequence[str]
    """The names of the parameters of `matches`."""

    def matches(
        self, table: sa.Table, index: TextIndex, prefix: str, *, scored: bool, alone: bool = False
    ) -> str:
        """Return a query for the rows of the index that match: `seq` and, if `scored`, `score`, higher for better ones. The
        names of the parameters begin with `prefix`. `alone`: no filter goes with the words, so that the plan is the same for
        all words.
        """

    def values(self, index: TextIndex, query: SearchQuery) -> Sequence[str]:
        """Return the values of the parameters `names` for a query."""
