"""Text indexes of PostgreSQL: a table of `tsvector`s, maintained by a trigger.

PostgreSQL's parser finds other words than SQLite, and its case depends on the locale. So functions in the database's own
language find the words of `search.words`, and number them. The functions belong to the index, and are dropped with it.

A `tsvector` has limits: 1 MB, 16,383 positions, 255 positions of a word. A row is `complete` if nothing was cut off;
otherwise `words` has the beginning of the text, for the score, and a function tests the whole text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import sqlalchemy as sa

from .... import codec
from ....query.text_index import TextIndex
from ....search.query import SearchQuery, Term
from ....search.words import BOUNDARY, MAX_WORD, folded, marks, separators
from ...elements import Keys
from ..text_search import TextIndexes
from .compiler import table_name
from .filters import path_literal
from .ordering import literal, value_at

LABELS: Final = "ABCD"
"""The label of the words of each field."""
MAX_CHARACTERS: Final = 150_000
"""Characters whose words a `tsvector` can hold, whatever they are."""
SHORT: Final = 400
"""Characters of a text that has fewer words than a `tsvector` has positions of a word."""
FOLDED_AT_ONCE: Final = 130
"""Characters that `translate` replaces: it compares each character of a word with all of them."""


class PostgresTextIndexes(TextIndexes):
    """`tsvector` and GIN."""

    languages = None
    language_probe = "SELECT 1 FROM pg_ts_config WHERE cfgname = %(language)s"
    probe = "SELECT 1"
    names = ("text", "rank", "terms")

    def create(self, table: sa.Table, index: TextIndex) -> Sequence[str]:
        named, documents = _Named(table, index.physical), table_name(table)
        new, old = (_texts(f"{row}.body", index) for row in ("NEW", "OLD"))
        keep = (
            f"CREATE FUNCTION {named.of('keep')}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT "
            f"AS $keep$ BEGIN IF TG_OP = 'INSERT' THEN INSERT INTO {named.table} SELECT NEW.seq, r.* "
            f"FROM {named.of('row')}(NEW.body) AS r; "
            f"ELSIF TG_OP = 'DELETE' THEN DELETE FROM {named.table} WHERE seq = OLD.seq; "
            f"ELSIF ROW({old}) IS DISTINCT FROM ROW({new}) THEN UPDATE {named.table} AS w SET words = r.words, "
            f"complete = r.complete FROM {named.of('row')}(NEW.body) AS r WHERE w.seq = OLD.seq; "
            "END IF; RETURN NULL; END $keep$"
        )
        trigger = (
            f"CREATE TRIGGER {named.trigger} AFTER INSERT OR DELETE OR UPDATE OF body ON {documents} "
            f"FOR EACH ROW EXECUTE FUNCTION {named.of('keep')}()"
        )
        return [
            f"CREATE TABLE {named.table} (seq BIGINT PRIMARY KEY, words tsvector NOT NULL, complete BOOLEAN NOT NULL)",
            *_functions(named, index),
            f"INSERT INTO {named.table} SELECT d.seq, r.* FROM {documents} AS d, {named.of('row')}(d.body) AS r",
            f"CREATE INDEX {named.index} ON {named.table} USING gin (words)",
            f"CREATE INDEX {named.rest} ON {named.table} (seq) WHERE NOT complete",
            keep,
            trigger,
        ]

    def drop(self, table: sa.Table, physical: str) -> Sequence[str]:
        named = _Named(table, physical)
        functions = ("keep", "has", "row", "words", "fold")
        return [
            f"DROP TRIGGER IF EXISTS {named.trigger} ON {table_name(table)}",
            f"DROP TABLE IF EXISTS {named.table}",
            *(f"DROP FUNCTION IF EXISTS {named.of(each)}" for each in functions),
        ]

    def tables(self, physical: str) -> Sequence[str]:
        return [physical]

    def matches(self, table: sa.Table, index: TextIndex, prefix: str, *, scored: bool) -> str:
        named = _Named(table, index.physical)
        query, ranked = (_query(index, f":{prefix}{name}") for name in ("text", "rank"))
        weights = [weight for _, weight in index.weights]
        shares = [weight / max(weights) for weight in weights]
        listed = ", ".join(map(repr, [*[0.0] * (len(LABELS) - len(shares)), *reversed(shares)]))
        rank = f"ts_rank(CAST(ARRAY[{listed}] AS REAL[]), w.words, {ranked}, 1)"
        score = f", CAST({rank} AS DOUBLE PRECISION) AS score" if scored else ""
        return (
            f"SELECT w.seq{score} FROM {named.table} AS w WHERE w.words @@ {query} AND w.complete UNION ALL "
            f"SELECT w.seq{score} FROM {named.table} AS w JOIN {table_name(table)} AS whole ON whole.seq = w.seq "
            f"WHERE NOT w.complete AND {named.of('has')}(whole.body, CAST(:{prefix}terms AS JSONB))"
        )

    def values(self, index: TextIndex, query: SearchQuery) -> Sequence[str]:
        labels = {name: label for (name, _), label in zip(index.fields, LABELS)}  # noqa: B905
        text = " & ".join(_either(each, labels) for each in query.required)
        if query.excluded:
            text = f"{text} & !{_either(query.excluded, labels)}"
        listed = [_strings(each, labels) for each in query.required]
        terms = {"required": listed, "excluded": _strings(query.excluded, labels)}
        return [text, _either(query.terms, labels), codec.spell(terms)]


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


_SPLIT: Final = (
    "ARRAY(SELECT CASE WHEN octet_length(w) = length(w) THEN w ELSE {fold}(w) END FROM "
    'regexp_split_to_table(lower(t COLLATE "C"), {separators}) WITH ORDINALITY AS x(w, n) ORDER BY n)'
)


def _functions(named: _Named, index: TextIndex) -> Iterator[str]:
    """Yield the statements that create the functions, each before the functions that call it."""
    head = "LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS"
    folds = " ".join(
        f"IF w ~ '[{source[0]}-{source[-1]}]' THEN w := translate(w, '{source}', '{target}'); END IF;"
        for source, target in _tables()
    )
    folds += f" IF w ~ '[{marks()}]' THEN w := regexp_replace(w, '[{marks()}]+', '', 'g'); END IF;"
    yield f"CREATE FUNCTION {named.of('fold')}(w TEXT) RETURNS TEXT {head} $fold$ BEGIN {folds} RETURN w; END $fold$"
    other = "".join(f"{_escaped(low)}-{_escaped(high)}" for low, high in separators())
    split = _SPLIT.format(fold=named.of("fold"), separators=f"E'[{other}]+'")
    yield (
        f"CREATE FUNCTION {named.of('words')}(t TEXT) RETURNS TEXT[] {head} $words$ BEGIN "
        "IF octet_length(t) = length(t) THEN "
        "RETURN regexp_split_to_array(lower(t COLLATE \"C\"), '[^a-z0-9]+'); END IF; "
        f"RETURN {split}; END $words$"
    )
    yield (
        f"CREATE FUNCTION {named.of('row')}(body JSONB, OUT words tsvector, OUT complete BOOLEAN) {head} $row$ "
        f"{_row(named, index)} $row$"
    )
    yield (
        f"CREATE FUNCTION {named.of('has')}(body JSONB, query JSONB) RETURNS BOOLEAN {head} $has$ "
        f"{_has(named, index)} $has$"
    )


def _row(named: _Named, index: TextIndex) -> str:
    """Return the body of the function that makes a row of the index."""
    numbers = range(len(index.weights))
    most = MAX_CHARACTERS // len(numbers)
    texts = [_text("body", path.keys) for path, _ in index.weights]
    declared = " ".join(
        f"t{n} TEXT := {text}; a{n} TEXT[] := {named.of('words')}(left(t{n}, {most}));"
        for n, text in zip(numbers, texts)  # noqa: B905
    )
    if index.language is not None:
        parts = (
            f"setweight(to_tsvector({_language(index)}, array_to_string(a{n}, ' ')), '{LABELS[n]}')"
            for n in numbers
        )
        return f"DECLARE {declared} BEGIN words := {' || '.join(parts)}; complete := true; END"
    before = [f"cardinality(a{n}) + 1" for n in numbers]
    listed = " UNION ALL ".join(
        f"SELECT '''' || left(w, {MAX_WORD + 1}) || ''':' || {' + '.join(['n', *before[:n]])} || '{LABELS[n]}' "
        f"FROM unnest(a{n}) WITH ORDINALITY AS u(w, n) WHERE w <> ''"
        for n in numbers
    )
    lengths = [f"length(t{n})" for n in numbers]
    counted = " + ".join(f"cardinality(array_remove(a{n}, ''))" for n in numbers)
    fits = " AND ".join(f"{length} <= {most}" for length in lengths)
    return (
        f"DECLARE {declared} BEGIN words := coalesce(CAST((SELECT string_agg(x, ' ') FROM ({listed}) AS s(x)) AS tsvector), ''); "
        f"complete := {' + '.join(lengths)} <= {SHORT} OR ({fits} AND "
        f"(SELECT coalesce(sum(cardinality(positions)), 0) FROM unnest(words)) = {counted}); END"
    )


def _has(named: _Named, index: TextIndex) -> str:
    """Return the body of the function that tests the whole text of a body, as `search.matching` does."""
    words = (
        f"' ' || array_to_string({named.of('words')}({text}), ' ') || ' '"
        for text in (_text("body", path.keys) for path, _ in index.weights)
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


def _texts(body: str, index: TextIndex) -> str:
    return ", ".join(_text(body, path.keys) for path, _ in index.weights)


def _text(body: str, keys: Keys) -> str:
    """Return the strings at a path, joined; empty without strings."""
    value = value_at(body, keys)
    strings = (
        f"SELECT string_agg(v #>> '{{}}', ' {BOUNDARY} ') FROM jsonb_path_query({body}, '{path_literal(keys)}[*]') "
        f"AS x(v) WHERE jsonb_typeof(v) = 'string' AND jsonb_typeof({body}) = 'object'"
    )
    return f"coalesce(CASE jsonb_typeof({value}) WHEN 'string' THEN {value} #>> '{{}}' ELSE ({strings}) END, '')"


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


def _either(terms: Sequence[Term], labels: Mapping[str, str]) -> str:
    return f"({' | '.join(_term(each, labels) for each in terms)})"


def _term(term: Term, labels: Mapping[str, str]) -> str:
    """Return a term as a `tsquery`. No word has a quotation mark."""
    label = "" if term.field is None else labels[term.field]
    words = [f"'{word}'{':' if label else ''}{label}" for word in term.words]
    if term.prefix:
        words[-1] = f"'{term.words[-1]}':*{label}"
    return f"({' <-> '.join(words)})"


def _strings(terms: Sequence[Term], labels: Mapping[str, str]) -> list[list[str | None]]:
    """Return the label of each term, and the string that the words of a text contain if they have the term."""
    ends = ("" if term.prefix else " " for term in terms)
    return [
        [None if term.field is None else labels[term.field], f" {' '.join(term.words)}{end}"]
        for term, end in zip(terms, ends, strict=True)
    ]
