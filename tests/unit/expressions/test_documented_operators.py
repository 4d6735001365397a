"""The tables of operators, and the pages about them."""

import re
from pathlib import Path

from collections_store.aggregation.accumulators import ACCUMULATORS
from collections_store.aggregation.parser import UNSUPPORTED_ACCUMULATORS, UNSUPPORTED_STAGES
from collections_store.expressions.operators import OPERATORS, UNSUPPORTED
from collections_store.expressions.parser import READERS
from collections_store.query import conditions, parser

DOCS = Path(__file__).parents[3] / "docs" / "reference"


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\$[a-z][A-Za-z0-9]+", text))


def test_every_operator_is_in_a_table_of_the_page() -> None:
    text = (DOCS / "aggregation.md").read_text(encoding="utf-8")
    accumulators, expressions = text.split("### Group\n")[1].split("\n## Expressions\n")
    assert not ACCUMULATORS.keys() - names_in(accumulators.split("### Unwind")[0])
    assert not {*OPERATORS, *READERS} - names_in(expressions.split("\n## Metadata\n")[0])


def test_the_page_lists_what_is_not_supported() -> None:
    text = (DOCS / "conformance.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| ([a-z `$]+) \| (`\$\w+`.*) \|$", text, re.MULTILINE)
    assert {kind: names_in(row) for kind, row in listed} == {
        "filters": conditions.UNSUPPORTED,
        "expressions": UNSUPPORTED,
        "accumulators and window functions": UNSUPPORTED_ACCUMULATORS,
        "stages": UNSUPPORTED_STAGES,
    }


def test_unsupported_filter_operators_are_not_implemented() -> None:
    assert not conditions.UNSUPPORTED & parser.OPERATORS
