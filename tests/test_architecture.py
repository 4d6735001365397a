"""The house rules: which room may know what (docs/explanation/architecture.md)."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "collections_store"

FLOORS = [
    {"errors", "frozen", "results"},
    {"path"},
    {"document"},
    {"expiry", "requests"},
    {"codec"},
    {"values"},
    {"json_schema"},
    {
        "formula",
        "formula.arithmetic",
        "formula.arrays",
        "formula.comparing",
        "formula.evaluation",
        "formula.nodes",
        "formula.objects",
        "formula.operands",
        "formula.operators",
        "formula.parsing",
        "formula.patterns",
        "formula.strings",
        "formula.weights",
    },
    {
        "filter",
        "filter.conditions",
        "filter.fields",
        "filter.operands",
        "filter.nesting",
        "filter.parsing",
        "filter.printing",
        "filter.shapes",
        "filter.targets",
        "filter.times",
    },
    {"matcher"},
    {"ordering"},
    {"change", "cursor", "index"},
    {"collection_options"},
    {"explanation"},
    {
        "projection",
        "projection.parsing",
        "projection.positions",
        "projection.rules",
        "projection.shaping",
    },
    {
        "pipeline",
        "pipeline.fields",
        "pipeline.grouping",
        "pipeline.joining",
        "pipeline.memory",
        "pipeline.parsing",
        "pipeline.projecting",
        "pipeline.rows",
        "pipeline.running",
        "pipeline.stages",
    },
    {
        "update",
        "update.actions",
        "update.applying",
        "update.arrays",
        "update.numbers",
        "update.operands",
        "update.parsing",
        "update.paths",
        "update.pipelines",
        "update.seeding",
        "update.tree",
    },
    {"expressions"},
    {
        "dialects",
        "dialects.indexed_words",
        "dialects.sqlite",
        "dialects.sqlite_arrays",
        "dialects.sqlite_filters",
        "dialects.sqlite_jsonb",
        "dialects.sqlite_ordering",
        "dialects.sqlite_plans",
        "dialects.postgresql",
        "dialects.postgresql_filters",
        "dialects.postgresql_joining",
        "dialects.postgresql_ordering",
        "dialects.postgresql_plans",
    },
    {"schema"},
    {
        "statements",
        "statements.by_id",
        "statements.catalogue",
        "statements.compiling",
        "statements.conditions",
        "statements.documents",
        "statements.feed",
        "statements.indexes",
        "statements.ordered",
        "statements.rows",
    },
    {
        "operations",
        "operations.aggregation",
        "operations.attempts",
        "operations.batches",
        "operations.bulk",
        "operations.connection",
        "operations.contexts",
        "operations.catalogue",
        "operations.changes",
        "operations.documents",
        "operations.explaining",
        "operations.foreign",
        "operations.increments",
        "operations.indexing",
        "operations.locking",
        "operations.ordered",
        "operations.purging",
        "operations.queries",
        "operations.reading",
        "operations.recording",
        "operations.revisions",
        "operations.together",
        "operations.updating",
        "operations.writing",
    },
    {"options"},
    {"background"},
    {"bell", "jobs"},
    {"group_commit"},
    {"threads"},
    {"targets"},
    {"pool"},
    {"migrate"},
    {"opening"},
    {"execution"},
    {"foreign"},
    {"turns"},
    {"blocks"},
    {"backend"},
    {"requested"},
    {"spool"},
    {"procedures", "watching"},
    {"sweeper"},
    {"crossing_async"},
    {"change_stream", "change_stream_async"},
    {"collection"},
    {"collection_async"},
    {
        "memory",
        "memory.entries",
        "memory.importing",
        "memory.keys",
        "memory.memory",
        "memory.memory_async",
        "memory.namespace",
        "memory.namespace_async",
        "memory.scope",
        "memory.skill_saving",
        "memory.skill_values",
        "memory.skills",
        "memory.skills_async",
        "memory.telling",
        "memory.values",
    },
    {"transaction"},
    {"transaction_async"},
    {"components"},
    {"store"},
    {"store_async"},
    {"__init__"},
    {
        "dialogues",
        "dialogues.cleaning",
        "dialogues.coding",
        "dialogues.container",
        "dialogues.dialogue",
        "dialogues.dialogue_store",
        "dialogues.dialogue_store_async",
        "dialogues.dialogues",
        "dialogues.dialogues_async",
        "dialogues.keeper",
        "dialogues.label",
        "dialogues.locks",
        "dialogues.locks_async",
        "dialogues.memory",
        "dialogues.message",
        "dialogues.names",
        "dialogues.reading",
        "dialogues.records",
        "dialogues.rules",
        "dialogues.saving",
        "dialogues.searching",
        "dialogues.settings",
        "dialogues.side",
        "dialogues.writing",
    },
    {
        "integrations",
        "integrations.kdeps",
        "integrations.kdeps.asked",
        "integrations.kdeps.storages",
        "integrations.kdeps.storages_async",
        "integrations.kdeps.texts",
        "integrations.kdeps.texts_async",
        "integrations.opsdroid",
        "integrations.smskillsdk",
        "integrations.aea",
        "integrations.aea.adopting",
        "integrations.aea.attaching",
        "integrations.aea.attributes",
        "integrations.aea.backend",
        "integrations.aea.codec",
        "integrations.aea.dialogues",
        "integrations.aea.encoding",
        "integrations.aea.error_handler",
        "integrations.aea.fields",
        "integrations.aea.importing",
        "integrations.aea.registering",
        "integrations.aea.retention",
        "integrations.aea.stats",
        "integrations.aea.storage",
    },
    {"cli"},
    {"__main__"},
]
"""From the ground up: a room may import what stands below it, or beside it on its own floor."""

PURE = {
    "errors",
    "path",
    "document",
    "expiry",
    "requests",
    "results",
    "collection_options",
    "codec",
    "values",
    "filter",
    "matcher",
    "ordering",
    "change",
    "cursor",
    "index",
    "explanation",
    "json_schema",
    "projection",
    "formula",
    "pipeline",
    "update",
}
BUILDERS = {"expressions", "schema", "statements", "dialects"}
BAD_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "tools", "core"}
SQL = re.compile(
    r"^\s*\(?(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|BEGIN|COMMIT|ROLLBACK|PRAGMA|SET|LOCK"
    r"|SAVEPOINT|RELEASE|WITH|EXPLAIN)\s+[A-Z\"(*:]",
)


@dataclass(frozen=True)
class Room:
    name: str
    tree: ast.Module

    @property
    def top(self) -> str:
        return self.name.split(".")[0]

    def imports(self) -> Iterator[tuple[str, bool]]:
        """Yield what is imported, absolutely named, and whether it is imported lazily."""
        lazy = {
            id(inner)
            for outer in ast.walk(self.tree)
            if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef) or _is_type_checking(outer)
            for inner in ast.walk(outer)
        }
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((alias.name, id(node) in lazy) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from ((name, id(node) in lazy) for name in self._targets(node))

    def _targets(self, node: ast.ImportFrom) -> Iterator[str]:
        if not node.level:
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            return
        is_package = (PACKAGE / self.name.replace(".", "/")).is_dir()
        here = self.name.split(".") if self.name != "__init__" else []
        up = node.level - (1 if is_package or self.name == "__init__" else 0)
        folder = ["collections_store", *here][: len(here) + 1 - up]
        module = ".".join([*folder, *([node.module] if node.module else [])])
        if node.module:
            yield module
        yield from (f"{module}.{alias.name}" for alias in node.names)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _rooms() -> list[Room]:
    rooms = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        rooms.append(Room(name, ast.parse(path.read_text())))
    return rooms


ROOMS = _rooms()
HOUSE = [room for room in ROOMS if room.top not in {"cli", "__main__"}]


@pytest.fixture(params=ROOMS, ids=lambda room: room.name)
def room(request: pytest.FixtureRequest) -> Room:
    found: Room = request.param
    return found


def _floor(name: str) -> int | None:
    for number, floor in enumerate(FLOORS):
        if name in floor or (name.split(".", maxsplit=1)[0] == "cli" and "cli" in floor):
            return number
    return None


def test_every_room_has_its_floor(room: Room) -> None:
    assert _floor(room.name) is not None, f"{room.name}: say in FLOORS where it stands"


def test_a_room_imports_only_what_stands_below(room: Room) -> None:
    here = _floor(room.name)
    for target, lazy in room.imports():
        if not target.startswith("collections_store"):
            continue
        name = target.removeprefix("collections_store").removeprefix(".") or "__init__"
        floor = _floor(name)
        if floor is None:  # a name within a room
            floor = _floor(name.rpartition(".")[0] or "__init__")
        assert floor is not None, target
        assert here is not None
        assert floor <= here, f"{room.name} imports {target}{' (lazily)' if lazy else ''}"


def test_the_pure_rooms_know_no_database(room: Room) -> None:
    if room.top in PURE:
        assert not any(
            name.startswith(("sqlalchemy", "sqlite3", "psycopg")) for name, _ in room.imports()
        )


def test_only_the_codec_knows_orjson(room: Room) -> None:
    assert room.name == "codec" or not any(name.startswith("orjson") for name, _ in room.imports())


def test_only_operations_execute(room: Room) -> None:
    verbs = {
        "execute",
        "executemany",
        "executescript",
        "exec_driver_sql",
        "scalars",
        "fetchall",
        "fetchone",
    }
    called = {node.attr for node in ast.walk(room.tree) if isinstance(node, ast.Attribute)} & verbs
    assert room.top == "operations" or not called


def test_operations_know_no_thread_and_no_store(room: Room) -> None:
    if room.top == "operations":
        names = {name.split(".")[0] for name, _ in room.imports()}
        assert not names & {"asyncio", "threading", "concurrent"}


def test_builders_never_see_a_connection(room: Room) -> None:
    if room.top in BUILDERS:
        seen = {node.attr for node in ast.walk(room.tree) if isinstance(node, ast.Attribute)}
        assert not seen & {"Connection", "Engine", "create_engine", "connect"}


def test_only_async_rooms_are_async(room: Room) -> None:
    kinds = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    if any(isinstance(node, kinds) for node in ast.walk(room.tree)):
        assert room.name.endswith("_async") or room.top in {"cli", "integrations"}


def test_no_sql_outside_the_dialects(room: Room) -> None:
    if room.top in {"dialects", "cli"}:
        return
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(room.tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(room.tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documentation
        ):
            assert not SQL.match(node.value), node.value


def test_no_question_which_database_outside_the_dialects(room: Room) -> None:
    if room.top == "dialects":
        return
    for node in ast.walk(room.tree):
        if isinstance(node, ast.Compare):
            words = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
            assert not words & {"sqlite", "postgresql"}, ast.unparse(node)


def test_no_room_is_called_utils(room: Room) -> None:
    assert not set(room.name.split(".")) & BAD_NAMES


def test_foreign_errors_are_named_in_the_dialects_only(room: Room) -> None:
    if room.top in {"dialects", "pool"}:
        return
    for node in ast.walk(room.tree):
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            assert not re.search(r"sqlite3|psycopg|DBAPIError", ast.unparse(node.type)), room.name


def test_an_integration_knows_the_front_door_and_its_framework(room: Room) -> None:
    if room.top != "integrations" or room.name == "integrations":
        return
    doors = {f"collections_store{door}" for door in ("", ".memory", ".dialogues", ".foreign")}
    own = ".".join(["collections_store", *room.name.split(".")[:2]])
    for name, _ in room.imports():
        if name.startswith("collections_store") and name not in doors:
            door = name.rpartition(".")[0]
            inside = name == own or name.startswith(f"{own}.")
            assert inside or (door in doors and name in _public(door)), name
    others = {name.split(".")[0] for name, _ in room.imports()} - {"collections_store"}
    assert others <= sys.stdlib_module_names | {"__future__", room.name.split(".")[1]}


def _public(door: str) -> set[str]:
    module = importlib.import_module(door)
    return {f"{door}.{name}" for name in getattr(module, "__all__", vars(module))}


def test_migrations_never_import_the_library() -> None:
    for path in (PROJECT / "migrations").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith("collections_store") for name in names), path


def test_the_front_door_is_light() -> None:
    script = (
        "import sys; from collections_store import *; "
        "heavy = {'alembic', 'click', 'rich', 'pydantic', 'opsdroid', 'aea', 'psycopg', 'jsonschema', 'mako', "
        "'sqlalchemy.orm', 'collections_store.integrations'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_functions_and_modules_stay_small() -> None:
    lengths = []
    for room in HOUSE:
        for node in ast.walk(room.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lengths.append((body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0)
    lengths.sort()
    assert lengths[len(lengths) // 2] <= 6
    assert lengths[len(lengths) * 9 // 10] <= 20
    assert lengths[-1] <= 40
