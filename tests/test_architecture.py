"""The rules of the layout: what each package may import (docs/explanation/architecture.md)."""

import ast
import importlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "collections_store"

LAYERS = (
    "errors engine.forks",
    "expressions.classes expressions.folding expressions.collation expressions.values expressions.path expressions.budget expressions.patterns",
    "document codec results",
    "expressions",
    "search",
    "query.json_schema",
    "query",
    "dialogues.model dialogues.records dialogues.search",
    "aggregation",
    "update",
    "options",
    "models",
    "sql",
    "operations",
    "engine.database_file engine.pool engine.jobs engine.permits engine.retry engine.observe engine.executor engine.group_commit engine.workers engine.notifier engine.single_use",
    "migrate",
    "engine",
    "changes",
    "aio.bridge aio.runners",
    "collection aio.collection",
    "memory",
    "transaction store aio",
    "collections_store",
    "dialogues.reader dialogues.quarantine dialogues.undo dialogues.states dialogues.repository",
    "dialogues.cache dialogues.manager",
    "dialogues",
    "integrations",
    "studio",
    "cli __main__",
)
"""Rows from the bottom up: a module imports only modules of rows below, or of its own row."""

PURE = {
    "errors",
    "document",
    "codec",
    "results",
    "expressions",
    "search",
    "query",
    "aggregation",
    "update",
}
PUBLIC = (
    "collections_store",
    "collections_store.memory",
    "collections_store.memory.aio",
    "collections_store.memory.skills",
    "collections_store.results",
    "collections_store.options",
    "collections_store.dialogues",
    "collections_store.integrations.soul_machines",
    "collections_store.integrations.sqlite_files",
    "collections_store.integrations.stores",
    "collections_store.integrations.vectors",
    "collections_store.integrations.ids",
    "collections_store.integrations.words",
)
FILES = "integrations.sqlite_files"
"""Reads files of other programs: with sqlite3 and its own SQL, and with the engine's locks of files."""
FRAMEWORKS = {"google_adk": "google", "mcp_events": "mcp", "openai_agents": "agents"}
"""The top-level package of a host, where it differs from the name of its integration."""
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc", "base", "tools"}
STATEMENT = re.compile(
    r"^\s*\(?(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|BEGIN|COMMIT|ROLLBACK|PRAGMA|SET|LOCK"
    r"|SAVEPOINT|RELEASE|WITH|EXPLAIN)\b"
    r"|\b(json_\w+\(|jsonb_\w+\(|pg_\w+\(|sqlite_master|IS (NOT )?(NULL|TRUE)|(ORDER|GROUP) BY|WHERE )"
)
"""The start of a statement, and keywords within one; the parts of an f-string are separate strings."""
EXECUTES = {"execute", "executemany", "executescript", "exec_driver_sql", "scalars", "fetchall", "fetchone"}  # fmt: skip


@dataclass(frozen=True)
class Module:
    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text())

    @property
    def top(self) -> str:
        return self.name.split(".")[0]

    def within(self, *names: str) -> bool:
        return any(self.name == name or self.name.startswith(f"{name}.") for name in names)

    @cached_property
    def every_node(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    def nodes(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        return (node for node in self.every_node if isinstance(node, kinds))

    @cached_property
    def imports(self) -> set[str]:
        """Return the imports by absolute names, imports for the type checker included."""
        return {
            name for node in self.nodes(ast.Import, ast.ImportFrom) for name in self._names(node)
        }

    def _names(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                here = ["collections_store", *self.path.relative_to(PACKAGE).parts[:-1]]
                module = ".".join([*here[: len(here) + 1 - node.level], *module.split(".")]).strip(
                    "."
                )
            yield from (f"{module}.{alias.name}" for alias in node.names)

    def ours(self) -> Iterator[str]:
        """Yield the modules of this package that are imported."""
        for name in self.imports:
            if name.startswith("collections_store"):
                short = name.removeprefix("collections_store").removeprefix(".")
                known = (
                    short if short in BY_NAME else short.rpartition(".")[0]
                ) or "collections_store"
                yield known


def _modules() -> dict[str, Module]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        name = name.removesuffix(".__init__") if name != "__init__" else "collections_store"
        found[name] = Module(name, path)
    return found


BY_NAME = _modules()
MODULES = list(BY_NAME.values())
LIBRARY = [module for module in MODULES if module.top not in {"cli", "__main__"}]


def _layer(name: str) -> int:
    """Return the row with the longest name that is the module or contains it."""
    rows = {each: number for number, row in enumerate(LAYERS) for each in row.split()}
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if (prefix := ".".join(parts[:length])) in rows:
            return rows[prefix]
    raise AssertionError(f"{name}: its layer must be in LAYERS")


def test_a_package_imports_only_packages_below_it() -> None:
    wrong = [
        f"{module.name} imports {target}"
        for module in MODULES
        for target in module.ours()
        if _layer(target) > _layer(module.name)
    ]
    assert not wrong


def test_no_modules_import_each_other() -> None:
    left = {module.name: {*module.ours()} - {module.name} for module in MODULES}
    while free := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in free:
            del left[name]
    assert not left


def test_the_top_of_the_package_lists_the_architecture() -> None:
    names = {path.name for path in PACKAGE.iterdir() if not path.name.startswith("__pycache__")}
    assert len(names) <= 28
    for path in PACKAGE.rglob("__init__.py"):
        assert len(ast.get_docstring(ast.parse(path.read_text())) or "") > 60, path


def test_classes_and_modules_have_distinct_names() -> None:
    classes = Counter(
        node.name
        for module in LIBRARY
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in classes.items() if count > 1} == set()


def test_pure_packages_know_no_database() -> None:
    for module in MODULES:
        if module.top in PURE:
            assert not {n.split(".")[0] for n in module.imports} & {"sqlalchemy", "sqlite3", "psycopg"}, module.name  # fmt: skip


def test_only_the_codec_knows_orjson() -> None:
    assert {module.name for module in MODULES if "orjson" in module.imports} == {"codec"}


def test_only_operations_execute_statements_and_use_no_thread() -> None:
    for module in MODULES:
        called = {
            node.attr for node in module.nodes(ast.Attribute) if isinstance(node, ast.Attribute)
        }
        if module.top == "operations":
            assert not {n.split(".")[0] for n in module.imports} & {"asyncio", "threading", "concurrent"}, module.name  # fmt: skip
        elif module.name != FILES:
            assert not called & EXECUTES, module.name


def test_sql_has_no_connection() -> None:
    for module in MODULES:
        if module.top == "sql":
            seen = {
                node.attr for node in module.nodes(ast.Attribute) if isinstance(node, ast.Attribute)
            }
            assert not seen & {"Connection", "Engine", "create_engine", "connect"}, module.name


def test_only_aio_is_asynchronous() -> None:
    kinds = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    for module in MODULES:
        if any(module.nodes(*kinds)):
            assert module.within("aio", "integrations") or module.name.endswith(".aio"), module.name  # fmt: skip


def _strings(module: Module) -> Iterator[str]:
    """Yield the strings of a module except docstrings."""
    documentation = {
        id(node.value) for node in module.nodes(ast.Expr) if isinstance(node, ast.Expr)
    }
    for node in module.nodes(ast.Constant):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documentation
        ):
            yield node.value


def test_sql_text_is_in_the_dialects_only() -> None:
    for module in MODULES:
        # sqlite_files reads tables of other programs
        if not module.within("sql.dialects", "integrations.sqlite_files"):
            assert not [text for text in _strings(module) if STATEMENT.search(text)], module.name


def test_only_dialects_distinguish_databases() -> None:
    names = {"sqlite", "postgresql"}
    for module in MODULES:
        # options.urls reads the alias postgres:// of a URL
        if module.within("sql.dialects", "integrations.sqlite_files", "options.urls"):
            continue
        assert not names & set(_strings(module)), module.name
        keywords = {node.arg for node in module.nodes(ast.keyword) if isinstance(node, ast.keyword)}
        assert not {each for each in keywords if each and each.split("_")[0] in names}, module.name


def test_a_dialect_has_an_object_of_each_protocol() -> None:
    protocols = importlib.import_module("collections_store.sql.dialects.protocols")
    hints = get_type_hints(protocols.Database)
    every = {
        name: get_args(hint)[0] if type(None) in get_args(hint) else get_origin(hint) or hint
        for name, hint in hints.items()
    }
    kinds = {name: kind for name, kind in every.items() if getattr(kind, "_is_protocol", False)}
    defined = {each.__name__ for each in vars(protocols).values() if getattr(each, "_is_protocol", False)}  # fmt: skip
    assert {kind.__name__ for kind in kinds.values()} == defined - {"Protocol"}
    for kind in kinds.values():
        assert len([name for name in vars(kind) if not name.startswith("_")]) <= 15, kind
    for name in ("sqlite", "postgresql"):
        database = importlib.import_module(f"collections_store.sql.dialects.{name}").DATABASE
        for attribute, kind in kinds.items():
            found = getattr(database, attribute)
            is_absent = found is None and type(None) in get_args(hints[attribute])
            assert is_absent or kind in type(found).__mro__, (name, attribute)


def test_driver_errors_are_named_in_the_dialects_and_the_pool_only() -> None:
    for module in MODULES:
        if not module.within("sql.dialects", "engine.pool"):
            for node in module.nodes(ast.ExceptHandler):
                kind = ast.unparse(node.type) if isinstance(node, ast.ExceptHandler) and node.type else ""  # fmt: skip
                assert not re.search(r"sqlite3|psycopg|DBAPIError", kind), module.name


def test_no_module_has_a_vague_name() -> None:
    for module in MODULES:
        assert not set(module.name.split(".")) & VAGUE, module.name


def test_an_integration_imports_the_public_api_and_its_framework() -> None:
    for module in MODULES:
        if not module.within("integrations") or module.name in {"integrations", FILES}:
            continue
        own = ".".join(["collections_store", *module.name.split(".")[:2]])
        for name in module.imports:
            if name.startswith("collections_store") and name not in PUBLIC:
                holder = name.rpartition(".")[0]
                inside = name == own or name.startswith(f"{own}.")
                assert inside or (holder in PUBLIC and name in _public(holder)), (module.name, name)
        others = {name.split(".")[0] for name in module.imports} - {"collections_store"}
        host = module.name.split(".")[1]
        framework = FRAMEWORKS.get(host, host)
        known = sys.stdlib_module_names | {"__future__", framework, f"{framework}_core"}
        known |= {"numpy"} if host == "langchain" else set()  # LangChain's functions take arrays
        known |= {"pybase64"} if host == "langgraph" else set()
        assert others <= known, module.name


def _public(door: str) -> set[str]:
    module = importlib.import_module(door)
    return {f"{door}.{name}" for name in getattr(module, "__all__", vars(module))}


def test_migrations_never_import_the_library() -> None:
    for path in (PROJECT / "migrations").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith("collections_store") for name in names), path


def test_importing_the_public_api_loads_nothing_heavy() -> None:
    script = (
        "import sys; from collections_store import *; "
        "heavy = {'alembic', 'click', 'rich', 'pydantic', 'opsdroid', 'aea', 'psycopg', 'jsonschema', 'mako', 'jinja2', 'starlette', "
        "'sqlalchemy.orm', 'collections_store.integrations'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_no_file_of_the_tests_hides_a_package() -> None:
    """Pytest puts the folders of test files first on the path."""
    packages = {*packages_distributions(), *sys.stdlib_module_names}
    assert [path for path in (PROJECT / "tests").rglob("*.py") if path.stem in packages] == []


def test_one_module_registers_callbacks_of_forks() -> None:
    calls = [
        module.name
        for module in MODULES
        for node in module.nodes(ast.Attribute)
        if isinstance(node, ast.Attribute) and node.attr == "register_at_fork"
    ]
    assert calls == ["engine.forks"]


def test_no_private_name_of_a_store_is_read_in_another_module() -> None:
    """The fronts and their core have public methods for each other, and for dialogues and integrations."""
    stores = {"store", "sync", "other", "source", "target", "core", "opened", "_store", "_core"}
    wrong = []
    for module in MODULES:
        own = {
            each.name for each in module.nodes(ast.FunctionDef) if isinstance(each, ast.FunctionDef)
        }
        for node in module.nodes(ast.Attribute):
            assert isinstance(node, ast.Attribute)
            is_private = re.match("_[a-z]", node.attr) and node.attr not in own
            if is_private and ast.unparse(node.value).split(".")[-1] in stores:
                wrong.append(f"{module.name} reads {ast.unparse(node)}")
    assert not wrong


def test_four_modules_ask_where_a_cluster_places_tables() -> None:
    """The statements that create tables, the check of the schema, the size of a table, and its estimates."""
    asking = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if ".placement" in path.read_text() and "dialects" not in path.parts
    }
    assert asking == {
        "sql/catalogue.py",
        "sql/select.py",
        "sql/survey.py",
        "operations/schema.py",
    }


def test_functions_stay_small() -> None:
    functions = []
    for module in LIBRARY:
        for node in module.nodes(ast.FunctionDef, ast.AsyncFunctionDef):
            assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            functions.append((lines, f"{module.name}.{node.name}"))
    functions.sort()
    assert functions[len(functions) // 2][0] <= 6
    assert functions[len(functions) * 9 // 10][0] <= 20
    assert not [each for each in functions if each[0] > 40]


def test_one_function_of_the_engine_calls_an_operation() -> None:
    """Sync, async, in a group, in a transaction and on a replica."""
    operations = {
        each.name
        for module in MODULES
        if module.top == "operations"
        for each in module.nodes(ast.ClassDef)
        if isinstance(each, ast.ClassDef)
    }

    def calls_one(node: ast.AST) -> bool:
        called = node.func if isinstance(node, ast.Call) else None
        match called:
            case ast.Name(id="operation") | ast.Attribute(attr="operation"):
                return True
            case ast.Call(func=ast.Name(id=name)):  # IdentifyServer()(connection)
                return name in operations
        return False

    found = [
        f"{module.name}.{function.name}"
        for module in MODULES
        if module.top == "engine"
        for function in module.nodes(ast.FunctionDef)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if calls_one(node)
    ]
    assert found == ["engine.executor.execute"]
