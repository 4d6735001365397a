"""State of a database for probes, and problems of a database for administrators. Both only read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import partial
from shlex import quote
from typing import Any, Final, NamedTuple, TypeAlias

from ..codec.times import written_times
from ..document import now
from ..errors import (
    CollectionsStoreError,
    DatabaseBusy,
    DatabaseUnavailable,
    TransactionConflict,
    shortened,
)
from ..expressions.classes import value_class
from ..expressions.path import Path
from ..options import CollectionOptions
from ..query.text_index import TextIndex
from ..search.words import WORDS_VERSION
from ..sql.dialects.protocols import Database, Probe, Severity
from ..sql.schema import REVISION
from ..sql.select import Statements
from ..sql.vectors import journal_of
from .catalogue import read_options
from .collections import STAGED
from .operation import Operation
from .schema import read_revision
from .session import Session
from .survey import sampled
from .unwritable import problem_of

LIMITS: Final = {"rows": 10_000, "scans": 100, "seconds": 300, "bytes": 2**26}
"""From where on something is a problem: expired documents, dead rows, or rows of a scan; scans; the age of a transaction and the
delay of a replica; the size of a log and of free space.
"""
SAMPLED: Final = 1000
"""Documents of a collection in which the doctor looks for times."""
LISTED: Final = 10
"""Fields that a finding lists."""
_TRANSIENT: Final = (DatabaseBusy, DatabaseUnavailable, TransactionConflict)
Check: TypeAlias = tuple[str, Callable[[], "Iterable[Finding]"]]
"""The name of a check, and what finds its problems."""


class DatabaseState(NamedTuple):
    """The revision of the store's tables, None without tables; and whether the server accepts no write."""

    revision: str | None
    is_read_only: bool


class Finding(NamedTuple):
    """A problem: the kind, the collection, table or server, and advice."""

    severity: Severity
    check: str
    where: str
    problem: str
    advice: str


@value_class
class FindState(Operation[DatabaseState]):
    """Return the state of the database."""

    collection = ""
    atomic = True

    def __call__(self, session: Session) -> DatabaseState:
        probe = session.database.connections.read_only_probe
        is_read_only = probe is not None and bool(session.rows(probe)[0][0])
        return DatabaseState(read_revision(session), is_read_only)


@value_class
class Diagnose(Operation[list[Finding]]):
    """Return the problems of a database. `log_size`: bytes of the log beside the file."""

    log_size: int = 0
    collection = ""
    atomic = True  # each check is a transaction, which may fail: after damage, so does the COMMIT of a read

    def __call__(self, session: Session) -> list[Finding]:
        names = session.store.names
        parameters = {"prefix": names.prefix, "schema": names.schema, **LIMITS}
        found = list(self._of_log())
        collections: dict[str, str] = {}
        later: list[Check] = []
        find = partial(_of_schema, session, parameters, collections, later)
        found += _attempt(session, "schema", find)
        for check, problems in later:
            found += _attempt(session, check, problems)
        for probe in session.database.diagnosis.probes:
            find = partial(_of_probe, session, probe, parameters)
            for each in _attempt(session, probe.check, find):
                if not each.where or names.owns(each.where):
                    found.append(each._replace(where=collections.get(each.where, each.where)))
        return found

    def _of_log(self) -> Iterator[Finding]:
        if self.log_size >= LIMITS["bytes"]:
            size = self.log_size // 2**20
            problem = f"the log beside the file has {size} MB: no checkpoint could empty it"
            advice = "end long reads and transactions, of other programs too; later writes then empty the log"
            yield Finding("warning", "log", "", problem, advice)


def _attempt(session: Session, check: str, find: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings of a check. A failed check is a finding, too."""
    errors = session.database.errors
    try:
        with session.transaction(write=False):
            return list(find())
    except errors.types() as error:
        failure = errors.translate(error)
    except CollectionsStoreError as error:
        failure = error
    if isinstance(failure, _TRANSIENT):
        raise failure
    advice = "restore the database from a backup if its data is damaged, or grant the right to read"
    return [Finding("error", check, "", f"the check failed: {failure}", advice)]


def _of_probe(session: Session, probe: Probe, parameters: Mapping[str, Any]) -> Iterator[Finding]:
    if probe.needs is None or session.rows(probe.needs):
        for row in session.rows(probe.sql, parameters):
            texts = (text.format(*row) for text in (probe.problem, probe.advice))
            yield Finding(probe.severity, probe.check, row[0], *texts)


def _of_schema(
    session: Session,
    parameters: Mapping[str, Any],
    collections: dict[str, str],
    later: list[Check],
) -> Iterator[Finding]:
    """Compare the tables with the catalogue; add each table's collection to `collections`, and the checks of the documents
    to `later`.
    """
    revision = read_revision(session)
    if revision is None:
        problem = "the database has no tables of collections_store yet"
        yield Finding("info", "schema", "", problem, "none: the first write creates them")
    elif revision != REVISION:
        problem = f"the schema is {revision}, this version of collections_store needs {REVISION}"
        advice = "run `collections-store db upgrade`, or upgrade the library if the schema is newer"
        yield Finding("warning", "schema", "", problem, advice)
    else:
        there: dict[str, set[str]] = defaultdict(set)
        for table, index in session.rows(session.database.diagnosis.tables, parameters):
            there[table].add(index)
        yield from _of_tables(session, there, collections, later)


def _of_tables(
    session: Session,
    there: Mapping[str, set[str]],
    collections: dict[str, str],
    later: list[Check],
) -> Iterator[Finding]:
    names = session.store.names
    known = {names.catalogue, names.revision, names.identity, names.checksums}
    is_damaged = False
    for name, table, _, text in session.rows(session.store.listing):
        collections[table] = name
        known.add(table)
        try:
            options = read_options(name, text)
        except CollectionsStoreError as error:
            is_damaged = True
            yield Finding("error", "catalogue", name, str(error), "do not drop its tables by hand")
            continue
        known.update(each.physical for each in options.every_index)
        known.update(journal_of(each.physical) for each in options.vector_indexes)
        for each in options.text_indexes:
            known.update(session.database.text.tables(each.physical))
        if options.feed is not None:
            known.add(options.feed.physical)
            collections[options.feed.physical] = name
        yield from _of_collection(session, name, table, options, there)
        if options.text is not None and {table, options.text.physical} <= there.keys():
            later.append(("words", partial(_of_words, session, name, table, options.text)))
        if table in there and not name.endswith(STAGED):
            documents = session.store.documents(table, options)
            later.append(("times", partial(_of_times, session, name, documents)))
    for table in sorted(there.keys() - known):
        if names.owns(table) and not (is_damaged and "$" in table):  # the damaged entry may name it
            problem = f"the catalogue does not know the table {table}"
            advice = "drop the table by hand, once no other program uses it"
            yield Finding("warning", "catalogue", table, problem, advice)


def _of_collection(
    session: Session,
    name: str,
    table: str,
    options: CollectionOptions,
    there: Mapping[str, set[str]],
) -> Iterator[Finding]:
    if name.endswith(STAGED):
        name = name.removesuffix(STAGED)
        problem = "an interrupted restore left documents that no reader sees"
        advice = f"run the restore again, which goes on, or `collections-store drop {name}`"
        yield Finding("warning", "restores", name, problem, advice)
    feed = options.feed
    for each, what in ((table, "documents"), (feed and feed.physical, "recorded changes")):
        if each is not None and each not in there:
            problem = f"the table {each} of its {what} does not exist"
            advice = f"restore the database from a backup, or run `collections-store drop {name}`"
            yield Finding("error", "catalogue", name, problem, advice)
            return
    yield from _of_indexes(name, options, there[table] | there.keys(), session.database)
    yield from _of_purging(session, name, session.store.documents(table, options))


def _of_indexes(
    name: str, options: CollectionOptions, there: Set[str], database: Database
) -> Iterator[Finding]:
    for index in options.indexes:
        is_stored = not index.arrays or index.has_entries or database.indexes_arrays
        if is_stored and index.physical not in there:
            severity: Severity = "error" if index.unique else "warning"
            harm = "duplicates are not refused" if index.unique else "queries scan"
            problem = f"the index {index.name!r} ({index.physical}) does not exist: {harm}"
            yield Finding(severity, "indexes", name, problem, _again(name, index.name))
        if (unwritable := problem_of(index)) is not None:
            yield Finding("error", "indexes", name, unwritable, _again(name, index.name))
    for each in options.vector_indexes:
        if not {each.physical, journal_of(each.physical)} <= there:
            problem = f"a table of the index {each.name!r} ({each.physical}) does not exist"
            yield Finding("error", "indexes", name, problem, _again(name, each.name))
    for text in options.text_indexes:
        if text.physical not in there:
            harm = "queries scan or fail" if text.substring else "searches fail"
            problem = f"the text index {text.name!r} ({text.physical}) does not exist: {harm}"
            yield Finding("error", "indexes", name, problem, _again(name, text.name))


def _again(collection: str, index: str) -> str:
    """Return the advice to create an index again; a shell must not expand a name such as "$updated_at_1"."""
    return f"run `collections-store index drop {quote(collection)} {quote(index)}`, then create it again"


def _of_words(session: Session, name: str, table: str, index: TextIndex) -> Iterator[Finding]:
    """Compare the words of documents with a text index."""
    if index.words != WORDS_VERSION:
        return
    rows = session.rows(
        session.store.indexes(table).differing_text(index), {"rows": LIMITS["rows"]}
    )
    if rows:
        first = next((f", of {shortened(id)} first" for (id,) in rows if id is not None), "")
        more = " or more" if len(rows) == LIMITS["rows"] else ""
        problem = f"the text index {index.name!r} has other words than {len(rows):,}{more} documents{first}"
        yield Finding("error", "words", name, problem, _again(name, index.name))


def _of_times(session: Session, name: str, statements: Statements) -> Iterator[Finding]:
    """Look for fields in which times are written differently: such strings do not sort as times do."""
    forms: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    documents = sampled(session, statements, name, SAMPLED)
    for document in documents:
        for keys, form in written_times(document.body):
            forms[keys][form] += 1
    mixed = [(_named(keys), each) for keys, each in sorted(forms.items()) if len(each) > 1]
    if mixed:
        some = mixed[:LISTED]
        texts = (
            f"{path if isinstance(path, str) else repr(path)} "
            f"({', '.join(f'{count:,} as {form}' for form, count in each.most_common())})"
            for path, each in some
        )
        more = f"; more fields: {len(mixed) - len(some):,}" if len(mixed) > len(some) else ""
        read = f"{len(documents):,} documents were read"
        problem = (
            f"times do not sort where a field mixes their forms: {'; '.join(texts)}{more}; {read}"
        )
        fields = " ".join(f"--times {quote(path)}" for path, _ in some if isinstance(path, str))
        advice = f"run `collections-store documents upgrade {quote(name)} {fields} --dry-run`, then without --dry-run"
        if not fields:
            advice = "write the times in one form in your program: no --times names these fields"
        yield Finding("warning", "times", name, problem, advice)


def _named(keys: tuple[str, ...]) -> Path | str:
    """Return the dotted name of a field, or the path of a field that no dotted name means."""
    name = ".".join(keys)
    return name if tuple(name.split(".")) == keys else Path(*keys)


def _of_purging(session: Session, name: str, statements: Statements) -> Iterator[Finding]:
    limit = LIMITS["rows"]
    window = {"now": now(), "limit": limit}
    [(expired,)] = session.rows(statements.by_id.count_expired, window)
    if expired >= limit:
        problem = f"{expired:,} or more expired documents are not deleted"
        advice = "run `collections-store purge`, and open a store with sweep_interval"
        yield Finding("warning", "expiry", name, problem, advice)
    feed = statements.feed
    if feed is not None and session.rows(feed.over_limit, {"kept": 2 * feed.feed.limit}):
        problem = f"more than {2 * feed.feed.limit:,} changes are recorded, twice the limit"
        yield Finding("warning", "feed", name, problem, "run `collections-store purge`")
