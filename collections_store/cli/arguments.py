"""Arguments and options shared by commands: the database, JSON, fields and sort orders.

A field is a dotted path, `address.city`; in JSON also the list of its keys, which may contain dots. A sort order is
`age`, `age:-1`, `age:desc` or `-age`, or in JSON a mapping or a list: `{"age": -1, "name": 1}`, `[["age", -1],
"name"]`, `[[["a.b", "c"], -1]]`.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path as File
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import click

from .. import CollectionNotFound, DatabaseUnavailable, InvalidFilter, InvalidSort, Path
from ..engine.database_file import identity
from ..errors import did_you_mean, shortened
from ..expressions.path import path_or_text
from ..query.sort import field_pairs
from .completion import complete_collection, complete_field
from .files import MAX_LINE, BadItem, parse_json, parse_line, shown
from .output import Exit, Failure, one_line, to_text

if TYPE_CHECKING:
    import sqlalchemy as sa

    from .. import Collection, Store

F = TypeVar("F", bound=Callable[..., Any])
Pairs: TypeAlias = list[tuple[str | Path, Any]]

URL_VARIABLE: Final = "COLLECTIONS_STORE_URL"
DEFAULT_URL: Final = "sqlite:///collections.db"
_DIRECTIONS: Final = {"1": 1, "asc": 1, "-1": -1, "desc": -1}
_JSON: Final = ("{", "[")
_IN_JSON: Final = '. In JSON a field may be any string: {"a:b": -1}'
_FORMATS: Final = {
    "jsonl": "JSON lines",
    "json": "one JSON array",
    "table": "a table",
    "mongodb": "MongoDB's Extended JSON",
    "csv": "CSV",
}


@click.pass_context
def show_help(ctx: click.Context) -> None:
    """Print the help of a command called without a subcommand."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


class Group(click.Group):
    """A command with subcommands."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        defaults: dict[str, Any] = {
            "callback": show_help,
            "invoke_without_command": True,
            "subcommand_metavar": "COMMAND [ARGS]...",
        }
        super().__init__(*arguments, **{**defaults, **options})

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find a command; the error suggests the nearest name."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(f"there is no command {name!r}{did_you_mean(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, each with its whole first sentence."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(1000)) for name, each in found if each]
            )


# -- the database ------------------------------------------------------------------------------


@dataclass
class Target:
    """The URL, prefix and schema from the options."""

    url: str = DEFAULT_URL
    prefix: str = "cs_"
    schema: str | None = None
    option: str = f"--url or {URL_VARIABLE}"
    """What names the URL."""

    def use(self, url: str | None) -> None:
        """Use the URL of an argument, if there is one."""
        if url:
            self.url, self.option = url, "the argument URL"

    def to_write(self, **options: Any) -> Store:
        """Return a store. The first use creates a missing SQLite file."""
        from .. import Store

        return Store(self.url, prefix=self.prefix, schema=self.schema, **options)

    def to_read(self, **options: Any) -> Store:
        """Return a store; raise `DatabaseUnavailable` for a missing SQLite file."""
        store = self.to_write(**options)
        file = self._file()
        if file is not None and not file.exists():
            raise DatabaseUnavailable(
                f"there is no SQLite file {str(file)!r}: name another database with {self.option}"
            )
        return store

    def collection(self, store: Store, name: str) -> Collection:
        """Return an existing collection. Read the catalogue only if the collection seems empty."""
        collection = store.collection(name)
        if not collection.list(limit=1):
            self.check(store, [name])
        return collection

    def check(self, store: Store, names: Iterable[str]) -> None:
        """Raise `CollectionNotFound` for a missing collection."""
        known = [info.name for info in store.collections()]
        for name in names:
            if name not in known:
                raise CollectionNotFound(name, known)

    def refuse(self, name: str) -> None:
        """Raise `UsageError` if a file is the database itself or its log."""
        path = self._file()
        ours = [identity(f"{path}{end}") for end in ("", "-wal", "-shm", "-journal")]
        if path is not None and identity(name) in [each for each in ours if each]:
            raise click.UsageError(f"{shown(name)} is the database itself: name another file")

    def command(self, *words: str) -> str:
        """Return a command line on this database, quoted for a shell."""
        defaults = Target(os.environ.get(URL_VARIABLE) or DEFAULT_URL)
        options = [] if self.url == defaults.url else [f"--url={self.safe_url()}"]
        if self.prefix != defaults.prefix:
            options.append(f"--prefix={self.prefix}")
        if self.schema is not None:
            options.append(f"--schema={self.schema}")
        return shlex.join(["collections-store", *options, *words])

    def names(self) -> dict[str, Any]:
        """Return the options of the functions of `migrate`."""
        return {"prefix": self.prefix, "schema": self.schema}

    def read_only(self) -> dict[str, Any]:
        """Return the options of a store that changes nothing, nor upgrades the schema, as far as the database has them."""
        from ..sql.dialects import named

        database = named(self.driver_url().get_backend_name())
        manual = {"upgrade": "manual"}
        return {**manual, "read_only": True} if "read_only" in database.options else manual

    def driver_url(self) -> sa.URL:
        """Return the URL with the library's driver."""
        from ..options import read_url
        from ..sql.dialects import named

        url = read_url(self.url)
        return named(url.get_backend_name()).urls.normal_url(url)

    def safe_url(self) -> str:
        """Return the URL without its passwords."""
        from ..options import read_url, safe_url

        return safe_url(read_url(self.url))

    def _file(self) -> File | None:
        from ..sql.dialects import named

        url = self.driver_url()
        path = named(url.get_backend_name()).urls.file_of(url)
        return None if path is None else File(path)


def _set(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Store an option's value; options of a command override those of the program."""
    target = ctx.ensure_object(Target)
    if value is not None and parameter.name is not None:
        setattr(target, parameter.name, value)


def _database_options(url_help: str, **url: Any) -> Callable[[F], F]:
    def add(command: F) -> F:
        for name, metavar, text, more in (
            ("--prefix", "TEXT", "The prefix of the tables' names, instead of cs_.", {}),
            ("--schema", "NAME", "The PostgreSQL schema of the tables.", {}),
            ("--url", "URL", url_help, url),
        ):
            option = click.option(
                name, metavar=metavar, expose_value=False, callback=_set, help=text, **more
            )
            command = option(command)
        return command

    return add


program_options = _database_options(
    "The database: sqlite:///file.db or postgresql://user:password@host/database. Default: "
    f"{URL_VARIABLE}, or else {DEFAULT_URL} in the current folder.",
    envvar=URL_VARIABLE,
)
"""The options of the program."""


def on_database(command: F) -> F:
    """Add the options of the program to a command, and pass the command its `Target`."""
    return _database_options("The database.")(click.pass_obj(command))  # type: ignore[return-value]


# -- other arguments and options ---------------------------------------------------------------


collection_argument = click.argument("collection", shell_complete=complete_collection)
field_argument = click.argument("field", shell_complete=complete_field)
filter_argument = click.argument("filter", required=False, default="{}")
sort_option = click.option(
    "--sort",
    multiple=True,
    metavar="FIELD",
    shell_complete=complete_field,
    help="Sort by FIELD, or FIELD:desc (FIELD:-1) for descending; repeat the option for further fields. "
    'In JSON a field may be any string: {"age": -1, "name": 1} or [[["a.b", "c"], -1]].',
)


def _json(_ctx: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    return None if value is None else read_json(value, parameter.opts[0])


collation_option = click.option(
    "--collation",
    metavar="JSON",
    callback=_json,
    help='Compare strings by these rules: {"locale": "de", "strength": 2}, or without ICU {"locale": "simple", '
    '"strength": 2}.',
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
skip_errors_option = click.option(
    "--skip-errors", is_flag=True, help="Report and count invalid items, and continue."
)


def count_option(name: str, least: int, help: str) -> Callable[[F], F]:
    """Return an option that is an integer from `least` on."""
    return click.option(name, type=click.IntRange(least), metavar="N", help=help)


def window_options(command: F) -> F:
    """Add the options `--skip` and `--limit`."""
    number = click.IntRange(0)
    skip = click.option(
        "--skip", type=number, default=0, metavar="N", help="Omit the first N documents."
    )
    limit = click.option("--limit", type=number, metavar="N", help="Print at most N documents.")
    return skip(limit(command))


def output_option(*formats: str, default: str | None = "jsonl") -> Callable[[F], F]:
    """Return the option `--output`; without a default, a table on a terminal and JSON lines elsewhere."""

    def chosen(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str:
        return value or ("table" if sys.stdout.isatty() else "jsonl")

    *names, last = (_FORMATS[each] for each in formats)
    return click.option(
        "--output",
        type=click.Choice(formats),
        default=default,
        callback=chosen,
        show_default=default or "table on a terminal, else jsonl",
        help=f"Print {', '.join(names)} or {last}.",
    )


def consent(question: str) -> None:
    """Ask; raise `Failure` if the answer is no, and `UsageError` without a terminal."""
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask on: pass --yes")
    if not click.confirm(question, err=True):
        raise Failure("nothing was changed", Exit.NO)


def read_json(text: str | None, what: str) -> Any:
    """Parse a JSON argument, or standard input for "-" and None."""
    try:
        if text in {None, "-"}:
            return parse_line(sys.stdin.buffer.read(MAX_LINE + 1))
        return parse_json(str(text).encode())
    except BadItem as error:
        raise Failure(f"{what} is {error}", Exit.BAD_INPUT) from error
    except OSError as error:
        raise Failure(f"standard input: {error.strerror or error}", Exit.FAILED) from error
    except UnicodeEncodeError as error:
        raise Failure(f"{what} is not Unicode", Exit.BAD_INPUT) from error


def imported(using: str) -> Any:
    """Return the object named by the option `--using`, `module:object`; modules in the current folder are found."""
    module, colon, name = using.partition(":")
    if not (colon and name and all(map(str.isidentifier, module.split(".")))):
        raise click.UsageError(f"--using must be MODULE:OBJECT, got {shortened(using)}")
    here = str(File.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = import_module(module)
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise Failure(f"--using: cannot import {module!r}: {reason}", Exit.USAGE) from error
    if not hasattr(found, name):
        raise click.UsageError(f"--using: the module {module!r} has no {name!r}")
    return getattr(found, name)


def read_projection(fields: str | None, projection: str | None) -> Any:
    """Return the projection of `--fields` or `--projection`; None: all fields."""
    if fields is not None and projection is not None:
        raise click.UsageError("--fields and --projection exclude each other: give one of them")
    if projection is not None:
        return read_json(projection, "--projection")
    return None if fields is None else fields.split(",")


# -- fields and sort orders --------------------------------------------------------------------


def read_order(texts: Iterable[str], what: str = "--sort") -> Pairs:
    """Parse a sort order from the values of a repeated option; raise `InvalidSort`."""
    pairs: Pairs = []
    for text in texts:
        if text.startswith(_JSON):  # a field that begins so must be written in JSON too
            pairs += pairs_of(read_json(text, what))
        else:
            pairs.append(_pair(text))
    return pairs


def field_as_word(path: Path, direction: int) -> str:
    """Return the argument for `read_order` of a field of the body with a direction."""
    text = path_or_text(path)
    if isinstance(text, Path) or text.startswith(("-", *_JSON)):
        return to_text([[list(path.keys), direction]])
    return text if direction == 1 and ":" not in text else f"{text}:{direction}"


def read_field(text: str) -> str | Path:
    """Parse a field, or the JSON list of its keys."""
    if text.startswith(_JSON):
        return _field(read_json(text, "FIELD"), InvalidFilter)
    return text


def pairs_of(order: Any) -> Pairs:
    """Return the fields and directions of a sort order in JSON; raise `InvalidSort`."""
    return [(_field(field, InvalidSort), direction) for field, direction in field_pairs(order)]


def _pair(text: str) -> tuple[str | Path, int]:
    """Parse a field with `-` before it, or with a direction after a colon; raise `InvalidSort`."""
    field, colon, direction = text.rpartition(":")
    if not colon:
        return (text[1:], -1) if text.startswith("-") else (text, 1)
    if direction not in _DIRECTIONS:
        known = ", ".join(_DIRECTIONS)
        problem = f"the direction must be one of {known}, got {shortened(direction)}{_IN_JSON}"
        raise InvalidSort(text, problem)
    if field.startswith("-"):
        problem = f"the direction must be before the field or behind it, not both{_IN_JSON}"
        raise InvalidSort(text, problem)
    return field, _DIRECTIONS[direction]


def _field(value: Any, refuse: type[InvalidFilter | InvalidSort]) -> str | Path:
    """Parse a field in JSON: a dotted path, or a list of keys; raise `refuse`."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(key, str) for key in value):
        return Path(*value)
    raise refuse("", f"must be a field or a list of keys, got {shortened(value)}")
