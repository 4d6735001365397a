"""The reference page of differences from MongoDB, from the tables of operators and from the replayed cases.

`PYTHONPATH=tests python tests/conformance/conformance_page.py > docs/reference/conformance.md` writes the page; a test compares
the two.
"""

from collections.abc import Iterable

from conformance.test_conformance import EXPLAINED, LEFT_OUT, REPLAYED

from collections_store.aggregation.accumulators import ACCUMULATORS
from collections_store.aggregation.redact import DECISIONS
from collections_store.aggregation.table import STAGES
from collections_store.aggregation.windows import FUNCTIONS
from collections_store.expressions.language import LANGUAGE
from collections_store.expressions.operators import OPERATORS as EXPRESSIONS
from collections_store.expressions.parser import SYSTEM_VARIABLES
from collections_store.query.parser import OPERATORS as FILTERS
from collections_store.query.parser import TOP_LEVEL
from collections_store.update.operators import MODIFIERS
from collections_store.update.operators import OPERATORS as UPDATES

IMPLEMENTED: dict[str, set[str]] = {
    "filters": {*FILTERS, *TOP_LEVEL, "$comment"},
    "projections": {"$", "$elemMatch", "$slice", "$meta"},
    "updates": {*UPDATES, *MODIFIERS, "$", "$[]", "$[<identifier>]"},
    "stages": {*STAGES},
    "accumulators": {*ACCUMULATORS, "$count"},
    "window functions": {*FUNCTIONS},
    "expressions": {*EXPRESSIONS},
    "variables": {f"$${name}" for name in (*SYSTEM_VARIABLES, *DECISIONS, "NOW")},
}
"""The operators of each place, from the tables of the parsers."""

_INTRODUCTION = """\
# Differences from MongoDB

`tests/conformance` replays two published test suites of MongoDB's results, against the packages in plain Python
(`query`, `update`, `aggregation`), SQLite and PostgreSQL:

* the test suite of [montydb](https://github.com/davidlatwe/montydb) (BSD-3-Clause), which its authors compare with
  MongoDB 3.6 to 4.2;
* the tests of the [CRUD specification](https://github.com/mongodb/specifications), from MongoDB's driver for Python
  (Apache-2.0).

574 cases are about JSON values. The other cases need types that JSON lacks, or contradict
MongoDB itself. The files are beside the project, not in its repository; without the files the tests are skipped.
"""
_REPLAYING = """\
A case is left out only if the target lacks an operation of the case: `LACKING` in `tests/conformance/targets.py` lists
these operations, and a test checks the numbers above. Here the id is a string beside the body, so the `_id` of a case is
replayed as a field of the body (`$body._id`). Replacements omit this field, and so do comparisons with documents that
have no `_id`. A regular expression in extended JSON (`$regularExpression`) becomes a `re.Pattern`.

Where MongoDB's versions differ, the result is that of 8.2. So `{"a.b": null}` does not match a document whose `a` is an
empty array or an array of scalars, and a `$lookup` does not join such a document. Later versions of MongoDB do both.

## The language

The language is that of MongoDB 8.2. These operators are as in MongoDB:
"""
_DIFFERING = "These operators differ:\n"
_LACKING = """\
These operators are absent. Their error is "not supported"; that of a name which MongoDB lacks is "no such operator":
"""
_NEVER = """\
JavaScript will never be there, nor encrypted fields, and types that JSON lacks: ObjectId, Decimal128, binary data, timestamps. Geometry is
not there until someone needs it. There are no capped collections, time series and views. A [wildcard index](indexes.md#wildcards) has no projection and no
further fields. [Hiding an index](indexes.md#hidden) creates the database's index again. The pages of [filters](filters.md), [updates](updates.md) and [aggregation](aggregation.md) describe
each operator.

## Options of a call

`let` is as in MongoDB: a value is an expression that reads no document, evaluated once, in which the variables before it have values. `hint` of an index returns
all matching documents: a partial index whose condition the filter lacks is refused, where MongoDB leaves documents out. `{"$natural": -1}` is refused. `comment`
is a string, where MongoDB takes any value.

A [collation](../how-to/collation.md) has all of MongoDB's options. It is an option of a call, of a write request of a `bulk_write` and of an index: collections have none. Under a collation
`$merge` requires `on` with a unique index, where MongoDB also writes into a new collection by the ids. The locales and the order are those of the installed ICU. The locale `"simple"` also takes a strength of 1 or 2, which MongoDB refuses.
"""
_CASES = """\
## Differences and reasons

These cases have another result here, by intent. Most are about `field.$` in projections, which MongoDB
changed in 4.4: [projections](projections.md) follow the newer server. Some are about `_id`, which is
beside the body here. A test fails if one of these cases agrees with MongoDB, or if this table differs from the test's
own list.
"""


def reference() -> str:
    """Return the page."""
    differing = [
        (place, f"`{name}`", how)
        for place, part in LANGUAGE.items()
        for name, how in sorted(part.differing.items())
    ]
    lacking = [
        (place, _code(names.split()), why)
        for place, part in LANGUAGE.items()
        for why, names in part.lacking.items()
    ]
    parts = [
        _INTRODUCTION,
        _table("Target | Replayed | Left out", ((n, REPLAYED[n], LEFT_OUT[n]) for n in REPLAYED)),
        _REPLAYING,
        _table("In | Operators", ((n, _code(like(n))) for n in LANGUAGE)),
        _DIFFERING,
        _table("In | Operator | Difference", differing),
        _LACKING,
        _table("In | Operators | Reason", lacking),
        _NEVER,
        _CASES,
        _table("Case | Reason", ((f"`{case}`", reason) for case, reason in EXPLAINED.items())),
    ]
    return "\n".join(parts)


def like(place: str) -> list[str]:
    """Return the operators that are as MongoDB's."""
    return sorted(IMPLEMENTED[place] - LANGUAGE[place].differing.keys())


def _code(names: Iterable[str]) -> str:
    return " ".join(f"`{each}`" for each in names)


def _table(head: str, rows: Iterable[tuple[object, ...]]) -> str:
    lines = [head, " | ".join("---" for _ in head.split(" | "))]
    lines += [" | ".join(map(str, row)) for row in rows]
    return "".join(f"| {each} |\n" for each in lines)


if __name__ == "__main__":
    print(reference(), end="")
