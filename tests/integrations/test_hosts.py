"""Every host has an extra, a page and a nox session that runs its tests, and is imported only by name."""

import re
import tomllib

import pytest
from pages import DOCS, ROOT, blocks, runs

EXTRAS = {
    "aea": "aea",
    "agent-framework": "agent-framework",
    "crewai": "crewai",
    "fastmcp": "key-value",
    "google-adk": "google-adk",
    "haystack": "haystack",
    "langchain": "langchain",
    "langgraph": "langgraph",
    "llama-index": "llama-index",
    "mcp": "mcp",
    "mem0": "mem0",
    "openai-agents": "openai-agents",
    "opsdroid": "opsdroid",
    "soul-machines": "smskillsdk",
}
"""The packages of hosts, by page; kdeps is not written in Python, and has none."""
PAGES = {name: DOCS / "how-to" / f"{name}.md" for name in (*EXTRAS, "kdeps")}
SESSIONS = {
    "hosts-aea",
    "hosts-agent-framework",
    "hosts-crewai",
    "hosts-fastmcp",
    "hosts-google-adk",
    "hosts-haystack",
    "hosts-langchain",
    "hosts-langgraph",
    "hosts-llama-index",
    "hosts-mcp",
    "hosts-mem0",
    "hosts-openai-agents",
    "hosts-open-aea",
    "hosts-opsdroid",
    "hosts-smskillsdk",
}


def test_every_host_has_a_page() -> None:
    assert all(page.is_file() for page in PAGES.values())


@pytest.mark.parametrize("page", sorted(PAGES))
def test_its_page_runs_and_lists_the_differences(page: str) -> None:
    text = PAGES[page].read_text(encoding="utf-8")
    assert any(map(runs, blocks(PAGES[page])))
    assert re.search(r"^## Differences from ", text, re.MULTILINE)


@pytest.mark.parametrize(
    "page",
    [
        "agent-framework",
        "google-adk",
        "langchain",
        "langgraph",
        "llama-index",
        "mcp",
        "openai-agents",
    ],
)
def test_pages_of_agent_frameworks_have_one_structure(page: str) -> None:
    text = PAGES[page].read_text(encoding="utf-8")
    assert f"For PostgreSQL install `collections-store[{EXTRAS[page]},postgresql]`" in text
    ends = re.findall(r"^## (What is stored|Differences|Speed)\b", text, re.MULTILINE)
    assert list(dict.fromkeys(ends)) == ["What is stored", "Differences", "Speed"]
    assert re.search("`nox -s bench(-hosts`| -- tests/)", text[text.index("## Speed") :])


@pytest.mark.parametrize("page", sorted(EXTRAS))
def test_its_extra_is_optional(page: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    [everything] = extras["all"]
    assert extras[EXTRAS[page]]
    assert EXTRAS[page] not in everything
    shown = f"pip install 'collections-store[{EXTRAS[page]}]'"
    assert shown in PAGES[page].read_text(encoding="utf-8")


def test_every_host_has_a_nox_session_with_existing_tests() -> None:
    noxfile = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    added = re.findall(
        r'^_add_session\("([^"]+)", "[^"]+", "[^"]+", (.*)\)$', noxfile, re.MULTILINE
    )
    assert {f"hosts-{name}" for name, _ in added} == SESSIONS
    parts = {part for _, parts in added for part in re.findall(r'"(\w+)"', parts)}
    assert all((ROOT / "tests" / "integrations" / f"test_{part}.py").is_file() for part in parts)
