"""Development sessions: `nox` runs those that must pass, `nox --list` shows the others.

The Python versions are those of the classifiers in `pyproject.toml`.
"""

import os
from pathlib import Path

import nox

PROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)
OLDEST = PYTHONS[0]
AEA_TESTS = [
    f"tests/integrations/test_aea_{part}.py"
    for part in ("storage", "dialogues", "attributes", "run", "importing")
]

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["tests", "lint", "types", "docs", "package"]


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the test suite on each Python; arguments after `--` go to pytest."""
    _install(session)
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session(python=OLDEST)
def lint(session: nox.Session) -> None:
    """Check style and formatting."""
    _install(session)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session(python=PYTHONS)
def types(session: nox.Session) -> None:
    """Check types, strictly, and that pyright sees those of models as mypy does."""
    _install(session)
    session.install("basedpyright>=1.31")  # of 250 MB, hence no part of the extra `dev`
    session.run("mypy")
    session.run("basedpyright", "-p", "tests/typing/pyright.json")


@nox.session(python=OLDEST)
def docs(session: nox.Session) -> None:
    """Build the documentation into `site/`; a warning is an error."""
    _install(session)
    session.run("mkdocs", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session(python=OLDEST)
def pages(session: nox.Session) -> None:
    """Run each page in an environment with only the extras that it names; an argument selects pages by a part of their names."""
    _install(session)
    session.run("python", "tests/fresh_pages.py", *session.posargs)


@nox.session(python=OLDEST)
def bench(session: nox.Session) -> None:
    """Run the benchmarks."""
    session.install("-e", ".[dev,peers]")
    session.run("python", "-m", "pytest", "-n", "0", "-m", "bench", *session.posargs)


@nox.session(python=OLDEST)
def sqlite(session: nox.Session) -> None:
    """Run contract and property tests on a newer SQLite than Python's, with bodies as text and as JSONB."""
    _install(session)
    chosen = ("-k", "sqlite", "tests/contract", "tests/property", *session.posargs)
    newer = ("python", "tests/newer_sqlite.py", "-m", "pytest", *chosen)
    session.run(*newer)
    session.run(*newer, env={"COLLECTIONS_STORE_TEST_JSONB": "1"})


@nox.session(python=OLDEST)
def postgres(session: nox.Session) -> None:
    """Run contract tests on each PostgreSQL of the machine, such as Debian's 15, and on the one of the wheel."""
    _install(session)
    session.run("python", "tests/each_postgres.py", *session.posargs)


@nox.session(python=OLDEST)
def poolers(session: nox.Session) -> None:
    """Run contract tests through the tests' own transaction pooler, and through PgBouncer if it is installed."""
    _install(session)
    session.run("python", "tests/each_pooler.py", *session.posargs)


@nox.session(python=OLDEST)
def replicas(session: nox.Session) -> None:
    """Run contract tests with stores that read from a streaming replica, and 10,000 reads after writes."""
    _install(session)
    session.run("python", "tests/each_replica.py", *session.posargs)
    reads = ("-k", "stale", "tests/faults/test_replica_reads.py")
    session.run("python", "-m", "pytest", "--whole-matrix", "-n", "0", *reads)


@nox.session(python=OLDEST)
def citus(session: nox.Session) -> None:
    """Run contract tests on the coordinator of Citus that COLLECTIONS_STORE_TEST_CITUS_URL names."""
    if "COLLECTIONS_STORE_TEST_CITUS_URL" not in os.environ:
        session.skip("COLLECTIONS_STORE_TEST_CITUS_URL is not set")
    _install(session)
    tests = ("-k", "postgresql or citus", "tests/contract", *session.posargs)
    session.run("python", "-m", "pytest", *tests)


@nox.session(python=OLDEST)
def matrix(session: nox.Session) -> None:
    """Run all tests on each backend, both sync and async; the test command alternates."""
    _install(session)
    session.run("python", "-m", "pytest", "--whole-matrix", *session.posargs)


@nox.session(python=OLDEST)
def soak(session: nox.Session) -> None:
    """Run the tests that take minutes."""
    _install(session)
    session.run("python", "-m", "pytest", "-m", "soak", *session.posargs)


@nox.session(python=OLDEST)
def failover(session: nox.Session) -> None:
    """Let PostgreSQL servers fail while 20 threads and 64 tasks write; `tests` includes a short form."""
    _install(session)
    which = ("-m", "soak", "-n", "0", "-s", "tests/faults/test_failover.py")
    session.run("python", "-m", "pytest", *which, *session.posargs)


@nox.session(name="hosts-smskillsdk", python=PYTHONS)
def hosts_smskillsdk(session: nox.Session) -> None:
    """Test the integration with Soul Machines' SDK, with the SDK; `tests` includes it."""
    _install(session)
    session.run("python", "-m", "pytest", "tests/integrations/test_smskillsdk.py", *session.posargs)


@nox.session(name="hosts-opsdroid", python=PYTHONS)
def hosts_opsdroid(session: nox.Session) -> None:
    """Test the integration with opsdroid; `tests` includes it."""
    _install(session)
    session.run("python", "-m", "pytest", "tests/integrations/test_opsdroid.py", *session.posargs)


@nox.session(name="hosts-fastmcp", python=PYTHONS)
def hosts_fastmcp(session: nox.Session) -> None:
    """Test the integration with FastMCP and py-key-value; `tests` includes it."""
    _install(session)
    session.run("python", "-m", "pytest", "tests/integrations/test_key_value.py", *session.posargs)


@nox.session(name="hosts-open-aea", python=PYTHONS)
def hosts_open_aea(session: nox.Session) -> None:
    """Test the integration with AEA, with Valory's; `tests` includes it."""
    _install(session)
    session.run("python", "-m", "pytest", *AEA_TESTS, *session.posargs)


@nox.session(name="hosts-aea", python=OLDEST)
def hosts_aea(session: nox.Session) -> None:
    """Test the integration with Fetch.ai's AEA in an environment of its own; `tests` includes a part."""
    _install(session)
    session.run(
        "python",
        "-m",
        "pytest",
        "tests/integrations/test_fetchai.py",
        *session.posargs,
        env={"COLLECTIONS_STORE_TEST_HOSTS": "all"},
    )


@nox.session(name="hosts-agent-framework", python=PYTHONS)
def hosts_agent_framework(session: nox.Session) -> None:
    """Test the integration with Microsoft Agent Framework; `tests` includes it."""
    _install(session)
    tests = "tests/integrations/test_agent_framework.py"
    session.run("python", "-m", "pytest", tests, *session.posargs)


@nox.session(name="hosts-google-adk", python=PYTHONS)
def hosts_google_adk(session: nox.Session) -> None:
    """Test the integration with Google ADK, also with ADK's own tests, from its repository; `tests` includes a part."""
    _install(session)
    session.run(
        "python",
        "-m",
        "pytest",
        "tests/integrations/test_google_adk.py",
        *session.posargs,
        env={"COLLECTIONS_STORE_TEST_HOSTS": "all"},
    )


@nox.session(name="hosts-langchain", python=PYTHONS)
def hosts_langchain(session: nox.Session) -> None:
    """Test the integration with LangChain; `tests` includes it."""
    _install(session)
    session.run("python", "-m", "pytest", "tests/integrations/test_langchain.py", *session.posargs)


@nox.session(name="hosts-llama-index", python=PYTHONS)
def hosts_llama_index(session: nox.Session) -> None:
    """Test the integration with LlamaIndex; `tests` includes a part."""
    _install(session)
    session.run(
        "python",
        "-m",
        "pytest",
        "tests/integrations/test_llama_index.py",
        *session.posargs,
        env={"COLLECTIONS_STORE_TEST_HOSTS": "all"},
    )


@nox.session(name="hosts-mcp", python=PYTHONS)
def hosts_mcp(session: nox.Session) -> None:
    """Test the integration with the MCP SDK; `tests` includes it, without the SDK's own tests."""
    _install(session)
    session.run(
        "python",
        "-m",
        "pytest",
        "tests/integrations/test_mcp_events.py",
        *session.posargs,
        env={"COLLECTIONS_STORE_TEST_HOSTS": "all"},
    )


@nox.session(name="hosts-openai-agents", python=PYTHONS)
def hosts_openai_agents(session: nox.Session) -> None:
    """Test the integration with the OpenAI Agents SDK, and run the SDK's own tests; `tests` includes a part."""
    _install(session)
    session.run(
        "python",
        "-m",
        "pytest",
        "tests/integrations/test_openai_agents.py",
        *session.posargs,
        env={"COLLECTIONS_STORE_TEST_HOSTS": "all"},
    )


@nox.session(name="hosts-langgraph", python=PYTHONS)
def hosts_langgraph(session: nox.Session) -> None:
    """Test the integration with LangGraph in an environment of its own; `tests` includes a part."""
    _install(session)
    session.run(
        "python",
        "-m",
        "pytest",
        "tests/integrations/test_langgraph.py",
        *session.posargs,
        env={"COLLECTIONS_STORE_TEST_HOSTS": "all"},
    )


@nox.session(python=PYTHONS)
def package(session: nox.Session) -> None:
    """Build the sdist and the wheel, check both, and run the demo from the wheel in a fresh environment."""
    session.install("build", "twine")
    folder = Path(session.create_tmp()).resolve()
    built, fresh = folder / "dist", folder / "venv"
    session.run("python", "-m", "build", "--outdir", str(built), ".", silent=True)
    wheel = max(built.glob("*.whl"), key=lambda path: path.stat().st_mtime)
    session.run("python", "-m", "twine", "check", "--strict", *map(str, built.glob("*")))
    session.run("python", "-m", "venv", "--clear", str(fresh))
    programs = fresh / Path(session.bin).name
    session.chdir(folder)  # away from the checkout, which must not be what is imported
    session.run(
        str(programs / "python"), "-m", "pip", "install", "-q", f"{wheel}[cli]", external=True
    )
    session.run(str(programs / "collections-store"), "demo", external=True)


def _install(session: nox.Session) -> None:
    session.install("-e", ".[dev]")
