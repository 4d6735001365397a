"""How the command line ends: what each exit code means, and which error ends in which."""

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
    """The exit codes; `meaning` is what `--help` says of each."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Exit:
        """Keep the meaning beside the number."""
        member = int.__new__(cls, code)
        member._value_, member.meaning = code, meaning
        return member

    DONE = 0, "done"
    NO = 1, "no such object, collection or index; tables differ; an answer was no"
    USAGE = 2, "wrong use: an option, an argument or the URL"
    BAD_INPUT = (
        3,
        "bad input: a body, filter, order, projection, index, name, id, line of an import",
    )
    UNAVAILABLE = 4, "the database cannot be reached, does not exist or is busy"
    SCHEMA = 5, "the database's schema is older or newer than this version's"
    FAILED = 6, "another error of the database or of a file"
    MISSING_EXTRA = 7, "a package is missing; the message names the extra"
    INTERRUPTED = 130, "interrupted (Ctrl-C)"
    BROKEN_PIPE = 141, "the reader of the output went away"


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
    """The command ends here: with a message for standard error, if any, and an exit code."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: Exception) -> Exit:
    """Return the code that an error of the library, or a `Failure`, ends in."""
    if isinstance(error, Failure):
        return error.code
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return Exit.BAD_INPUT if isinstance(error, ValueError) else Exit.FAILED


def one_line(error: Exception) -> str:
    """Return the error's message without line breaks: drivers and users write several lines."""
    return " ".join(str(error).split())


def notes_of(error: Exception) -> list[str]:
    """Return what was noted on an error on its way, such as which of many objects it is about."""
    return getattr(error, "__notes__", [])


def described() -> list[str]:
    """Return a line for each exit code."""
    return [f"{code.value:>4}  {code.meaning}" for code in Exit]
