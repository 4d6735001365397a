"""Which tests run: each on one database, in turns; all with `--whole-matrix`; those in memory with `-m in_memory`.

The turn of a test is its position in its file plus the seed COLLECTIONS_STORE_TEST_SEED (0 unless set), which each run prints: with
another seed tests meet other databases. The property tests have their own random seeds unless it is set.
"""

import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import pytest
from backends import BACKENDS, VARIANTS
from hypothesis import core
from pythons import OTHERS, interpreter_of

T = TypeVar("T")
SEED_VARIABLE = "COLLECTIONS_STORE_TEST_SEED"
SEED = int(os.environ.get(SEED_VARIABLE, "0"))
WHOLE = "COLLECTIONS_STORE_TEST_WHOLE"


def sampled(one_in: int) -> int:
    """Return the step through the cases of a test that repeats itself: `one_in` of them; all with `--whole-matrix`."""
    return 1 if WHOLE in os.environ else one_in


def in_turns(databases: list[str], cases: Iterable[T]) -> list[tuple[str, T]]:
    """Return each case with one of two databases, in turns; with both under `--whole-matrix`."""
    step = sampled(2)
    return [(each, case) for n, case in enumerate(cases) for each in databases[n % step :: step]]


HOSTS = os.environ.get("COLLECTIONS_STORE_TEST_HOSTS")
"""Set in the sessions of hosts, where agent frameworks must be installed; "all" runs also the tests that take minutes."""
only_all_of_hosts = pytest.mark.skipif(
    HOSTS != "all", reason="takes minutes, and needs a network: nox -s hosts-…"
)


def missing(module: str) -> str | None:
    """Return why tests of an agent framework are to be skipped, None if it is installed or must be."""
    try:
        found = find_spec(module)  # to import it would take seconds
    except ModuleNotFoundError:  # of the package that it is in
        found = None
    return f"{module} is not installed: nox -s hosts" if found is None and not HOSTS else None


_BACKEND_FIXTURES = ("backend", "shared_backend", "lasting_backend")
_VARIANT_FIXTURES = ("open_store", "lasting_store")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that select all combinations, which `nox -s matrix` uses, and few tests."""
    parser.addoption(
        "--whole-matrix",
        action="store_true",
        help="run each test on each backend, both sync and async, and all cases; else it is one of them in turns",
    )
    parser.addoption(
        "--one-in", type=int, default=1, help="with -m in_memory: run one test in so many"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Give the property tests the seed of the run if it is set, unless the command line has one. Let each worker of xdist begin with other
    files: of those that it comes to later, most were compiled by the others.
    """
    if SEED_VARIABLE in os.environ and config.getoption("--hypothesis-seed", None) is None:
        core.global_force_seed = SEED  # type: ignore[assignment]
    if config.getoption("--whole-matrix"):
        os.environ[WHOLE] = "1"  # before the modules of tests are imported
    option = config.option
    is_whole = [Path(each).name for each in config.args] == ["tests"]
    is_part = option.ignore or option.ignore_glob or "not bench" not in option.markexpr
    if not hasattr(config, "workerinput") or not is_whole or is_part:
        return
    tests = Path(config.args[0])
    files = sorted(map(str, tests.rglob("test_*.py")))
    files = [each for each in files if "benchmarks" not in Path(each).relative_to(tests).parts]
    worker = config.workerinput
    start = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    config.args = files[start:] + files[:start]


def pytest_xdist_auto_num_workers() -> int:
    """Start one worker more than there are cores: tests wait for processes, servers and timeouts."""
    return 1 + (os.cpu_count() or 1)


def pytest_report_header() -> list[str]:
    """Print the seed, and the Pythons of tests/test_pythons.py."""
    pythons = [f"{version}: {interpreter_of(version) or 'not found'}" for version in OTHERS]
    return [f"seed: {SEED_VARIABLE}={SEED}", f"other Pythons: {', '.join(pythons)}"]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the benchmarks, which import what they compare with, unless they are selected."""
    is_left_out = collection_path.name == "benchmarks" and "not bench" in config.option.markexpr
    return True if is_left_out else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run each test, and each case of a test, on one database, in turns, either sync or async (or with one value of its other
    parameter of two), and one test in eight in memory. `each_backend` marks tests of what the databases answer: these run
    on both. A test of which that leaves nothing, such as one in memory only, runs with all its cases, and so do tests
    that are selected by `-k` or by their ids. The longest test, that of the types, begins first.
    """
    items.sort(key=lambda item: ("test_lint.py" not in item.nodeid, item.path))
    for item in items:
        if _is_in_memory(item):
            item.add_marker("in_memory")
        if "lasting_store" in _parameters(item) and {"backend", "open_store"} & {
            *_parameters(item)
        }:
            problem = "`things` has its own store: use store['things']"
            raise pytest.UsageError(f"{item.nodeid}: {problem}")
    is_selection = config.option.keyword or any("::" in argument for argument in config.args)
    if is_selection or config.getoption("--whole-matrix"):
        return
    turns = _turns(items)
    if config.option.markexpr == "in_memory":
        in_memory = [
            item
            for item in items
            if item.get_closest_marker("in_memory") and _runs_in_memory(item, turns)
        ]
        step = config.getoption("--one-in")
        selected = {*in_memory[SEED % step :: step]}
    else:
        selected = {item for item in items if _has_its_turn(item, turns)}
        represented = {_function(item) for item in selected}
        selected |= {item for item in items if _function(item) not in represented}
    config.hook.pytest_deselected(items=[item for item in items if item not in selected])
    items[:] = [item for item in items if item in selected]


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _parameters(item: pytest.Item) -> dict[str, Any]:
    found: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    return found


def _is_in_memory(item: pytest.Item) -> bool:
    """Return whether a test needs no database but one in memory, and seconds at most."""
    names = f"{item.name} {getattr(item, 'fixturenames', '')}"  # with those of parameters
    is_elsewhere = any(each in names for each in ("postgres", "sqlite-file", "on_sqlite"))
    is_long = item.get_closest_marker("soak") or item.get_closest_marker("bench")
    return not is_elsewhere and not is_long


def _turns(items: Iterable[pytest.Item]) -> dict[str, int]:
    """Return the turn of each test: its position in its file plus the seed."""
    files: dict[Path, dict[str, int]] = {}
    for item in items:
        tests = files.setdefault(item.path, {})
        tests.setdefault(_function(item), SEED + len(tests))
    return {name: turn for tests in files.values() for name, turn in tests.items()}


def _has_its_turn(item: pytest.Item, turns: dict[str, int]) -> bool:
    backend, variant, case = _combination(item)
    if backend not in BACKENDS:
        return True
    turn, number = turns[_function(item)], BACKENDS.index(backend)
    if backend != "sqlite-memory" and not item.get_closest_marker("each_backend"):
        turn += case
        if number // 2 != turn % 2:
            return False
    if variant not in VARIANTS:
        return True
    if backend == "sqlite-memory" and turn // 2 % 8:
        return False
    return VARIANTS.index(variant) == (turn // 2 + number) % 2


def _runs_in_memory(item: pytest.Item, turns: dict[str, int]) -> bool:
    """Return whether a test runs with `-m in_memory`: one case of five, sync or async."""
    _, variant, case = _combination(item)
    is_other = (
        variant in VARIANTS and VARIANTS.index(variant) != (turns[_function(item)] + case // 5) % 2
    )
    return not case % 5 and not is_other


def _combination(item: pytest.Item) -> tuple[Any, Any, int]:
    """Return the backend and the variant of a test, if it has these, and the number of its case."""
    parameters = _parameters(item)
    backend = next((parameters[name] for name in _BACKEND_FIXTURES if name in parameters), None)
    variant = next((parameters[name] for name in _VARIANT_FIXTURES if name in parameters), None)
    if variant is None and "changes" in parameters:
        variant = VARIANTS[parameters["changes"] is True]
    indices: dict[str, int] = getattr(getattr(item, "callspec", None), "indices", {})
    own = {*indices} - {*_BACKEND_FIXTURES, *_VARIANT_FIXTURES, "changes"}
    return backend, variant, sum(indices[name] for name in own)
