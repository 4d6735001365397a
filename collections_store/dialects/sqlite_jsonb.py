"""Bodies that SQLite keeps as JSONB, from the version on that knows it."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy.ext.compiler import compiles

from ..expressions import JsonbFromText, JsonbText

JSONB_SINCE: Final = (3, 45)


@compiles(JsonbText, "sqlite")
def _jsonb_text(element: JsonbText, compiler: Any, **kw: Any) -> str:
    return f"json({compiler.process(element.clauses, **kw)})"


@compiles(JsonbFromText, "sqlite")
def _jsonb_from_text(element: JsonbFromText, compiler: Any, **kw: Any) -> str:
    return f"jsonb({compiler.process(element.clauses, **kw)})"


def jsonb_probe() -> str | None:
    """Ask the library that is in use, which may be the caller's."""
    return "SELECT sqlite_version()"


def jsonb_problem(version: str) -> str | None:
    """Came that version before JSONB did?"""
    if tuple(map(int, version.split("."))) >= JSONB_SINCE:
        return None
    return f"SQLite {version} has no JSONB: it takes 3.45 or newer"
