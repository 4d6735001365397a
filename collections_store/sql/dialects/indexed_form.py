"""The spellings of orders and of tests that indexes serve, as far as they are the same everywhere: how
SQLAlchemy comes to them. The words themselves are each database's own.
"""

from __future__ import annotations

from typing import Any, Protocol

from sqlalchemy.ext.compiler import compiles

from ...query.conditions import Kind, Test
from ..elements import ArrayAt, IsNot, PartialTest, PlainTest, RenameTable, SortPart, TypeAt


class Words(Protocol):
    """What a database says."""

    def part(self, body: str, keys: tuple[str, ...], name: str) -> str:
        """Spell a `SortPart`."""

    def type_at(self, body: str, keys: tuple[str, ...]) -> str:
        """Spell `TypeAt`."""

    def array_at(self, body: str, keys: tuple[str, ...], *, apart: bool = False) -> str:
        """Spell `ArrayAt`."""

    def plain_test(self, body: str, keys: tuple[str, ...], test: Test) -> str:
        """Spell a `PlainTest`; the slots of the test hold its words."""

    def partial_test(self, body: str, keys: tuple[str, ...], test: Test) -> str:
        """Spell a `PartialTest`."""

    def plain_width(self, kind: Kind) -> int:
        """Return how many parameters a value takes."""


def spell(name: str, words: Words) -> None:
    """Have SQLAlchemy spell our elements in the words of the dialect `name`."""

    @compiles(SortPart, name)
    def _sort_part(element: SortPart, compiler: Any, **kw: Any) -> str:
        return words.part(compiler.process(element.clauses, **kw), element.keys, element.part)

    @compiles(TypeAt, name)
    def _type_at(element: TypeAt, compiler: Any, **kw: Any) -> str:
        return words.type_at(compiler.process(element.clauses, **kw), element.keys)

    @compiles(ArrayAt, name)
    def _array_at(element: ArrayAt, compiler: Any, **kw: Any) -> str:
        body = compiler.process(element.clauses, **kw)
        return words.array_at(body, element.keys, apart=element.apart)

    @compiles(PlainTest, name)
    def _plain_test(element: PlainTest, compiler: Any, **kw: Any) -> str:
        body, *parameters = (compiler.process(clause, **kw) for clause in element.clauses)
        test = element.in_words(parameters, words.plain_width)
        return words.plain_test(body, element.field.path.keys, test)

    @compiles(PartialTest, name)
    def _partial_test(element: PartialTest, compiler: Any, **kw: Any) -> str:
        body, field = compiler.process(element.clauses, **kw), element.field
        return words.partial_test(body, field.path.keys, field.test)

    @compiles(IsNot, name)
    def _is_not(element: IsNot, compiler: Any, **kw: Any) -> str:
        return f"(({compiler.process(element.clauses, **kw)}) IS NOT TRUE)"

    @compiles(RenameTable, name)
    def _rename_table(element: RenameTable, compiler: Any, **kw: Any) -> str:  # noqa: ARG001
        table = compiler.preparer.format_table(element.table)
        return f"ALTER TABLE {table} RENAME TO {compiler.preparer.quote(element.new)}"
