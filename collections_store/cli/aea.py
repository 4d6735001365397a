"""Plug-in of AEA's command line: it registers the storage and adds `aea collections-store`."""

from __future__ import annotations

import click

from ..integrations.aea import register
from .memories import aea as import_aea
from .program import Group
from .target import program_options

register()


@click.group("collections-store", cls=Group)
@program_options
def command() -> None:
    """Keep storage and dialogues in collections of SQLite or PostgreSQL."""


command.add_command(import_aea)
