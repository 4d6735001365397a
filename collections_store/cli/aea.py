"""The plugin of AEA's command line: registers the storage backend, and adds `aea collections-store`."""

from __future__ import annotations

import click

from ..integrations.aea import register
from .arguments import Group, program_options, show_help
from .hosts import aea as import_aea

register()


@click.group("collections-store", cls=Group)
@program_options
@click.pass_context
def command(ctx: click.Context) -> None:
    """Store AEA's storage and dialogues in collections on SQLite or PostgreSQL."""
    ctx.invoke(show_help)


command.add_command(import_aea)
