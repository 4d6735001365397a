"""The log of statements, for the option `echo`."""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

LOG: Final = logging.getLogger("collections_store.statements")
_LONGEST: Final = 1000
"""The characters of parameters that are logged."""


def set_up(echo: object) -> None:
    """Enable the log, and print the log unless the program has set up logging, as SQLAlchemy does for an engine."""
    if echo and LOG.getEffectiveLevel() > logging.INFO:
        LOG.setLevel(logging.INFO)
    if echo and not LOG.hasHandlers():
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        LOG.addHandler(handler)


class EchoingDriver:
    """A driver's connection that logs each statement, and passes everything else on."""

    __slots__ = ("_driver", "_shows_parameters")

    def __init__(self, driver: Any, *, shows_parameters: bool) -> None:
        object.__setattr__(self, "_driver", driver)
        object.__setattr__(self, "_shows_parameters", shows_parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._driver, name, value)

    def execute(self, sql: Any, *parameters: Any, **options: Any) -> Any:
        """Log and execute a statement."""
        self._log(sql, *parameters)
        return self._driver.execute(sql, *parameters, **options)

    def cursor(self) -> Any:
        """Return a cursor whose `executemany` logs."""
        return _EchoingCursor(self._driver.cursor(), self._log)

    def _log(self, sql: Any, parameters: Any = None) -> None:
        LOG.info("%s", sql)
        if parameters:
            shown = repr(parameters)[:_LONGEST] if self._shows_parameters else "hidden"
            LOG.info("[parameters: %s]", shown)


class _EchoingCursor:
    def __init__(self, cursor: Any, log: Any) -> None:
        self._cursor, self._log = cursor, log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def executemany(self, sql: Any, rows: Any) -> Any:
        self._log(sql, rows)
        return self._cursor.executemany(sql, rows)
