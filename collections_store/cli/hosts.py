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


def memory_options(namespace: str) -> Callable[[F], F]:
    """Return the options of an import into a memory, by default the memory `namespace`."""

    def add(command: F) -> F:
        names = click.option(
            "--namespace",
            "names",
            multiple=True,
            default=(namespace,),
            show_default=True,
            help="The memory to import into; repeat it for an inner namespace.",
        )
        nul = click.option(
            "--nul",
            type=click.Choice(["error", "replace"]),
            default="error",
            show_default=True,
            help="Reject NUL characters, or replace them by U+FFFD.",
        )
        return names(skip_errors_option(nul(command)))

    return add


@click.command("import-opsdroid")
@file_argument
@click.option("--table", default="opsdroid", show_default=True, help="The table of opsdroid.")
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
    skipped = _Skipped()
    with target.to_write(nul=nul) as store:
        memory = store.memory(names[0])
        memory = memory.namespace(*names[1:]) if names[1:] else memory
        count = function(memory, file, on_error=skipped if skip_errors else None, **options)
    left_out = f", skipped {counted(skipped.count, 'value')}" if skipped.count else ""
    into = f"{shown(file)} into {'/'.join(names)}{left_out}"
    click.echo(f"imported {counted(count, 'value')} from {into}", err=True)


@click.command("import-aea")
@file_argument
@skip_errors_option
@on_database
def aea(target: Target, file: str, *, skip_errors: bool) -> None:
    """Copy the collections of AEA's own storage from the SQLite file FILE.

    FILE is not changed. Documents under the same ids are overwritten. The import is one transaction. Afterwards
    the agent uses storage_uri: collections+sqlite:///collections.db, or the database of --url:

    \b
      collections-store import-aea agent.db
    """
    from ..integrations.aea import import_aea

    skipped = _Skipped()
    with target.to_write() as store:
        counts = import_aea(store, file, on_error=skipped if skip_errors else None)
    left_out = f", skipped {skipped.count:,}" if skipped.count else ""
    documents = counted(sum(counts.values()), "document")
    collections = counted(len(counts), "collection")
    click.echo(f"imported {documents} of {collections} from {file}{left_out}", err=True)


@click.command("import-openai-agents")
@file_argument
@click.option(
    "--collection", default="agent_sessions", show_default=True, help="The collection of sessions."
)
@click.option("--table", default="agent_messages", show_default=True, help="The table of messages.")
@skip_errors_option
@on_database
def openai_agents(
    target: Target, /, file: str, *, collection: str, table: str, skip_errors: bool
) -> None:
    """Copy the sessions of the OpenAI Agents SDK from the SQLite file FILE.

    FILE, of SQLiteSession, AdvancedSQLiteSession or SQLAlchemySession, is not changed. A session already in the
    collection is an error. The import is one transaction:

    \b
      collections-store import-openai-agents conversations.db
    """
    from ..integrations.openai_agents import import_openai_agents

    skipped = _Skipped()
    options = {"collection": collection, "messages_table": table}
    with target.to_write() as store:
        on_error = skipped if skip_errors else None
        count = import_openai_agents(store, file, on_error=on_error, **options)
    left_out = f", skipped {skipped.count:,}" if skipped.count else ""
    into = f"{shown(file)} into {collection}{left_out}"
    click.echo(f"imported {counted(count, 'item')} from {into}", err=True)


@click.command("import-langgraph")
@file_argument
@click.option(
    "--checkpoints",
    default="langgraph_checkpoints",
    show_default=True,
    metavar="NAME",
    help="The collection of checkpoints.",
)
@click.option(
    "--items",
    default="langgraph_items",
    show_default=True,
    metavar="NAME",
    help="The collection of items.",
)
@on_database
def langgraph(target: Target, /, file: str, *, checkpoints: str, items: str) -> None:
    """Copy the threads and the items of LangGraph from the SQLite file FILE.

    FILE, of SqliteSaver, SqliteStore or both, is not changed. Documents with the same ids are replaced. Each
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
    """Reports and counts the errors of an import that continues."""

    count = 0

    def __call__(self, error: CollectionsStoreError) -> None:
        self.count += 1
        click.echo(f"skipped {one_line(error)}", err=True)
