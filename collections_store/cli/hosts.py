"""Commands that import data of other programs: memories of opsdroid and kdeps, AEA's storage, sessions of OpenAI's
SDK, threads and items of LangGraph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from .. import CollectionsStoreError
from .arguments import Target, on_database, skip_errors_option
from .files import shown
from .output import counted, one_line

F = TypeVar("F", bound=Callable[..., Any])
file_argument = click.argument("file", type=click.Path(exists=True, dir_okay=False))


def _named(option: str, default: Any, help: str, **more: Any) -> Callable[[F], F]:
    return click.option(option, default=default, show_default=True, help=help, **more)


def memory_options(namespace: str) -> Callable[[F], F]:
    """Return the options of an import into a memory, by default the memory `namespace`."""
    names = "The memory to import into; repeat the option for an inner namespace."
    choice = click.Choice(["error", "replace"])
    nul = _named("--nul", "error", "Reject NUL characters, or replace them by U+FFFD.", type=choice)

    def add(command: F) -> F:
        into = click.option(
            "--namespace",
            "names",
            multiple=True,
            default=(namespace,),
            show_default=True,
            help=names,
        )
        return into(skip_errors_option(nul(command)))

    return add


@click.command("import-opsdroid")
@file_argument
@_named("--table", "opsdroid", "The table of opsdroid.")
@memory_options("opsdroid")
@on_database
def opsdroid(target: Target, /, file: str, *, table: str, **options: Any) -> None:
    """Copy opsdroid's SQLite database FILE into a memory.

    FILE is not changed. Values under the same keys are overwritten. The import is one transaction:

    \b
      collections-store import-opsdroid ~/.local/share/opsdroid/sqlite.db
    """
    from ..integrations.sqlite_files import import_opsdroid

    _import(import_opsdroid, target, file, table=table, **options)


@click.command("import-kdeps")
@file_argument
@memory_options("kdeps")
@on_database
def kdeps(target: Target, /, file: str, **options: Any) -> None:
    """Copy the memory of any version of kdeps from the SQLite file FILE into a memory.

    The values of versions up to 0.6, from AGENT_memory.db, are copied into the inner namespace AGENT. FILE is not
    changed. Values under the same keys are overwritten. The import is one transaction:

    \b
      collections-store import-kdeps ~/.kdeps/memory.db
    """
    from ..integrations.sqlite_files import import_kdeps

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
    skipped = _Skipped(skip_errors)
    with target.to_write(nul=nul) as store:
        memory = store.memory(names[0])
        memory = memory.namespace(*names[1:]) if names[1:] else memory
        count = function(memory, file, on_error=skipped.on_error, **options)
    found = counted(count, "value")
    skipped.report(f"{found} from {shown(file)} into {'/'.join(names)}", "value")


@click.command("import-aea")
@file_argument
@skip_errors_option
@on_database
def aea(target: Target, file: str, *, skip_errors: bool) -> None:
    """Copy the collections of AEA's own storage from the SQLite file FILE.

    FILE is not changed. Documents with the same ids are replaced. The import is one transaction. Afterwards
    the agent uses storage_uri: collections+sqlite:///collections.db, or the database of --url:

    \b
      collections-store import-aea agent.db
    """
    from ..integrations.aea import import_aea

    skipped = _Skipped(skip_errors)
    with target.to_write() as store:
        counts = import_aea(store, file, on_error=skipped.on_error)
    documents = counted(sum(counts.values()), "document")
    skipped.report(f"{documents} of {counted(len(counts), 'collection')} from {file}")


@click.command("import-openai-agents")
@file_argument
@_named("--collection", "agent_sessions", "The collection of sessions.")
@_named("--table", "agent_messages", "The table of messages.")
@skip_errors_option
@on_database
def openai_agents(
    target: Target, /, file: str, *, collection: str, table: str, skip_errors: bool
) -> None:
    """Copy the sessions of the OpenAI Agents SDK from the SQLite file FILE.

    SQLiteSession, AdvancedSQLiteSession or SQLAlchemySession wrote FILE, which is not changed. A session that is
    already in the collection is an error. The import is one transaction:

    \b
      collections-store import-openai-agents conversations.db
    """
    from ..integrations.openai_agents import import_openai_agents

    skipped = _Skipped(skip_errors)
    options = {"collection": collection, "messages_table": table}
    with target.to_write() as store:
        count = import_openai_agents(store, file, on_error=skipped.on_error, **options)
    skipped.report(f"{counted(count, 'item')} from {shown(file)} into {collection}")


@click.command("import-langgraph")
@file_argument
@_named("--checkpoints", "langgraph_checkpoints", "The collection of checkpoints.", metavar="NAME")
@_named("--items", "langgraph_items", "The collection of items.", metavar="NAME")
@on_database
def langgraph(target: Target, /, file: str, *, checkpoints: str, items: str) -> None:
    """Copy the threads and the items of LangGraph from the SQLite file FILE.

    SqliteSaver, SqliteStore or both wrote FILE, which is not changed. Documents with the same ids are replaced. Each
    transaction has 100 checkpoints or items. LangGraph must be installed:

    \b
      collections-store import-langgraph checkpoints.sqlite
    """
    from ..integrations.langgraph import (
        LangGraphSaver,
        LangGraphStore,
        import_checkpoints,
        import_items,
    )
    from ..integrations.sqlite_files import read

    tables = read(file, lambda external: external.tables())
    with target.to_write() as store:
        count = 0
        if "checkpoints" in tables or "store" not in tables:  # the error names the table
            count = import_checkpoints(file, LangGraphSaver(store, collection=checkpoints))
        found = counted(count, "checkpoint")
        if "store" in tables:
            memories = LangGraphStore(store, collection=items)
            found += f" and {counted(import_items(file, memories), 'item')}"
    click.echo(f"imported {found} from {shown(file)}", err=True)


class _Skipped:
    """The errors of an import, skipped and counted with `--skip-errors`."""

    def __init__(self, skip_errors: bool) -> None:
        self.count = 0
        self.on_error = self._skip if skip_errors else None

    def _skip(self, error: CollectionsStoreError) -> None:
        self.count += 1
        click.echo(f"skipped {one_line(error)}", err=True)

    def report(self, imported: str, noun: str = "") -> None:
        """Print what was imported, and the number of skipped items."""
        number = counted(self.count, noun) if noun else f"{self.count:,}"
        click.echo(f"imported {imported}{f', skipped {number}' if self.count else ''}", err=True)
