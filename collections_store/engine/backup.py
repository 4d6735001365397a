"""Backups of a store: as text, whatever the database, or as a database file."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from ..document import CopyProgress
from ..errors import InvalidOption, shortened
from ..operations.copying import BackUp
from ..options import Options
from ..sql.dialects import backup_url
from ..sql.dialects.protocols import Database
from .archive import ArchiveTarget
from .atomic_file import compressed, replacing
from .copying import Report, Run, copy_store
from .database_file import identity
from .pool import open_engine

TEXT: Final = (".jsonl", ".jsonl.gz")
"""The endings of backups as text."""
_LOGS: Final = ("-wal", "-shm", "-journal")
_START: Final = 32
"""Bytes by which a database file is known."""


def is_text(path: Path) -> bool:
    """Return whether a backup of this name is text."""
    return path.name.lower().endswith(TEXT)


def write_text(run: Run, names: tuple[str, ...] | None, path: Path, report: Report) -> None:
    """Write collections to a file that replaces `path` once it is complete."""
    with replacing(path) as file, compressed(file, path) as stream:
        copy_store(run, names, ArchiveTarget(stream), report)


def write_database(run: Run, url: sa.URL, database: Database, path: Path, report: Report) -> None:
    """Write the store's database to a file that replaces `path` once it is complete."""
    pages = database.connections.backup_pages()
    if pages is None:
        raise InvalidOption("path", f"must end in {' or '.join(TEXT)}, got {path.name!r}")
    if path.exists() and not path.is_file():
        raise InvalidOption("path", f"must name a file, got {str(path)!r}")
    if path.resolve().name.endswith(_LOGS):
        raise InvalidOption("path", f"must not end in {', '.join(_LOGS)}: SQLite names its logs so")
    if _has_log(path):
        raise InvalidOption("path", f"{str(path)!r} is a database in use: name another file")

    def count(done: int, total: int) -> None:
        report(CopyProgress("", done, total))

    with replacing(path) as file:
        engine = open_engine(
            sa.URL.create(url.drivername, database=file.name), database, Options(busy_timeout=1.0)
        )
        with closing(engine.raw_connection()) as target:
            run(BackUp(target.driver_connection, pages, count))
        engine.dispose()


def _has_log(path: Path) -> bool:
    return any(path.with_name(f"{path.name}{end}").exists() for end in _LOGS)


def own_file(url: sa.URL, database: Database, path: Path) -> bool:
    """Return whether a path leads to the file of a store's database."""
    own = database.urls.file_of(url)
    return own is not None and identity(path) is not None and identity(path) == identity(own)


def database_url(path: Path) -> sa.URL | None:
    """Return the URL that reads a backup that is a database file; None: it is none. Raise `OSError`."""
    path = path.resolve()
    with path.open("rb") as stream:
        return backup_url(str(path), stream.read(_START), has_log=_has_log(path))


def read_path(path: Any) -> Path:
    """Return the path of a backup; raise `InvalidOption`."""
    try:
        found = Path(path)
        is_name = found.name != "" and b"\0" not in os.fsencode(found)
    except (TypeError, UnicodeEncodeError):
        is_name = False
    if not is_name:
        raise InvalidOption("path", f"must be the path of a file, got {shortened(path)}")
    return found
