"""Backups of a store: as text, whatever the database, or as a database file."""

from __future__ import annotations

import os
import stat
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from ..document import CopyProgress
from ..errors import InvalidBackup, InvalidOption, shortened
from ..operations.copying import BackUp
from ..options import Options
from ..sql.dialects import backup_url
from ..sql.dialects.protocols import Database
from .archive import NO_BACKUP, ArchiveTarget
from .atomic_file import compressed, replacing
from .copying import Report, Run, copy_store
from .database_file import START, identity, locked_start, opening
from .pool import open_engine

TEXT: Final = (".jsonl", ".jsonl.gz")
"""The endings of backups as text."""
_LOGS: Final = ("-wal", "-shm", "-journal")


def is_text(path: Path) -> bool:
    """Return whether a backup of this name is text."""
    return path.name.lower().endswith(TEXT)


def write_text(run: Run, names: tuple[str, ...] | None, path: Path, report: Report) -> None:
    """Write collections to a file that replaces `path` once it is complete."""
    _check_target(path)
    with replacing(path) as file, compressed(file, path) as stream:
        copy_store(run, names, ArchiveTarget(stream), report)


def write_database(run: Run, url: sa.URL, database: Database, path: Path, report: Report) -> None:
    """Write the store's database to a file that replaces `path` once it is complete."""
    pages = database.connections.backup_pages()
    if pages is None:
        raise InvalidOption("path", f"must end in {' or '.join(TEXT)}, got {path.name!r}")
    _check_target(path)

    def count(done: int, total: int) -> None:
        report(CopyProgress("", done, total))

    with replacing(path) as file:
        engine = open_engine(
            sa.URL.create(url.drivername, database=file.name), database, Options(busy_timeout=1.0)
        )
        with closing(engine.raw_connection()) as target:
            run(BackUp(target.driver_connection, pages, count))
        engine.dispose()


def _check_target(path: Path) -> None:
    """Raise `InvalidOption` for a path at which no backup can be written."""
    if path.exists() and not path.is_file():
        raise InvalidOption("path", f"must name a file, got {str(path)!r}")
    if path.resolve().name.endswith(_LOGS):
        raise InvalidOption("path", f"must not end in {', '.join(_LOGS)}: SQLite names its logs so")
    if _has_log(path) or locked_start(path):
        raise InvalidOption("path", f"{str(path)!r} is a database in use: name another file")


def _has_log(path: Path) -> bool:
    return any(path.with_name(f"{path.name}{end}").exists() for end in _LOGS)


def own_file(url: sa.URL, database: Database, path: Path) -> bool:
    """Return whether a path leads to the file of a store's database."""
    own = database.urls.file_of(url)
    return own is not None and identity(path) is not None and identity(path) == identity(own)


def database_url(path: Path) -> sa.URL | None:
    """Return the URL that reads a backup that is a database file; None if it is none. Raise `InvalidBackup`,
    `InvalidOption` and `OSError`.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise InvalidOption("path", f"must name a file, got {str(path)!r}")
    real = path.resolve()
    with opening():
        start = locked_start(real)
        is_locked = start is not None
        if start is None:
            with path.open("rb") as stream:
                start = stream.read(START)
    url = backup_url(str(real), start, is_in_use=is_locked or _has_log(real))
    if is_locked and url is None:
        raise InvalidBackup(str(path), "", NO_BACKUP)
    return url


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
