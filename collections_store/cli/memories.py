"""The commands that copy what other programs remember into a memory."""

from __future__ import annotations

import click

from ..memory import import_kdeps, import_opsdroid
from .files import shown
from .target import Target, database_options

_FILE = click.Path(exists=True, dir_okay=False)


@click.command("import-opsdroid")
@click.argument("file", type=_FILE)
@click.option("--table", default="opsdroid", show_default=True, help="The table of opsdroid's.")
@click.option(
    "--namespace", default="opsdroid", show_default=True, help="The memory to import into."
)
@database_options
@click.pass_obj
def opsdroid(target: Target, file: str, *, table: str, namespace: str) -> None:
    """Copy what opsdroid's own SQLite database FILE holds into a memory.

    FILE stays as it is; what is under the same keys in the memory is overwritten. All of it is one
    transaction.
    """
    with target.to_write() as store:
        count = import_opsdroid(store.memory(namespace), file, table=table)
    _tell(count, file, namespace)


@click.command("import-kdeps")
@click.argument("file", type=_FILE)
@click.option("--namespace", default="kdeps", show_default=True, help="The memory to import into.")
@database_options
@click.pass_obj
def kdeps(target: Target, file: str, *, namespace: str) -> None:
    """Copy the memory that any version of kdeps keeps in the SQLite file FILE into a memory.

    FILE stays as it is; what is under the same keys in the memory is overwritten. All of it is one
    transaction.
    """
    with target.to_write() as store:
        count = import_kdeps(store.memory(namespace), file)
    _tell(count, file, namespace)


def _tell(count: int, file: str, namespace: str) -> None:
    values = "value" if count == 1 else "values"
    click.echo(f"imported {count:,} {values} from {shown(file)} into {namespace}", err=True)
