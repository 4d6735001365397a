"""The command line `collections-store`. Requires the extra `cli`: `main` checks.

Begin with `app`; `documents`, `catalogue`, `transfer` and `hosts` have the commands. Must not hold logic of the
library.
"""

import os
import sys

from .output import Exit


def main() -> None:
    """Run the command line `collections-store`, and exit with a code of `Exit`."""
    _replace_closed_streams()
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        package = (error.name or "click").partition(".")[0]
        advice = "pip install 'collections-store[cli]'"
        print(f"Error: {package} is not installed: {advice}", file=sys.stderr)
        sys.exit(Exit.MISSING_EXTRA)
    try:
        from .app import program

        program.main(prog_name="collections-store")
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)


def _replace_closed_streams() -> None:
    """Replace standard streams that the caller closed: reading finds the end, writing fails with an `OSError`, and messages
    are lost.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY), encoding="utf-8")
    if sys.stdout is None:  # a descriptor that only reads
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
