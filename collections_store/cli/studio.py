"""The command studio: pages in the browser."""

from __future__ import annotations

import os
import signal
import webbrowser
from contextlib import ExitStack
from typing import Final

import click

from ..errors import MissingExtra
from .arguments import Target, imported, on_database
from .output import Exit

_CLOSING: Final = 0.5
"""Seconds to wait for running operations at Ctrl-C. A write that has not committed then is rolled back by the database."""


@click.command()
@click.argument("database", metavar="[URL]", required=False)
@click.option("--write", is_flag=True, help="Allow changes; without it the pages only read.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="The address to listen at. Another than this machine's own needs --token.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="The port to listen at. Default: a free one.",
)
@click.option(
    "--token",
    envvar="COLLECTIONS_STORE_STUDIO_TOKEN",
    metavar="TEXT",
    help="The token of the link, for any number of browsers, instead of a generated token for one. Also as "
    "COLLECTIONS_STORE_STUDIO_TOKEN in the environment, which other users of the machine cannot read.",
)
@click.option(
    "--using",
    metavar="MODULE:OBJECT",
    help="A model, or a mapping of collections to models, or to a schema version with upgrades: the pages show which "
    "documents do not fit, and what an upgrade would change.",
)
@click.option(
    "--compare", "compared", metavar="URL", help="Another store: the pages show what differs."
)
@click.option("--compare-prefix", metavar="TEXT", default="cs_", help="The other store's --prefix.")
@click.option("--compare-schema", metavar="NAME", help="The other store's --schema.")
@click.option("--no-browser", is_flag=True, help="Print the link, and open no browser.")
@on_database
def studio(
    target: Target,
    database: str | None,
    *,
    write: bool,
    host: str,
    port: int,
    token: str | None,
    using: str | None,
    compared: str | None,
    compare_prefix: str,
    compare_schema: str | None,
    no_browser: bool,
) -> None:
    """Look at the database at URL, by default the URL of --url, in the browser.

    The command prints a link, and serves its pages until Ctrl-C. Requires the extra studio:

    \b
      collections-store studio sqlite:///agent.db
      collections-store studio postgresql://user:password@host/database --write
      collections-store studio sqlite:///agent.db --compare sqlite:///copy.db
    """
    try:
        from ..studio.server import ListenAddress, serve
    except ImportError as error:
        package = (error.name or "starlette").partition(".")[0]
        raise MissingExtra(package, "studio") from error

    def ready(link: str) -> None:
        click.echo(f"The studio of {target.safe_url()} is at {link}")
        click.echo("Press Ctrl-C to end it.", err=True)
        if not no_browser:
            webbrowser.open(link)

    target.use(database)
    declared = None if using is None else imported(using)
    address = ListenAddress(host, port, token)
    with ExitStack() as stores:
        store = stores.enter_context(target.to_read(**({} if write else target.read_only())))
        other = None
        if compared is not None:
            second = Target(compared, compare_prefix, compare_schema, "--compare")
            other = stores.enter_context(second.to_read(**second.read_only()))
        try:
            serve(store, address, ready, write=write, using=declared, other=other)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            store.core.close(_CLOSING)
            os._exit(Exit.INTERRUPTED)  # a thread that computes a page would keep the process
