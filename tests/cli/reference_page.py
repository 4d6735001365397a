"""The reference page of the command line, from its own `--help`.

`python tests/cli/reference_page.py > docs/reference/cli.md` writes the page; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from collections_store.cli.app import program
from collections_store.cli.output import Exit

WIDTH = 80

_INTRODUCTION = """\
# Command line

`pip install 'collections-store[cli]'` installs `collections-store`; `python -m collections_store` is the same program.
For PostgreSQL install `'collections-store[cli,postgresql]'`. The sections of the commands are the output of `--help`.

The option `--url`, or else the environment variable `COLLECTIONS_STORE_URL`, chooses the database. The default is
`sqlite:///collections.db` in the current folder. Put a URL with a password into the variable: other users of the
machine can read the options of a running command.

## Shell completion

The shell completes commands, options, names of collections, and fields from a sample of 50 documents. A database that
does not answer within 2 seconds completes nothing. Add one line to the start-up file of your shell:

* Bash 4.4 or newer, `~/.bashrc`: `eval "$(_COLLECTIONS_STORE_COMPLETE=bash_source collections-store)"`
* Zsh, `~/.zshrc`: `eval "$(_COLLECTIONS_STORE_COMPLETE=zsh_source collections-store)"`
* Fish, `~/.config/fish/config.fish`: `_COLLECTIONS_STORE_COMPLETE=fish_source collections-store | source`
"""


def reference() -> str:
    """Return the page."""
    rows = "\n".join(f"| {code.value} | {code.meaning} |" for code in Exit)
    codes = f"## Exit codes\n\n| Code | Meaning |\n| ---: | --- |\n{rows}\n"
    return "\n".join([_INTRODUCTION, codes, *_commands(program, None, "collections-store")])


def _commands(command: click.Command, parent: click.Context | None, name: str) -> Iterator[str]:
    widths: dict[str, Any] = {"max_content_width": WIDTH, "terminal_width": WIDTH}
    context = click.Context(command, parent, name, **widths, **command.context_settings)
    yield f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None:
                yield from _commands(found, context, each)


if __name__ == "__main__":
    click.echo(reference(), nl=False)
