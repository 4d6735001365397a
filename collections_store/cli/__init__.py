"""The command line. It needs the extra `cli`; this module only tells when that is missing."""

import sys

from .exits import Exit


def main() -> None:
    """Run the command line `collections-store`, and exit with a code of `Exit`."""
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
