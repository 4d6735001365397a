"""Text indexes of SQLite: a table of FTS5 without content, maintained by triggers.

Triggers give FTS5 the strings of each field. FTS5's tokenizer finds the words of `search.words`: triggers need no
function of this library. A row without content is removed by its old strings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Final

import sqlalchemy as sa

from ....query.text_index import TextIndex
from ....search.query import SearchQuery, Term
from ....search.words import BOUNDARY, more_separators
from ...elements import Keys
from ..text_search import TextIndexes
from .compiler import sources
from .filters import WORD_COUNT, path_literal

TOKENIZER: Final = (
    f"unicode61 remove_diacritics 2 categories 'L* N* M*' separators '{more_separators()}'"
)
"""The rules of `search.words`."""
_EVENTS: Final = ("insert", "update", "delete")


class SqliteTextIndexes(TextIndexes):
    """FTS5."""

    languages = frozenset({"english"})
    language_probe = ""
    names = ("text",)
    probe = "SELECT 1 FROM pragma_module_list WHERE name = 'fts5'"
    trigrams = None

    def create(self, table: sa.Table, index: TextIndex) -> Sequence[str]:
        return self._create(
            table, index, TOKENIZER if index.language is None else f"porter {TOKENIZER}"
        )

    def create_substrings(
        self,
        table: sa.Table,
        index: TextIndex,
        extension: str,
    ) -> Sequence[str]:
        return self._create(table, index, "trigram case_sensitive 1")

    def _create(self, table: sa.Table, index: TextIndex, tokenizer: str) -> Sequence[str]:
        name, physical = str(table.name), index.physical
        keys = [path.keys for path, _ in index.weights]
        columns = ", ".join(_columns(index))
        new, old = _texts("NEW.body", keys), _texts("OLD.body", keys)
        added = f"INSERT INTO {physical}(rowid, {columns}) VALUES (NEW.seq, {new});"
        command = f"INSERT INTO {physical}({physical}, rowid, {columns})"
        removed = f"{command} VALUES ('delete', OLD.seq, {old});"
        differ = f"OLD.body IS NOT NEW.body AND ({old}) IS NOT ({new})"
        triggers = {
            "insert": (f"AFTER INSERT ON {name}", added),
            "update": (f"AFTER UPDATE OF body ON {name} WHEN {differ}", f"{removed} {added}"),
            "delete": (f"AFTER DELETE ON {name}", removed),
        }
        weights = ", ".join(f"{float(weight)!r}" for _, weight in index.weights)
        every = _texts(f"{name}.body", keys)
        return [
            f"CREATE VIRTUAL TABLE {physical} USING fts5({columns}, content='', tokenize=\"{tokenizer}\")",
            f"INSERT INTO {physical}({physical}, rank) VALUES ('rank', 'bm25({weights})')",
            f"INSERT INTO {physical}(rowid, {columns}) SELECT seq, {every} FROM {name}",
            *(
                f"CREATE TRIGGER {physical}_{event} {when} BEGIN {then} END"
                for event, (when, then) in triggers.items()
            ),
        ]

    def contains(
        self,
        table: sa.Table,
        index: TextIndex,
        fields: Sequence[int],
        names: Sequence[str],
    ) -> sa.ColumnElement[bool]:
        physical, query = index.physical, " || ".join(f":{name}" for name in names)
        rows = sa.text(f"SELECT rowid AS seq FROM {physical} WHERE {physical} MATCH ({query})")
        return table.c.seq.in_(rows.columns(seq=sa.BigInteger))

    def pattern(self, field: int, text: str) -> str:
        """The next pattern follows the space, which means AND."""
        quoted = text.replace('"', '""')
        return f'f{field} : "{quoted}" '

    def drop(self, table: sa.Table, index: TextIndex) -> Sequence[str]:
        triggers = (f"DROP TRIGGER IF EXISTS {index.physical}_{event}" for event in _EVENTS)
        return [*triggers, f"DROP TABLE IF EXISTS {index.physical}"]

    def tables(self, physical: str) -> Sequence[str]:
        return [physical, *(f"{physical}_{each}" for each in ("data", "idx", "docsize", "config"))]

    def differing(self, table: sa.Table, index: TextIndex) -> str:
        """Compare the numbers of words, which FTS5 has of each document."""
        name, sizes = str(table.name), f"{index.physical}_docsize"
        texts = (_text(f"{name}.body", path.keys) for path, _ in index.weights)
        counts = (f"coalesce({WORD_COUNT}('0/' || ({text})), '00')" for text in texts)
        return (
            f"SELECT {name}.id FROM {name} LEFT JOIN {sizes} AS s ON s.id = {name}.seq "
            f"WHERE hex(s.sz) IS NOT {' || '.join(counts)} "
            f"UNION ALL SELECT NULL FROM {sizes} AS s WHERE s.id NOT IN (SELECT seq FROM {name}) LIMIT :rows"
        )

    def matches(
        self,
        table: sa.Table,
        index: TextIndex,
        prefix: str,
        *,
        scored: bool,
        alone: bool = False,
    ) -> str:
        physical = index.physical
        score = ", -rank AS score" if scored else ""
        return f"SELECT rowid AS seq{score} FROM {physical} WHERE {physical} MATCH :{prefix}text"

    def values(self, index: TextIndex, query: SearchQuery) -> Sequence[str]:
        columns = {name: column for (name, _), column in zip(index.fields, _columns(index))}  # noqa: B905
        required = (_either(each, columns) for each in query.required)
        text = " AND ".join(required)
        if query.excluded:
            text = f"({text}) NOT {_either(query.excluded, columns)}"
        return [text]


def _columns(index: TextIndex) -> list[str]:
    return [f"f{number}" for number in range(len(index.weights))]


def _either(terms: Sequence[Term], columns: Mapping[str, str]) -> str:
    return f"({' OR '.join(_term(each, columns) for each in terms)})"


def _term(term: Term, columns: Mapping[str, str]) -> str:
    """Return a term as FTS5 reads it. No word has a quotation mark."""
    field = "" if term.field is None else f"{columns[term.field]} : "
    return f'{field}"{" ".join(term.words)}"{" *" if term.prefix else ""}'


def _texts(body: str, paths: Sequence[Keys]) -> str:
    return ", ".join(_text(body, keys) for keys in paths)


def _text(body: str, keys: Keys) -> str:
    """Return the strings at a path, joined; null without strings."""
    path = path_literal(keys)
    aliases = (f"e{number}" for number in count(1))
    strings = " UNION ALL ".join(_strings(body, keys, aliases))
    joined = f"SELECT group_concat(value, ' {BOUNDARY} ') FROM ({strings})"
    return f"CASE json_type({body}, {path}) WHEN 'text' THEN json_extract({body}, {path}) ELSE ({joined}) END"


def _strings(body: str, keys: Keys, aliases: Iterator[str]) -> Iterator[str]:
    for source in sources(body, (), keys, aliases, ()):
        tables = f" FROM {', '.join(source.tables)}" if source.tables else ""
        where = " AND ".join((*source.conditions, f"{source.type} = 'text'"))
        yield f"SELECT {source.value} AS value{tables} WHERE {where}"
