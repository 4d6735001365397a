"""Commands on collections, on their indexes, and on the schema of the database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from .. import (
    CollectionNotFound,
    CollectionsStoreError,
    InvalidIndex,
    InvalidSort,
    Path,
    TextIndex,
    VectorIndex,
)
from ..errors import did_you_mean, shortened
from ..search.vectors import Metric
from .arguments import (
    Group,
    Target,
    collation_option,
    collection_argument,
    consent,
    count_option,
    json_option,
    on_database,
    output_option,
    pairs_of,
    read_field,
    read_json,
    read_order,
    yes_option,
)
from .completion import complete_field
from .files import INDEXES, BadItem, working
from .output import (
    Exit,
    Failure,
    Format,
    counted,
    emit,
    to_text,
    write_facts,
    write_rows,
)
from .search import read_text_index, read_weights, text_index_as_json

if TYPE_CHECKING:
    import sqlalchemy as sa

    from .. import Collection, Index

_VECTOR_KEYS = ("name", "fields", "dimensions", "metric", "model", "method")
_INDEX_KEYS = (
    *("name", "fields", "unique", "where", "arrays", "sparse"),
    *("expire_after_seconds", "collation", "hidden"),
)


@click.command()
@output_option("jsonl", "json", "table", default=None)
@on_database
def collections(target: Target, *, output: Format) -> None:
    """List the collections by name, with their counts of documents and sizes in bytes.

    \b
      collections-store collections --output json
    """
    with target.to_read() as store:
        found = store.collections()
    rows = [(info.name, f"{info.count:,}", f"{info.size:,}") for info in found]
    number: dict[str, Any] = {"justify": "right", "no_wrap": True}
    columns = {"name": {"overflow": "fold"}, "count": number, "bytes": number}
    lines = [
        {"name": each.name, "count": each.count, "size": each.size}
        | {"created_at": each.created_at.isoformat()}
        for each in found
    ]
    write_rows(lines, output, columns, rows)


@click.command()
@collection_argument
@yes_option
@on_database
def drop(target: Target, collection: str, *, yes: bool) -> None:
    """Delete COLLECTION with all its documents.

    The command asks for confirmation. Without a terminal, pass --yes:

    \b
      collections-store drop people --yes
    """
    with target.to_read() as store:
        count = counted(target.collection(store, collection).count(), "document")
        if not yes:
            consent(f"Delete {collection} with its {count}?")
        store.drop(collection)
    click.echo(f"deleted {collection} with its {count}", err=True)


@click.command()
@json_option
@on_database
def info(target: Target, *, as_json: bool) -> None:
    """Print the database's URL, versions and size.

    \b
      collections-store info --json
    """
    import platform

    import sqlalchemy as sa

    from .. import migrate

    with target.to_read() as store:
        revision = migrate.current(target.url, **target.names())
        found = [] if revision is None else store.collections()  # without tables it creates none
    facts = {
        "url": target.safe_url(),
        "database": _database_version(target.driver_url()),
        "schema": revision,
        "collections": len(found),
        "documents": sum(each.count for each in found),
        "bytes": sum(each.size for each in found),
        "collections-store": library_version(),
        "SQLAlchemy": sa.__version__,
        "Python": platform.python_version(),
    }
    write_facts(facts, as_json=as_json)


@click.command()
@collection_argument
@json_option
@on_database
def stats(target: Target, collection: str, *, as_json: bool) -> None:
    """Print the figures of COLLECTION: documents, bytes, expiry, times and indexes.

    The command reads all documents. An expired document does not count. Sizes of indexes are in bytes; PostgreSQL
    also counts the uses of an index since the server's statistics were reset:

    \b
      collections-store stats people --json
    """
    from ..operations.survey import MeasureIndexes

    with target.to_read() as store:
        found, infos = store.collection(collection), store.collections()
        known = {each.name: each for each in infos}.get(collection)
        if known is None:
            raise CollectionNotFound(collection, [each.name for each in infos])
        newest = found.find(sort=[("$updated_at", -1)], limit=1)
        expiring = {"$expires_at": {"$ne": None}}
        ends = [each.expires_at for each in found.find(expiring, sort="$expires_at", limit=1)]
        indexes = [each.name for each in found.indexes()]
        measures = (store.run(MeasureIndexes(collection)) or {}).items()
        sizes = {name: each.size for name, each in measures}
        uses = {name: each.uses for name, each in measures if each.uses is not None}
        facts = {
            "documents": known.count,
            "bytes": known.size,
            "expiring": found.count(expiring),
            "next expiry": ends[0].isoformat() if ends and ends[0] else None,
            "created": known.created_at.isoformat(),
            "last write": newest[0].updated_at.isoformat() if newest else None,
            "indexes": indexes if as_json else ", ".join(indexes) or None,
            "index sizes": sizes if as_json else _named(sizes),
            "index uses": uses if as_json else _named(uses),
        }
    write_facts(facts, as_json=as_json)


def _named(numbers: dict[str, int]) -> str | None:
    return ", ".join(f"{name} {number:,}" for name, number in numbers.items()) or None


def library_version() -> str:
    """Return the version of the installed library."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("collections-store")
    except PackageNotFoundError:
        return "not installed"


def _database_version(url: sa.URL) -> str:
    """Return the database's name and version, read by SQLAlchemy on connecting."""
    import sqlalchemy as sa

    engine = sa.create_engine(url)
    with engine.connect():
        numbers = engine.dialect.server_version_info or ()
    engine.dispose()
    return f"{engine.dialect.name} {'.'.join(map(str, numbers))}"


# -- indexes -----------------------------------------------------------------------------------


index = Group("index", help="List, create, hide and drop the indexes of a collection.")


@index.command("list")
@collection_argument
@output_option("jsonl", "json", "table", default=None)
@on_database
def list_indexes(target: Target, collection: str, *, output: Format) -> None:
    """List the indexes of COLLECTION in the order of their creation.

    \b
      collections-store index list people --output table
    """
    with target.to_read() as store:
        found = target.collection(store, collection).indexes()
    rows = [
        (
            each.name,
            ", ".join(f"{field}:{number}" for field, number in each.fields),
            ", ".join(_kinds(each)),
            "" if getattr(each, "where", None) is None else to_text(each.to_json()["where"]),
        )
        for each in found
    ]
    columns = {name: {"overflow": "fold"} for name in ("name", "fields", "kind", "where")}
    write_rows(map(index_as_json, found), output, columns, rows)


@index.command("create")
@collection_argument
@click.argument(
    "fields", metavar="FIELD...", nargs=-1, required=True, shell_complete=complete_field
)
@click.option("--unique", is_flag=True, help="Forbid two documents with equal values.")
@click.option("--where", metavar="JSON", help="Index only documents that match this filter.")
@click.option("--arrays", is_flag=True, help="Index the elements of arrays.")
@click.option("--sparse", is_flag=True, help="Index only documents with one of the FIELDs.")
@count_option(
    "--expire-after-seconds", 0, "Expire documents N seconds after the time in the FIELD."
)
@collation_option
@click.option("--hidden", is_flag=True, help="Maintain the index, but use it for no query.")
@click.option("--text", is_flag=True, help="Index the words of the fields, for search.")
@click.option("--language", metavar="NAME", help="With --text: the language of the words.")
@click.option("--substring", is_flag=True, help="With --text: index substrings, for find.")
@click.option("--vector", is_flag=True, help="Index the vectors of the fields, for search --like.")
@count_option("--dimensions", 1, "With --vector: the numbers of a vector.")
@click.option(
    "--metric", type=click.Choice(get_args(Metric)), help="With --vector. Default: cosine."
)
@click.option("--name", metavar="NAME", help="The name of the index. Default: its fields.")
@on_database
def create_index(
    target: Target,
    collection: str,
    fields: tuple[str, ...],
    *,
    where: str | None,
    text: bool,
    vector: bool,
    **options: Any,
) -> None:
    """Create an index on FIELDs, and print its name.

    The command creates a missing COLLECTION, and does not change an existing index. A FIELD is a dotted path,
    followed by :-1 for descending order, or with --text by a weight. FIELDs may also be JSON, as for find --sort:

    \b
      collections-store index create people address.city age:-1
      collections-store index create people login --unique --where '{"on": true}'
      collections-store index create people name --collation '{"locale": "de", "strength": 2}'
      collections-store index create goods 'attributes.$**'
      collections-store index create notes title:3 body --text
      collections-store index create notes embedding --vector --dimensions 384
    """
    own = _own_options(text=text, vector=vector, where=where, options=options)
    if text:
        with target.to_write() as store, working("creating the index"):
            emit(store.collection(collection).create_text_index(read_weights(fields), **own))
        return
    if vector:
        paths = [read_field(each) for each in fields]
        with target.to_write() as store, working("creating the index"):
            emit(store.collection(collection).create_vector_index(paths, **own))
        return
    with _of_index():
        order = read_order(fields, "FIELD")
    limit = None if where is None else read_json(where, "--where")
    with target.to_write() as store, working("creating the index"):
        emit(store.collection(collection).create_index(order, where=limit, **own))


_OWN: Final = {
    "text": ("language", "substring"),
    "vector": ("dimensions", "metric"),
    "": ("unique", "arrays", "sparse", "expire_after_seconds", "collation", "hidden"),
}
"""The options of each kind of index."""


def _own_options(
    *, text: bool, vector: bool, where: str | None, options: dict[str, Any]
) -> dict[str, Any]:
    """Return the options of the kind of index, and its name; raise `UsageError` for those of another kind."""
    if text and vector:
        raise click.UsageError("--text does not go with --vector")
    kind = "text" if text else "vector" if vector else ""
    if kind and where is not None:
        raise click.UsageError(f"--where does not go with --{kind}")
    for other, names in _OWN.items():
        for name in names:
            if other != kind and options[name] is not None and options[name] is not False:
                needs = f"goes with --{other}" if other else f"does not go with --{kind}"
                raise click.UsageError(f"--{name.replace('_', '-')} {needs}")
    if vector and options["dimensions"] is None:
        raise click.UsageError("--vector needs --dimensions, the numbers of a vector")
    own = {name: options[name] for name in (*_OWN[kind], "name")}
    return {name: each for name, each in own.items() if each is not None}


@index.command("drop")
@collection_argument
@click.argument("name")
@on_database
def drop_index(target: Target, collection: str, name: str) -> None:
    """Drop the index NAME of COLLECTION; the documents stay.

    \b
      collections-store index drop people address.city_1_age_-1
    """
    with target.to_read() as store:
        found = target.collection(store, collection)
        _check_index(found, name, exists=found.drop_index(name))


@index.command("hide")
@collection_argument
@click.argument("name")
@on_database
def hide_index(target: Target, collection: str, name: str) -> None:
    """Hide the index NAME of COLLECTION: no query uses it, but it is maintained.

    \b
      collections-store index hide people login_1
    """
    with target.to_read() as store:
        found = target.collection(store, collection)
        _check_index(found, name, exists=found.hide_index(name))


@index.command("unhide")
@collection_argument
@click.argument("name")
@on_database
def unhide_index(target: Target, collection: str, name: str) -> None:
    """Let queries use the hidden index NAME of COLLECTION again.

    \b
      collections-store index unhide people login_1
    """
    with target.to_read() as store:
        found = target.collection(store, collection)
        _check_index(found, name, exists=found.unhide_index(name))


def _check_index(collection: Collection[Any], name: str, *, exists: bool) -> None:
    if not exists:
        hint = did_you_mean(name, [each.name for each in collection.indexes()])
        raise Failure(f"there is no index {name!r} on {collection.name}{hint}", Exit.NO)


def _kinds(index: Index | TextIndex | VectorIndex) -> list[str]:
    if isinstance(index, TextIndex):
        return ["text", *filter(None, ["substring" * index.substring, index.language])]
    if isinstance(index, VectorIndex):
        return ["vector", index.metric, index.method, *filter(None, [index.model])]
    seconds = index.expire_after_seconds
    expiry = [] if seconds is None else [f"expires after {seconds} s"]
    words = (word for word in ("unique", "arrays", "sparse", "hidden") if getattr(index, word))
    collation = () if index.collation is None else (to_text(index.collation.to_json()),)
    return [*words, *expiry, *collation]


def index_as_json(index: Index | TextIndex | VectorIndex) -> dict[str, Any]:
    """Return the definition of an index; a field is the list of its keys, which may contain dots."""
    if isinstance(index, TextIndex):
        return text_index_as_json(index)
    definition = index.to_json()
    if isinstance(index, VectorIndex):
        return {key: definition[key] for key in _VECTOR_KEYS if key in definition}
    return {key: definition[key] for key in _INDEX_KEYS if key in definition}


def index_lines(indexes: Sequence[Index | TextIndex | VectorIndex]) -> list[str]:
    """Return the first line of an export, in a list: no document has this form. Empty without indexes."""
    return [to_text({INDEXES: list(map(index_as_json, indexes))})] if indexes else []


def read_indexes(values: Any) -> list[Index | TextIndex | VectorIndex]:
    """Parse the value of the line of indexes; raise `BadItem`."""
    if not isinstance(values, list):
        raise BadItem(f"the indexes must be a list, got {shortened(values)}")
    return [_index(number, value) for number, value in enumerate(values, 1)]


def _index(number: int, value: Any) -> Index | TextIndex | VectorIndex:
    from .. import Index

    if isinstance(value, dict) and "text" in value:
        try:
            return read_text_index(value)
        except (CollectionsStoreError, TypeError, ValueError) as error:
            raise BadItem(f"index {number}: {error}") from error
    if isinstance(value, dict) and set(_VECTOR_KEYS) == value.keys() | {"method"}:
        try:
            fields = [Path(*keys) for keys in value["fields"]]
            return VectorIndex.parse(**{**value, "fields": fields})
        except (CollectionsStoreError, TypeError, ValueError) as error:
            raise BadItem(f"index {number}: {error}") from error
    if not isinstance(value, dict) or "fields" not in value or not value.keys() <= set(_INDEX_KEYS):
        known = ", ".join(sorted(_INDEX_KEYS))
        problem = f"must have fields, and no other keys than {known}, got {shortened(value)}"
        raise BadItem(f"index {number} {problem}")
    options = {key: each for key, each in value.items() if key != "fields"}
    try:
        with _of_index():
            pairs = pairs_of(value["fields"])
        return Index.parse(pairs, **options)
    except CollectionsStoreError as error:
        raise BadItem(f"index {number}: {error}") from error


@contextmanager
def _of_index() -> Iterator[None]:
    """Raise `InvalidIndex` instead of `InvalidSort`."""
    try:
        yield
    except InvalidSort as error:
        raise InvalidIndex(error.field, error.problem) from None


# -- the schema --------------------------------------------------------------------------------


db = Group("db", help="Show and upgrade the schema of the database.")


@db.command()
@on_database
def upgrade(target: Target) -> None:
    """Upgrade the database to this version's schema, or create its tables.

    \b
      collections-store db upgrade --url postgresql://user@host/database
    """
    from .. import migrate

    target.to_write().close()  # it checks the URL
    with working("upgrading the schema"):
        before, after = migrate.upgrade(target.url, **target.names())
    if before is None:
        click.echo(f"created the tables of schema {after}", err=True)
    elif before == after:
        click.echo(f"the database is at schema {after} already", err=True)
    else:
        click.echo(f"upgraded from schema {before} to {after}", err=True)


@db.command()
@on_database
def current(target: Target) -> None:
    """Print the revision of the database's schema.

    \b
      collections-store db current
    """
    from .. import migrate
    from ..sql.schema import REVISION

    target.to_read().close()
    found = migrate.current(target.url, **target.names())
    if found is None:
        raise Failure("the database has no tables of collections_store", Exit.NO)
    emit(found)
    if found != REVISION:
        click.echo(f"this version of collections_store needs schema {REVISION}", err=True)


@db.command()
@on_database
def check(target: Target) -> None:
    """Print how the tables differ from this version's schema; exit with 1 for differences.

    \b
      collections-store db check && echo up to date
    """
    from .. import migrate
    from ..sql.schema import REVISION

    target.to_read().close()
    differences = migrate.check(target.url, **target.names())
    for difference in differences:
        emit(difference)
    if differences:
        raise Failure("the tables differ from what this version needs", Exit.NO)
    click.echo(f"the tables are those of schema {REVISION}", err=True)


@db.command()
@on_database
def sql(target: Target) -> None:
    """Print the SQL of upgrade without running it.

    \b
      collections-store db sql > upgrade.sql
    """
    from .. import migrate
    from ..sql.schema import REVISION

    target.to_read().close()
    statements = migrate.sql(target.url, **target.names())
    if statements:
        emit(statements.rstrip())
    else:
        click.echo(f"the database is at schema {REVISION}: nothing to do", err=True)
