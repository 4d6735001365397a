"""The tables of operators, and the pages about them."""

import re
from pathlib import Path

from collections_store.aggregation.accumulators import ACCUMULATORS
from collections_store.aggregation.table import STAGES
from collections_store.aggregation.windows import FUNCTIONS
from collections_store.expressions.operators import OPERATORS
from collections_store.query import parser
from collections_store.update import operators

DOCS = Path(__file__).parents[3] / "docs" / "reference"


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\$[a-z][A-Za-z0-9]+", text))


def section(page: str, begin: str, end: str) -> set[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return names_in(text.split(f"{begin}\n")[1].split(f"\n{end}\n")[0])


def test_every_operator_is_on_its_page() -> None:
    page = "aggregation.md"
    assert not STAGES.keys() - section(page, "## Stages", "### Project, addFields, unset")
    assert not ACCUMULATORS.keys() - section(page, "### Group", "### Buckets")
    assert not FUNCTIONS.keys() - section(page, "### Windows", "### Fill and densify")
    assert not OPERATORS.keys() - section(page, "## Expressions", "## Metadata")
    filters = names_in((DOCS / "filters.md").read_text(encoding="utf-8"))
    assert not (parser.OPERATORS | parser.TOP_LEVEL) - filters
    updates = names_in((DOCS / "updates.md").read_text(encoding="utf-8"))
    assert not {*operators.OPERATORS, *operators.MODIFIERS} - updates
