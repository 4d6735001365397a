"""The tables of operators, and the page about them."""

import re
from pathlib import Path

from collections_store.aggregation.accumulators import ACCUMULATORS
from collections_store.expressions.operators import OPERATORS

DOCS = Path(__file__).parents[3] / "docs" / "reference"


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\$[a-z][A-Za-z0-9]+", text))


def test_every_operator_is_in_a_table_of_the_page() -> None:
    text = (DOCS / "aggregation.md").read_text(encoding="utf-8")
    accumulators, expressions = text.split("### Group\n")[1].split("\n## Expressions\n")
    assert not ACCUMULATORS.keys() - names_in(accumulators.split("### Unwind")[0])
    assert not OPERATORS.keys() - names_in(expressions.split("\n## Metadata\n")[0])
