"""Text indexes of PostgreSQL: a table of `tsvector`s, maintained by a trigger.

PostgreSQL's parser finds other words than SQLite, and its case depends on the locale. So functions in the database's own
language find the words of `search.words`, and number them. The functions belong to the index, and are dropped with it.

A `tsvector` has limits: 1 MB, 16,383 positions, 255 positions of a word. So each row has a level:

2. `words` has all words with all positions.
1. `words` has all words. A function tests the text for the phrases of a query.
0. `words` has the words of the beginning of the text, for the score. The function tests the text for all words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import sqlalchemy as sa

from .... import codec
from ....query.text_index import TextIndex
from ....search.query import SearchQuery, Term
from ....search.words import BOUNDARY, MAX_WORD, folded, marks, separators
from ...elements import Keys
from ..text_search import Extension, TextIndexes
from .compiler import quoted, table_name
from .filters import path_literal
from .ordering import literal, value_at

LABELS: Final = "ABCD"
"""The label of the words of each field."""
MAX_CHARACTERS: Final = 150_000
"""Characters of a text whose words fit in a `tsvector`, whatever they are."""
SHORT: Final = 500
"""Characters of a text that has fewer words than a `tsvector` has positions of a word."""
MEDIUM: Final = 32_000
"""Characters of a text that has fewer words than a `tsvector` has positions."""
_SPECIAL: Final = re.compile(r"[\\%_]")
_ESCAPED: Final = r"\\\g<0>"
"""LIKE takes the characters of `_SPECIAL` as they are behind a backslash."""
FOLDED_AT_ONCE: Final = 130
"""Characters that `translate` replaces: it compares each character of a word with all of them."""


class Trigrams(Extension):
    """The extension of indexes of substrings."""

    name = "pg_trgm"
    advice = "the extension pg_trgm"
    installer = "a superuser or the owner of the database"
    probe = (
        "SELECT n.nspname, e.oid IS NOT NULL, "
        "EXISTS (SELECT FROM pg_available_extensions AS a WHERE a.name = 'pg_trgm') "
        "FROM (SELECT 1) AS one LEFT JOIN pg_extension AS e ON e.extname = 'pg_trgm' "
        "LEFT JOIN pg_namespace AS n ON n.oid = e.extnamespace"
    )
    # the schema of a store may be dropped, with the extension and the indexes of all other stores
    install = "CREATE EXTENSION IF NOT EXISTS pg_trgm SCHEMA public"


class PostgresTextIndexes(TextIndexes):
    """`tsvector` and GIN."""

    languages = None
    language_probe = "SELECT 1 FROM pg_ts_config WHERE cfgname = %(language)s"
    probe = "SELECT 1"
    names = ("text", "loose", "has_phrases", "rank", "terms")
    trigrams = Trigrams()

    def create(self, table: sa.Table, index: TextIndex) -> Sequence[str]:
        named, documents = _Named(table, index.physical), table_name(table)
        firsts = list(dict.fromkeys(path.keys[:1] for path, _ in index.weights))
        new, old = (
            ", ".join(value_at(f"{row}.body", keys) for keys in firsts) for row in ("NEW", "OLD")
        )
        # the index may be newer than the snapshot of the transaction: a row that it does not see is then a conflict
        unseen = (
            f"INSERT INTO {named.table} VALUES ({{row}}) "
            "ON CONFLICT (seq) DO UPDATE SET words = excluded.words, level = excluded.level;"
        )
        removed, delete = "OLD.seq, '', 2", f"DELETE FROM {named.table} WHERE seq = OLD.seq;"
        body = (
            "DECLARE r RECORD; BEGIN "
            f"IF TG_OP = 'DELETE' THEN {delete} "
            f"IF NOT FOUND THEN {unseen.format(row=removed)} {delete} END IF; "
            f"ELSIF TG_OP = 'INSERT' THEN r := {named.of('row')}(NEW.body); "
            f"INSERT INTO {named.table} VALUES (NEW.seq, r.words, r.level); "
            f"ELSIF ROW({old}) IS DISTINCT FROM ROW({new}) THEN r := {named.of('row')}(NEW.body); "
            f"UPDATE {named.table} SET words = r.words, level = r.level WHERE seq = OLD.seq; "
            f"IF NOT FOUND THEN {unseen.format(row='NEW.seq, r.words, r.level')} END IF; "
            "END IF; RETURN NULL; END"
        )
        keep = (
            f"CREATE FUNCTION {named.of('keep')}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT "
            f"AS {literal(body)}"
        )
        trigger = (
            f"CREATE TRIGGER {named.trigger} AFTER INSERT OR DELETE OR UPDATE OF body ON {documents} "
            f"FOR EACH ROW EXECUTE FUNCTION {named.of('keep')}()"
        )
        return [
            f"CREATE TABLE {named.table} (seq BIGINT PRIMARY KEY, words tsvector NOT NULL, level SMALLINT NOT NULL)",
            *_functions(named, index),
            f"INSERT INTO {named.table} SELECT d.seq, r.* FROM {documents} AS d, {named.of('row')}(d.body) AS r",
            f"CREATE INDEX {named.index} ON {named.table} USING gin (words)",
            f"CREATE INDEX {named.rest} ON {named.table} (seq) WHERE level = 0",
            keep,
            trigger,
        ]

    def create_substrings(self, table: sa.Table, index: TextIndex, extension: str) -> Sequence[str]:
        named, operators = _Named(table, index.physical), f"{quoted(extension)}.gin_trgm_ops"
        texts = (_text(named, "body", path.keys) for path, _ in index.weights)
        columns = ", ".join(f"({text}) {operators}" for text in texts)
        name = table_name(sa.Table(index.physical, sa.MetaData()))
        return [
            _strings_function(named),
            f"CREATE INDEX {name} ON {table_name(table)} USING gin ({columns})",
        ]

    def contains(
        self, table: sa.Table, index: TextIndex, fields: Sequence[int], names: Sequence[str]
    ) -> sa.ColumnElement[bool]:
        named, body = _Named(table, index.physical), f"{table_name(table)}.body"
        texts = (_text(named, body, index.weights[field][0].keys) for field in fields)
        return sa.and_(
            *(
                sa.literal_column(text).like(sa.bindparam(name, type_=sa.types.NULLTYPE))
                for text, name in zip(texts, names, strict=True)
            )
        )

    def pattern(self, field: int, text: str) -> str:
        return f"%{_SPECIAL.sub(_ESCAPED, text)}%"

    def drop(self, table: sa.Table, index: TextIndex) -> Sequence[str]:
        named = _Named(table, index.physical)
        if index.substring:
            return [
                f"DROP INDEX IF EXISTS {named.table}",
                f"DROP FUNCTION IF EXISTS {named.of('strings')}",
            ]
        functions = ("keep", "has", "row", "strings", "vector", "words", "fold")
        return [
            f"DROP TRIGGER IF EXISTS {named.trigger} ON {table_name(table)}",
            f"DROP TABLE IF EXISTS {named.table}",
            *(f"DROP FUNCTION IF EXISTS {named.of(each)}" for each in functions),
        ]

    def tables(self, physical: str) -> Sequence[str]:
        return [physical]

    def differing(self, table: sa.Table, index: TextIndex) -> str:
        named, documents = _Named(table, index.physical), table_name(table)
        return (
            f"SELECT d.id FROM {documents} AS d CROSS JOIN LATERAL {named.of('row')}(d.body) AS r "
            f"LEFT JOIN {named.table} AS w ON w.seq = d.seq "
            "WHERE w.words IS DISTINCT FROM r.words OR w.level IS DISTINCT FROM r.level "
            f"UNION ALL SELECT NULL FROM {named.table} AS w "
            f"WHERE NOT EXISTS (SELECT FROM {documents} AS d WHERE d.seq = w.seq) LIMIT %(rows)s"
        )

    def matches(
        self, table: sa.Table, index: TextIndex, prefix: str, *, scored: bool, alone: bool = False
    ) -> str:
        """`alone`: parameters are in subqueries, which hide their values from the planner. Then its generic plan costs no
        more than plans for the values, and the server plans a prepared statement only a few times: planning takes
        several times as long as the search of a rare word (measured).
        """
        named = _Named(table, index.physical)
        hidden = "(SELECT {})" if alone else "{}"
        query, loose, ranked = (
            hidden.format(_query(index, f":{prefix}{name}")) for name in ("text", "loose", "rank")
        )
        has_phrases, terms = (
            hidden.format(f"CAST(:{prefix}{name} AS {kind})")
            for name, kind in (("has_phrases", "BOOLEAN"), ("terms", "JSONB"))
        )
        weights = [weight for _, weight in index.weights]
        shares = [weight / max(weights) for weight in weights]
        listed = ", ".join(map(repr, [*[0.0] * (len(LABELS) - len(shares)), *reversed(shares)]))
        rank = f"ts_rank(CAST(ARRAY[{listed}] AS REAL[]), w.words, {ranked}, 1)"
        score = f", CAST({rank} AS DOUBLE PRECISION) AS score" if scored else ""
        body = f"(SELECT d.body FROM {table_name(table)} AS d WHERE d.seq = w.seq)"
        has = f"{named.of('has')}({body}, {terms})"
        return (
            f"SELECT w.seq{score} FROM {named.table} AS w WHERE w.words @@ {loose} AND w.level > 0 AND CASE "
            f"WHEN NOT {has_phrases} THEN true "
            f"WHEN w.level = 2 THEN w.words @@ {query} ELSE {has} END UNION ALL "
            f"SELECT w.seq{score} FROM {named.table} AS w WHERE w.level = 0 AND {has}"
        )

    def values(self, index: TextIndex, query: SearchQuery) -> Sequence[str]:
        labels = {name: label for (name, _), label in zip(index.fields, LABELS)}  # noqa: B905
        text = _whole(query.required, query.excluded, labels)
        has_phrases = index.language is None and any(
            len(term.words) > 1 for term in (*query.terms, *query.excluded)
        )
        single = [term for term in query.excluded if len(term.words) == 1]
        loose = _whole(query.required, single, labels, " & ") if has_phrases else text
        listed = [_strings(each, labels) for each in query.required]
        terms = {"required": listed, "excluded": _strings(query.excluded, labels)}
        rank = _either(query.terms, labels)
        return [text, loose, str(has_phrases), rank, codec.spell(terms)]


class _Named:
    """The names of the parts of an index, as SQL."""

    def __init__(self, table: sa.Table, physical: str) -> None:
        self._schema, self._physical = table.schema, physical
        self.table = self._quoted(physical)
        self.trigger, self.index, self.rest = (
            table_name(sa.Table(f"{physical}_{each}", sa.MetaData()))
            for each in ("keep", "words", "rest")
        )

    def of(self, part: str) -> str:
        """Return a function."""
        return self._quoted(f"{self._physical}_{part}")

    def _quoted(self, name: str) -> str:
        return table_name(sa.Table(name, sa.MetaData(schema=self._schema)))


def _functions(named: _Named, index: TextIndex) -> Iterator[str]:
    """Yield the statements that create the functions, each before the functions that call it."""
    row = "body JSONB, OUT words tsvector, OUT level SMALLINT"
    yield _strings_function(named)
    for name, arguments, result, body in (
        ("fold", "w TEXT", "TEXT", _fold()),
        ("words", "t TEXT", "TEXT[]", _words(named)),
        ("vector", "t TEXT", "tsvector", _vector(named)),
        ("row", row, "RECORD", _row(named, index)),
        ("has", "body JSONB, query JSONB", "BOOLEAN", _has(named, index)),
    ):
        yield _function(named, name, arguments, result, body)


def _function(named: _Named, name: str, arguments: str, result: str, body: str) -> str:
    return (
        f"CREATE FUNCTION {named.of(name)}({arguments}) RETURNS {result} "
        f"LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS {literal(body)}"
    )


def _strings_function(named: _Named) -> str:
    body = f"BEGIN RETURN coalesce(({_STRINGS}), ''); END"
    return _function(named, "strings", "body JSONB, path JSONPATH", "TEXT", body)


_STRINGS: Final = (
    f"SELECT string_agg(v #>> '{{}}', ' {BOUNDARY} ') FROM jsonb_path_query(body, path) AS x(v) "
    "WHERE jsonb_typeof(v) = 'string' AND (jsonb_typeof(body) = 'object' OR CAST(path AS TEXT) = '$[*]')"
)
"""The strings that a path reaches, joined. A path with keys reaches nothing in an array."""


def _fold() -> str:
    """Return the body of the function that folds a word with characters beyond ASCII."""
    folds = "".join(
        f"IF w ~ '[{source[0]}-{source[-1]}]' THEN w := translate(w, '{source}', '{target}'); END IF; "
        for source, target in _tables()
    )
    without_marks = f"regexp_replace(w, '[{marks()}]+', '', 'g')"
    return f"BEGIN {folds}IF w ~ '[{marks()}]' THEN w := {without_marks}; END IF; RETURN w; END"


def _words(named: _Named) -> str:
    """Return the body of the function that finds the words of a text; the first and the last may be empty."""
    between = "".join(f"{_escaped(low)}-{_escaped(high)}" for low, high in separators())
    return (
        "BEGIN IF octet_length(t) = length(t) THEN "
        "RETURN regexp_split_to_array(lower(t COLLATE \"C\"), '[^a-z0-9]+'); END IF; RETURN ARRAY("
        f"SELECT CASE WHEN octet_length(w) = length(w) THEN w ELSE {named.of('fold')}(w) END "
        f"FROM regexp_split_to_table(lower(t COLLATE \"C\"), E'[{between}]+') WITH ORDINALITY AS x(w, n) ORDER BY n); END"
    )


def _vector(named: _Named) -> str:
    """Return the body of the function that makes the `tsvector` of a text. In ASCII the server's parser, in a third of
    the time, finds the same words, except those of more than 2,046 bytes, and those that begin like a number: 1e5a.
    """
    is_plain = (
        "octet_length(t) = length(t) AND t !~* '[0-9]e[0-9]' "
        f"AND t !~ '[a-zA-Z0-9]{{{MAX_WORD + 1}}}'"
    )
    listed = (
        f"SELECT string_agg('''' || left(w, {MAX_WORD + 1}) || ''':' || n, ' ') "
        f"FROM unnest({named.of('words')}(t)) WITH ORDINALITY AS u(w, n) WHERE w <> ''"
    )
    return (
        f"BEGIN IF {is_plain} THEN RETURN to_tsvector(CAST('pg_catalog.simple' AS REGCONFIG), "
        "regexp_replace(t, '[^a-zA-Z0-9[:space:]]+', ' ', 'g')); END IF; "
        f"RETURN coalesce(CAST(({listed}) AS tsvector), ''); END"
    )


def _row(named: _Named, index: TextIndex) -> str:
    """Return the body of the function that makes a row of the index."""
    numbers = range(len(index.weights))
    declared = " ".join(
        f"t{n} TEXT := {_text(named, 'body', path.keys)};"
        for n, (path, _) in enumerate(index.weights)
    )
    total = " + ".join(f"length(t{n})" for n in numbers)
    whole, beginning = (
        f" || {_GAP} || ".join(
            f"setweight({_labelled(named, index, text.format(n))}, '{LABELS[n]}')" for n in numbers
        )
        for text in ("t{}", f"left(t{{}}, {MAX_CHARACTERS // len(numbers)})")
    )
    counted = "SELECT max(cardinality(positions)) FROM unnest(words)"
    return (
        f"DECLARE {declared} total INTEGER := {total}; BEGIN "
        f"IF total <= {MAX_CHARACTERS} THEN words := {whole}; "
        f"level := CASE WHEN total <= {SHORT} OR (total <= {MEDIUM} AND ({counted}) < 255) THEN 2 ELSE 1 END; "
        f"ELSE BEGIN words := {whole}; level := 1; EXCEPTION WHEN program_limit_exceeded THEN "
        f"words := {beginning}; level := 0; END; END IF; END"
    )


_GAP: Final = f"CAST('''{BOUNDARY}'':1' AS tsvector)"
"""A position between fields: no phrase goes from one to the next."""


def _labelled(named: _Named, index: TextIndex, text: str) -> str:
    if index.language is None:
        return f"{named.of('vector')}({text})"
    return f"to_tsvector({_language(index)}, array_to_string({named.of('words')}({text}), ' '))"


def _has(named: _Named, index: TextIndex) -> str:
    """Return the body of the function that tests the whole text of a body, as `search.matching` does."""
    words = (
        f"' ' || array_to_string({named.of('words')}({text}), ' ') || ' '"
        for text in (_text(named, "body", path.keys) for path, _ in index.weights)
    )
    found = (
        "EXISTS (SELECT FROM jsonb_array_elements({terms}) AS t(term), unnest(texts, labels) AS x(words, label) "
        "WHERE strpos(x.words, t.term ->> 1) > 0 AND (t.term ->> 0 IS NULL OR t.term ->> 0 = x.label))"
    )
    labels = ", ".join(f"'{each}'" for each in LABELS[: len(index.weights)])
    excluded = found.format(terms="query -> 'excluded'")
    return (
        f"DECLARE texts TEXT[] := ARRAY[{', '.join(words)}]; labels TEXT[] := ARRAY[{labels}]; BEGIN "
        f"RETURN NOT EXISTS (SELECT FROM jsonb_array_elements(query -> 'required') AS c(terms) "
        f"WHERE NOT {found.format(terms='c.terms')}) AND NOT {excluded}; END"
    )


def _text(named: _Named, body: str, keys: Keys) -> str:
    """Return the strings at a path, joined; empty without strings. PL/pgSQL evaluates an expression without a subquery
    several times as fast.
    """
    value = value_at(body, keys)
    return (
        f"CASE WHEN jsonb_typeof({value}) = 'string' THEN {value} #>> '{{}}' "
        f"WHEN {value_at(body, keys[:1])} IS NULL THEN '' "
        f"ELSE {named.of('strings')}({body}, CAST('{path_literal(keys)}[*]' AS JSONPATH)) END"
    )


def _tables() -> Iterator[tuple[str, str]]:
    """Yield the characters that become others, and the others, in the order of the characters."""
    pairs = iter(sorted(item for item in folded().items() if not item[0].isascii()))
    while some := list(islice(pairs, FOLDED_AT_ONCE)):
        yield "".join(one for one, _ in some), "".join(other for _, other in some)


def _escaped(code: int) -> str:
    """Return a character of a regular expression within a literal."""
    return f"\\\\u{code:04x}" if code < 0x10000 else f"\\\\U{code:08x}"


def _language(index: TextIndex) -> str:
    return f"CAST({literal(str(index.language))} AS REGCONFIG)"


def _query(index: TextIndex, parameter: str) -> str:
    if index.language is None:
        return f"CAST({parameter} AS tsquery)"
    return f"to_tsquery({_language(index)}, {parameter})"


def _whole(
    required: Sequence[Sequence[Term]],
    excluded: Sequence[Term],
    labels: Mapping[str, str],
    between: str = " <-> ",
) -> str:
    text = " & ".join(_either(each, labels, between) for each in required)
    return f"{text} & !{_either(excluded, labels, between)}" if excluded else text


def _either(terms: Sequence[Term], labels: Mapping[str, str], between: str = " <-> ") -> str:
    return f"({' | '.join(_term(each, labels, between) for each in terms)})"


def _term(term: Term, labels: Mapping[str, str], between: str) -> str:
    """Return a term as a `tsquery`. No word has a quotation mark. `between` words of a phrase is "&" for any order."""
    label = "" if term.field is None else labels[term.field]
    words = [f"'{word}'{':' if label else ''}{label}" for word in term.words]
    if term.prefix:
        words[-1] = f"'{term.words[-1]}':*{label}"
    return f"({between.join(words)})"


def _strings(terms: Sequence[Term], labels: Mapping[str, str]) -> list[list[str | None]]:
    """Return the label of each term, and the string that the words of a text contain if they have the term."""
    ends = ("" if term.prefix else " " for term in terms)
    return [
        [None if term.field is None else labels[term.field], f" {' '.join(term.words)}{end}"]
        for term, end in zip(terms, ends, strict=True)
    ]
