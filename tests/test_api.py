"""The public API: what is exported, documented, and equal in sync and async."""

import ast
import inspect
import pydoc
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import pytest

import collections_store
import collections_store.dialogues
import collections_store.integrations.kdeps
import collections_store.memory
from collections_store import (
    AsyncChangeDocumentStream,
    AsyncChangeStream,
    AsyncCollection,
    AsyncStore,
    AsyncTransaction,
    ChangeDocumentStream,
    ChangeStream,
    Collection,
    Store,
    Transaction,
    errors,
)
from collections_store.dialogues import AsyncDialogues, AsyncDialogueStore, Dialogues, DialogueStore
from collections_store.integrations.kdeps import (
    AsyncItems,
    AsyncMemoryStorage,
    AsyncRecords,
    AsyncSessionStorage,
    Items,
    MemoryStorage,
    Records,
    SessionStorage,
)
from collections_store.integrations.soul_machines import AsyncSkillMemory, SkillMemory
from collections_store.memory import AsyncMemory, Memory

PACKAGES: tuple[Any, ...] = (
    collections_store,
    collections_store.dialogues,
    collections_store.memory,
    collections_store.integrations.kdeps,
)
"""The packages whose names are public."""
COUNTERPARTS = [
    (Collection, AsyncCollection),
    (Store, AsyncStore),
    (Transaction, AsyncTransaction),
    (Dialogues, AsyncDialogues),
    (DialogueStore, AsyncDialogueStore),
    (Memory, AsyncMemory),
    (SkillMemory, AsyncSkillMemory),
    (Items, AsyncItems),
    (Records, AsyncRecords),
    (MemoryStorage, AsyncMemoryStorage),
    (SessionStorage, AsyncSessionStorage),
    (ChangeStream, AsyncChangeStream),
    (ChangeDocumentStream, AsyncChangeDocumentStream),
]
OTHER_NAMES = {"get_sync_collection": "get_collection", "close": "aclose"}
ONLY_ASYNC = {"get_sync_collection"}
"""Methods for synchronous components in asynchronous programs."""
COUNTERPART = re.compile(r"Async counterpart of `(\w+)\.(\w+)`\.")
LONGEST_DOCSTRING = 3
"""Maximum lines of the docstring of an async method: the differences from the sync counterpart."""


def methods(kind: type) -> dict[str, Callable[..., Any]]:
    members = inspect.getmembers(kind, inspect.isfunction)
    return {name: member for name, member in members if not name.startswith("_")}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_the_public_names_are_sorted_and_explicit(package: Any) -> None:
    for name in package.__all__:
        assert getattr(package, name) is not None
    public = {
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert sorted(package.__all__) == package.__all__
    if package is collections_store.integrations.kdeps:
        return  # one module, which also contains imported names
    assert public - {"TYPE_CHECKING", "import_module"} == set(package.__all__)


def test_missing_names_are_attribute_errors() -> None:
    assert set(collections_store.__all__) <= set(dir(collections_store))
    with pytest.raises(AttributeError, match=r"module 'collections_store' has no attribute 'Shop'"):
        getattr(collections_store, "Shop")  # noqa: B009


def test_lazy_imports_are_those_of_the_type_checker() -> None:
    tree = ast.parse(inspect.getsource(collections_store))
    [checked] = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    seen = {
        alias.name: node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == collections_store._MODULE_OF
    at_once = set(collections_store.errors.__all__)
    assert sorted({*seen, *at_once}) == collections_store.__all__
    assert not seen.keys() & at_once


@pytest.mark.parametrize("module", ["errors", "dialogues", "memory"])
def test_public_modules_need_no_import_of_their_own(module: str) -> None:
    """In a new process, in which no other test has imported modules."""
    script = f"import collections_store; print(collections_store.{module}.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, encoding="utf-8", check=True
    )
    assert done.stdout.strip() == f"collections_store.{module}"


ENTERED = """
import sys
from collections_store import Store
with Store("sqlite://") as store:
    store["things"].put("a", {"n": 1})
    assert store["things"].get("a") == {"n": 1}
modules = {name.removeprefix("collections_store.") for name in sys.modules if "collections_store." in name}
print(*sorted(modules & {"memory", "pipeline", "dialects.postgresql", "store_async", "dialogues"}))
"""


def test_a_program_imports_what_it_uses() -> None:
    """Each of these takes some 10 ms of every start (docs/explanation/speed.md)."""
    done = subprocess.run(
        [sys.executable, "-c", ENTERED], capture_output=True, encoding="utf-8", check=True
    )
    assert done.stdout.split() == []


@pytest.mark.parametrize(("sync", "async_class"), COUNTERPARTS, ids=lambda kind: kind.__name__)
def test_sync_and_async_have_the_same_methods(sync: type, async_class: type) -> None:
    ours = {OTHER_NAMES.get(name, name): method for name, method in methods(sync).items()}
    theirs = {
        name: method for name, method in methods(async_class).items() if name not in ONLY_ASYNC
    }
    assert ours.keys() == theirs.keys()
    for name, method in ours.items():
        assert _parameters(method) == _parameters(theirs[name]), name
        assert _answer(method) == _answer(theirs[name]), name


@pytest.mark.parametrize(("sync", "async_class"), COUNTERPARTS, ids=lambda kind: kind.__name__)
def test_async_methods_name_their_sync_counterpart(sync: type, async_class: type) -> None:
    """Only the docstring of the sync counterpart has arguments, results and examples."""
    sync_names = {theirs: ours for ours, theirs in OTHER_NAMES.items()}
    for name, member in inspect.getmembers_static(async_class):
        if name.startswith("_") or name in ONLY_ASYNC or not _is_method(member):
            continue
        counterpart = inspect.getattr_static(sync, sync_names.get(name, name))
        if member is counterpart:
            continue  # of a common base class
        text = inspect.getdoc(member) or ""
        if member is counterpart:  # inherited from the same class
            continue
        named = COUNTERPART.match(text)
        assert named, f"{async_class.__name__}.{name}: {text}"
        owner = next(kind for kind, _ in COUNTERPARTS if kind.__name__ == named[1])
        assert inspect.getattr_static(owner, named[2]) is counterpart, (
            f"{async_class.__name__}.{name}"
        )
        assert len(text.splitlines()) <= LONGEST_DOCSTRING, f"{async_class.__name__}.{name}"
        assert ">>>" not in text, f"{async_class.__name__}.{name}"


@pytest.mark.parametrize(("sync", "async_class"), COUNTERPARTS, ids=lambda kind: kind.__name__)
def test_the_help_of_async_methods_shows_their_arguments(sync: type, async_class: type) -> None:
    """Their docstrings do not repeat those of the sync counterparts."""
    theirs = methods(async_class)
    for name, method in methods(sync).items():
        shown = pydoc.plain(pydoc.render_doc(theirs[OTHER_NAMES.get(name, name)]))
        for each in inspect.signature(method).parameters.values():
            assert re.search(rf"[( *]{each.name}\b", shown), (
                f"{async_class.__name__}.{name}: {shown}"
            )


@pytest.mark.parametrize(("sync", "async_class"), COUNTERPARTS[:-2], ids=lambda kind: kind.__name__)
def test_sync_and_async_methods_take_the_same_options(sync: type, async_class: type) -> None:
    constructor = async_class.__init__  # type: ignore[misc]
    expected = [p.replace("AsyncConnection", "Connection") for p in _parameters(constructor)]
    ours = [p.replace("sa.Connection", "Connection") for p in _parameters(sync.__init__)]  # type: ignore[misc]
    assert [p.replace("Async", "") for p in expected] == ours


def test_the_type_hints_of_everything_public_can_be_resolved() -> None:
    """Also of names imported on first use: `get_type_hints` imports them."""
    for name, thing in _public():
        constructor = [thing.__init__] if inspect.isclass(thing) else []
        target = thing.fget if isinstance(thing, property) else inspect.unwrap(thing)
        for each in (getattr(target, "__func__", target), *constructor):
            if inspect.isclass(each) or inspect.isfunction(each):
                assert isinstance(get_type_hints(each), dict), name
    memory = get_type_hints(collections_store.Store.memory)["return"]
    assert memory is collections_store.memory.Memory


def test_everything_public_is_documented() -> None:
    missing = [name for name, thing in _public() if not inspect.getdoc(thing)]
    assert not missing


def test_every_method_has_an_example_that_runs() -> None:
    missing = [
        f"{kind.__name__}.{name}"
        for kind in (Collection, Store, Memory, SkillMemory)
        for name, method in methods(kind).items()
        if ">>>" not in (inspect.getdoc(method) or "") and name not in {"close", "run"}
    ]
    assert not missing


def test_methods_have_few_positional_parameters() -> None:
    for kind in (Collection, AsyncCollection, Store, AsyncStore):
        for name, method in methods(kind).items():
            parameters = inspect.signature(method).parameters.values()
            positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
            assert len(positional) <= 5, f"{kind.__name__}.{name}"


def test_the_documented_error_tree_is_that_of_the_classes() -> None:
    lines = [f"    {errors.CollectionsStoreError.__name__}", *_tree(errors.CollectionsStoreError)]
    assert "::\n\n" + "\n".join(lines) + "\n" == (errors.__doc__ or "").partition("attributes")[2]
    named = {line.split("─")[-1].split()[0] for line in lines}
    assert named | {"was_committed"} == set(errors.__all__)


def test_every_error_states_its_cause_and_what_to_do() -> None:
    for name in errors.__all__:
        sentence = (inspect.getdoc(getattr(errors, name)) or "").partition("\n\n")[0]
        assert sentence.endswith((".", "nothing.")), name
        if name not in {"CollectionsStoreError", "SchemaError", "was_committed"}:
            assert ": " in sentence or "; " in sentence, name


def _tree(kind: type, indent: str = "    ") -> Iterator[str]:
    """Return the tree of the subclasses of an error, in the order of definition."""
    kinds = [each for each in vars(errors).values() if inspect.isclass(each)]
    below = [each for each in kinds if kind in each.__bases__]
    for each in below:
        builtins = ", ".join(base.__name__ for base in each.__bases__ if base is not kind)
        last = each is below[-1]
        yield f"{indent}{'└──' if last else '├──'} {each.__name__}{f' ({builtins})' if builtins else ''}"
        yield from _tree(each, indent + ("    " if last else "│   "))


def _public() -> Iterator[tuple[str, Any]]:
    for package in PACKAGES:
        for name in package.__all__:
            thing = getattr(package, name)
            yield name, thing
            if inspect.isclass(thing):
                for attribute, value in vars(thing).items():
                    if not attribute.startswith("_") and (
                        inspect.isroutine(value) or isinstance(value, property)
                    ):
                        yield f"{name}.{attribute}", value


def _is_method(member: object) -> bool:
    return inspect.isfunction(member) or isinstance(member, property)


def _parameters(method: Any) -> list[str]:
    return [
        str(parameter)
        .replace("AsyncStore", "Store")
        .replace("AsyncConnection", "Connection")
        .replace("AsyncTransaction", "Transaction")
        .replace("AsyncComponent", "Component")
        .replace("AsyncScope", "Scope")
        .replace("Awaitable[T]", "T")
        .replace("sa.Connection", "Connection")
        for parameter in inspect.signature(method).parameters.values()
    ]


def _answer(method: Any) -> str:
    return str(inspect.signature(method).return_annotation).replace("Async", "")
