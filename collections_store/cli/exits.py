"""The exit codes of the command line, and the code of each error."""

from __future__ import annotations

from enum import IntEnum

from ..errors import (
    CollectionNotFound,
    CollectionsStoreError,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    InvalidOption,
    InvalidUrl,
    MissingExtra,
    SchemaError,
)


class Exit(IntEnum):
    """An exit code; `--help` prints its `meaning`."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Exit:
        """Make a member with a meaning."""
        member = int.__new__(cls, code)
        member._value_, member.meaning = code, meaning
        return member

    DONE = 0, "done"
    NO = 1, "no such document, collection or index; tables differ; a question was answered no"
    USAGE = 2, "wrong use: an option, an argument or the URL"
    BAD_INPUT = (
        3,
        "bad input: a body, filter, sort order, projection, index, name, id or line of an import",
    )
    UNAVAILABLE = 4, "the database cannot be reached, does not exist or is busy"
    SCHEMA = 5, "the database's schema is older or newer than this version's"
    FAILED = 6, "another error of the database or of a file"
    MISSING_EXTRA = 7, "a package is missing; the message names the extra"
    INTERRUPTED = 130, "interrupted (Ctrl-C)"
    BROKEN_PIPE = 141, "the reader of the output was closed"


_CODES: tuple[tuple[type[CollectionsStoreError], Exit], ...] = (
    (CollectionNotFound, Exit.NO),
    (InvalidUrl, Exit.USAGE),
    (InvalidOption, Exit.USAGE),
    (MissingExtra, Exit.MISSING_EXTRA),
    (SchemaError, Exit.SCHEMA),
    (DatabaseUnavailable, Exit.UNAVAILABLE),
    (DatabaseBusy, Exit.UNAVAILABLE),
    (DatabaseError, Exit.FAILED),
)


class Failure(Exception):
    """Ends the command with an exit code, and a message on standard error unless it is empty."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: Exception) -> Exit:
    """Return the exit code of a `Failure` or an error of the library."""
    if isinstance(error, Failure):
        return error.code
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return Exit.BAD_INPUT if isinstance(error, ValueError) else Exit.FAILED


def one_line(error: Exception) -> str:
    """Return an error's message without line breaks, which those of drivers may contain."""
    return " ".join(str(error).split())


def notes_of(error: Exception) -> list[str]:
    """Return an error's notes, such as the id of the document."""
    return getattr(error, "__notes__", [])


def described() -> list[str]:
    """Return a line for each exit code."""
    return [f"{code.value:>4}  {code.meaning}" for code in Exit]
