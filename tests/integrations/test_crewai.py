"""The tests of the CrewAI integration, in an environment of its own: CrewAI asks for another mcp than the MCP SDK's integration."""

from pathlib import Path

import pytest
from own_environment import own_environment, run_tests, sdist
from postgres_server import URL_VARIABLE
from selection import only_all_of_hosts

ROOT = Path(__file__).parents[2]
VERSION = "crewai==1.15.30"
PACKAGES = (VERSION, "orjson<3.12", "pytest-asyncio")  # newer ones of orjson: see pyproject.toml
TESTS = [f"tests/integrations/crewai_{each}.py" for each in ("flows", "memory")]
THEIR_TESTS = (
    "memory",
    "test_async_human_feedback.py",
    "test_flow_persistence.py",
    "test_flow_persistence_factory.py",
    "test_flow_resumability_regression.py",
    "test_human_feedback_integration.py",
)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment with CrewAI and the packages of this one."""
    return own_environment(tmp_path_factory.mktemp("crewai"), *PACKAGES)


@only_all_of_hosts
@pytest.mark.timeout(1800)
def test_crewai(python: str, postgres_url: str) -> None:
    environment = {
        URL_VARIABLE: postgres_url,
        "PYTHONPATH": str(ROOT),
        "COLLECTIONS_STORE_TEST_HOSTS": "",  # the other frameworks may be absent
    }
    warning = "ignore:Cannot set an attribute:ImportWarning"  # at `import crewai`
    matrix = ("-p", "no:asyncio", "-W", warning, "--whole-matrix")
    run_tests(python, *matrix, *TESTS, cwd=ROOT, environment=environment)


@only_all_of_hosts
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("database", ["SQLite", "PostgreSQL"])
def test_crewais_own_tests(
    python: str, database: str, empty_postgres_url: str, tmp_path: Path
) -> None:
    url = {"CREWAI_TESTS_URL": empty_postgres_url} if database == "PostgreSQL" else {}
    run_tests(
        python,
        *("-o", "addopts=", "-o", "asyncio_mode=auto", "-p", "integrations.crewai_upstream"),
        *(f"tests/{name}" for name in THEIR_TESTS),
        cwd=sdist(VERSION, tmp_path),
        environment={"PYTHONPATH": str(ROOT / "tests"), **url},
    )
