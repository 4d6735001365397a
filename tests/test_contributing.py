"""CONTRIBUTING.md has a recipe for each usual change, and names only files, classes and functions that exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "collections_store"
RECIPES = re.compile(r"^\*\*([^*]+)\.\*\*(.*?)(?=^\*\*|^## |\Z)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w./*-]*(?:/[\w*-]*|\.(?:py|md|toml|json))")
NAMES = re.compile(r"((?:`[\w.]+`(?:, and |, | and )?)+)\s+(?:of|in)\s+`([\w./*-]+\.(?:py|md))`")
KINDS_OF_CHANGE = {
    "A command, or an option of a command", "A host: an integration with a framework", "A method of a collection",
    "A text of an error", "An error", "An option of a collection", "An option of an index", "An update operator",
    "The change feed", "The hook of operations",
}  # fmt: skip


def recipes() -> dict[str, str]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return dict(RECIPES.findall(text[: text.index("## Glossary")]))


def files(name: str) -> list[Path]:
    """Return the files that a page names: from the root, from the package, or by a file's name alone."""
    patterns = [name.rstrip("/")] if "/" in name else [name, f"tests/**/{name}", f"docs/**/{name}"]
    return [
        each for folder in (ROOT, PACKAGE) for pattern in patterns for each in folder.glob(pattern)
    ]


def named_files(text: str) -> Iterator[str]:
    for code in CODE.findall(text):
        if "://" not in code and not code.startswith((".venv", "$")):
            yield from (word for word in code.split() if FILE.fullmatch(word))


def test_each_usual_change_has_a_recipe() -> None:
    assert recipes().keys() >= KINDS_OF_CHANGE


@pytest.mark.parametrize("change", recipes())
def test_the_files_of_a_recipe_exist(change: str) -> None:
    missing = [name for name in named_files(recipes()[change]) if not files(name)]
    assert not missing


@pytest.mark.parametrize("change", recipes())
def test_a_recipe_names_what_its_files_have(change: str) -> None:
    """Such as "`OPERATORS` of `update/operators.py`"."""
    for names, file in NAMES.findall(recipes()[change]):
        texts = [each.read_text(encoding="utf-8") for each in files(file)]
        for name in CODE.findall(names):
            last = name.rpartition(".")[2]
            assert any(re.search(rf"\b{last}\b", text) for text in texts), f"{file} has no {name}"


def test_contributing_names_only_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert not [name for name in named_files(text) if not files(name)]
