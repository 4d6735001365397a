"""The options of a call besides the arguments of the method: passed by a caller, and validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeAlias, TypedDict

from ..codec import Codec, decode
from ..codec.times import iso
from ..document import Anonymous, moment, now
from ..errors import InvalidBody, InvalidOption, InvalidSort, shortened
from ..expressions.collation import Collation, under
from ..expressions.evaluation import Scope
from ..expressions.nodes import Meta, Reference, evaluate, nodes_of
from ..expressions.parser import ExpressionParser
from ..query.index import read_keys
from ..query.sort import NATURAL, Sort, SortLike
from .checks import check_known

Hint: TypeAlias = str | Sort
"""The name or the keys of an index, that of the ids too; `NATURAL`: no index."""
MAX_COMMENT: Final = 256
"""Characters of a comment: PostgreSQL shows the first 1,024 bytes of a statement."""


class CallOptions(TypedDict, total=False):
    """The options that a call of most methods of a collection takes besides its own arguments. None leaves an option out.

    * `comment`: a string of up to 256 printable characters. Each statement of the call has the comment, so the database's
      logs and views show it, and so does the `OperationRecord`. Each comment is a statement of its own to the caches of
      the database and its driver: use few different comments.
    * `let`: variables for the expressions of filters (`$expr`), projections, pipelines and updates: `{"limit": 5}` makes
      `$$limit` 5. A name begins with a lower-case letter. A value is JSON or an expression of constants, `$$NOW` and
      the variables before it, evaluated once. A string that begins with `$` is an expression: write `{"$literal": "$5"}`. The
      cursor of a `page` goes with equal values only, so `$$NOW` is no value for pages: write it into the filter.
    * `hint`: the name or the keys of the index of fields to read by, `"_id_"` or `{"_id": 1}` for the index of the ids, or
      `{"$natural": 1}` for none. Without a sort, `find` returns documents in the order of the index. SQLite obeys if it
      decides the whole filter and the indexed fields hold no arrays. PostgreSQL uses no other index of fields, but may
      scan the collection or use the index over whole bodies. An index of arrays or a wildcard index serves its
      conditions as without a hint, and no other index of fields does. `stream` without a sort stays in natural order, and
      each batch reads the entries of the index again. An unknown or hidden index raises `InvalidOption`, as does a partial
      index whose condition the filter lacks.
    * `collation`: the rules by which strings compare, by default by code point: a mapping with the `locale`, and MongoDB's
      options `strength` (1 to 5), `caseLevel`, `caseFirst`, `numericOrdering`, `alternate`, `maxVariable`, `normalization`
      and `backwards`. Requires the extra `collation`, except `{"locale": "simple", "strength": 1 or 2}`, which ignores case, with
      strength 1 also accents. An index with the same collation serves strings. See [Collation](../how-to/collation.md).
    """

    comment: str | None
    let: Mapping[str, Any] | None
    hint: SortLike | None
    collation: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class CallContext:
    """Validated `CallOptions`."""

    comment: str | None = None
    let: Mapping[str, Any] = field(default_factory=dict)
    """The values of the variables."""
    hint: Hint | None = None
    time: int | None = None
    """The beginning of the call in microseconds, if `let` has variables."""
    collation: Collation | None = None

    @property
    def is_pure(self) -> bool:
        """Whether the options are in the arguments of operations already."""
        return self.comment is None and self.hint is None

    @classmethod
    def parse(cls, options: CallOptions, codec: Codec) -> Self:
        """Validate the options of a call; raises `InvalidOption`, `InvalidOperand`, and `TypeError` for an unknown option."""
        check_known("the call", options, CallOptions)
        comment, let, hint = options.get("comment"), options.get("let"), options.get("hint")
        if comment is not None:
            _check_comment(comment)
        wanted = None if hint is None else read_hint(hint)
        collation = Collation.parse(options.get("collation"))
        if let is None:
            return cls(comment, hint=wanted, collation=collation)
        time = now()
        return cls(comment, _evaluated(let, codec, time, collation), wanted, time, collation)


NO_OPTIONS: Final[CallOptions] = {}
PLAIN: Final = CallContext()
"""A call without options."""
_OF_DOCUMENTS: Final = {"CURRENT", "ROOT"}
"""The variables that have values for a document only."""


def read_hint(hint: Any) -> Hint:
    """Return the name or the keys of an index, or `NATURAL`; raises `InvalidOption`."""
    if isinstance(hint, str):
        return hint
    if isinstance(hint, Mapping) and dict(hint) == {"$natural": 1}:
        return NATURAL
    try:
        order = read_keys(hint)
    except InvalidSort:
        order = NATURAL
    if not order:
        must = "must name an index or its keys, or be {'$natural': 1}"
        raise InvalidOption("hint", f"{must}, got {shortened(hint)}")
    return order


def _check_comment(comment: Any) -> None:
    if isinstance(comment, str) and len(comment) <= MAX_COMMENT and comment.isprintable():
        return
    problem = f"must be a string of up to {MAX_COMMENT} printable characters"
    raise InvalidOption("comment", f"{problem}, got {shortened(comment)}")


def _evaluated(let: Any, codec: Codec, time: int, collation: Collation | None) -> dict[str, Any]:
    """Return the values of variables."""
    try:
        plain = decode(codec.encode(let))
    except InvalidBody as error:
        raise InvalidOption(f"let.{error.path}".rstrip("."), error.problem) from error
    values: dict[str, Any] = {}
    parser = ExpressionParser(InvalidOption)
    parser.check_nesting(plain, "let")
    for name in parser.variable_names(plain, "let"):
        within = ExpressionParser(InvalidOption, frozenset(values))
        expression = within.parse(plain[name], f"let.{name}")
        for node in nodes_of(expression):
            is_of_document = isinstance(node, Reference) and node.variable in _OF_DOCUMENTS
            if is_of_document or isinstance(node, Meta):
                problem = "must be of constants: it is evaluated once, before any document is read"
                raise InvalidOption(f"let.{name}", problem)
        variables = {"NOW": iso(moment(time)), **values}
        scope = Scope(Anonymous(None), variables, ordered=under(collation, True))
        values[name] = evaluate(expression, scope)
    return values
