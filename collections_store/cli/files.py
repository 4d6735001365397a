"""Files to read and to write, and how far the reading has come."""

from __future__ import annotations

import gzip
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

import click

STANDARD = "-"
"""The name that means standard input or output."""

Stream = IO[bytes]


def check_readable(name: str) -> None:
    """Refuse what cannot be read from, before anything else is done."""
    if name == STANDARD:
        if sys.stdin.isatty():
            raise click.UsageError("standard input is a terminal: name a file, or pipe one in")
    elif not Path(name).exists():
        raise click.UsageError(f"there is no file {shown(name)}")
    elif Path(name).is_dir():
        raise click.UsageError(f"{shown(name)} is a folder")


def shown(name: str) -> str:
    """Return a file's name for a message."""
    return "standard input" if name == STANDARD else repr(click.format_filename(name))


@contextmanager
def reading(name: str) -> Iterator[tuple[Stream, int | None]]:
    """Give the stream to read, and its size if that is known."""
    if name == STANDARD:
        yield sys.stdin.buffer, None
        return
    with Path(name).open("rb") as stream:
        yield stream, os.fstat(stream.fileno()).st_size or None


@contextmanager
def writing(name: str) -> Iterator[Stream]:
    """Give a stream whose contents take the file's place once they are complete."""
    path = Path(name).resolve()
    if path.exists() and not path.is_file():
        with path.open("wb") as device:  # /dev/null, a named pipe: nothing to replace
            yield device
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as raw:
            with _zipped(raw, path) as stream:
                yield stream
            raw.flush()
            os.fsync(raw.fileno())
        if path.exists():
            shutil.copymode(path, part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _zipped(raw: Stream, path: Path) -> Any:
    if path.suffix.lower() != ".gz":
        return nullcontext(raw)
    return gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0)


def _show_nothing(kept: int, position: int) -> None:
    """Take what `progress` would show."""


@contextmanager
def progress(size: int | None) -> Iterator[Callable[[int, int], None]]:
    """Give a function that shows how many objects are kept and how many bytes were read.

    The bar is drawn on standard error, and only if that is a terminal.
    """
    if not sys.stderr.isatty():
        yield _show_nothing
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    words = TextColumn("{task.fields[kept]:,} objects")
    columns = (BarColumn(), TaskProgressColumn(show_speed=False), words)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=size, kept=0)
        yield lambda kept, position: bar.update(task, completed=position, kept=kept)
