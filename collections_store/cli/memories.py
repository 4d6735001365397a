"""Commands that copy what other programs stored: memories, and AEA's storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from .. import CollectionsStoreError, InvalidBody, Store
from ..integrations.aea import import_aea
from ..integrations.sqlite_files import import_kdeps, import_opsdroid
from ..memory import Memory
from .exits import one_line
from .files import shown
from .target import Target, database_options

F = TypeVar("F", bound=Callable[..., Any])
_FILE = click.Path(exists=True, dir_okay=False)


def _options(namespace: str) -> Callable[[F], F]:
    """Give a command the options that all have, and its memory the name that it has by default."""

    def given(command: F) -> F:
        where = click.option(
            "--namespace",
            "names",
            multiple=True,
            default=(namespace,),
            show_default=True,
            help="The memory to import into; given again, a namespace in that.",
        )
        skip = click.option("--skip-errors", is_flag=True, help="Leave out what cannot be stored.")
        nul = click.option(
            "--nul",
            type=click.Choice(["error", "replace"]),
            default="error",
            show_default=True,
            help="Refuse NUL characters, or write U+FFFD in their place.",
        )
        return where(skip(nul(command)))

    return given


@click.command("import-opsdroid")
@click.argument("file", type=_FILE)
@click.option("--table", default="opsdroid", show_default=True, help="The table of opsdroid's.")
@_options("opsdroid")
@database_options
@click.pass_obj
def opsdroid(target: Target, /, file: str, *, table: str, **options: Any) -> None:
    """Copy what opsdroid's own SQLite database FILE holds into a memory.

    FILE stays as it is; what is under the same keys in the memory is overwritten. All of it is one
    transaction.
    """
    _import(import_opsdroid, target, file, table=table, **options)


@click.command("import-kdeps")
@click.argument("file", type=_FILE)
@_options("kdeps")
@database_options
@click.pass_obj
def kdeps(target: Target, /, file: str, **options: Any) -> None:
    """Copy the memory that any version of kdeps keeps in the SQLite file FILE into a memory.

    What versions up to 0.6 keep in AGENT_memory.db goes to the namespace AGENT in that. FILE stays as it
    is; what is under the same keys in the memory is overwritten. All of it is one transaction.
    """
    _import(import_kdeps, target, file, **options)


def _import(
    function: Callable[..., int],
    target: Target,
    file: str,
    *,
    names: tuple[str, ...],
    skip_errors: bool,
    nul: str,
    **options: Any,
) -> None:
    skipped: list[CollectionsStoreError] = []

    def skip(error: CollectionsStoreError) -> None:
        skipped.append(error)
        click.echo(f"skipped {one_line(error)}", err=True)

    with target.to_write(nul=nul) as store:
        memory = _memory(store, names)
        count = function(memory, file, on_error=skip if skip_errors else None, **options)
    left_out = f", skipped {_values(len(skipped))}" if skipped else ""
    where = "/".join(names)
    click.echo(f"imported {_values(count)} from {shown(file)} into {where}{left_out}", err=True)


def _memory(store: Store, names: tuple[str, ...]) -> Memory:
    name, *within = names
    memory = store.memory(name)
    return memory.namespace(*within) if within else memory


def _values(count: int) -> str:
    return f"{count:,} value" if count == 1 else f"{count:,} values"


@click.command("import-aea")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--skip-errors", is_flag=True, help="Leave out what cannot be stored.")
@database_options
@click.pass_obj
def aea(target: Target, file: str, *, skip_errors: bool) -> None:
    """Copy the collections that AEA's own storage keeps in the SQLite file FILE.

    FILE stays as it is; what is under the same ids is overwritten. All of it is one transaction. An
    agent then goes on with storage_uri: collections+sqlite:///collections.db, or whatever --url names.
    """
    skipped: list[InvalidBody] = []

    def skip(error: InvalidBody) -> None:
        skipped.append(error)
        click.echo(f"skipped {one_line(error)}", err=True)

    with target.to_write() as store:
        counts = import_aea(store, file, on_error=skip if skip_errors else None)
    total = sum(counts.values())
    objects = "1 object" if total == 1 else f"{total:,} objects"
    collections = "1 collection" if len(counts) == 1 else f"{len(counts):,} collections"
    left_out = f", skipped {len(skipped):,}" if skipped else ""
    click.echo(f"imported {objects} of {collections} from {file}{left_out}", err=True)
