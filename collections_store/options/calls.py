"""The options of a call besides the arguments of the method: passed by a caller, and validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, TypedDict

from ..errors import InvalidOption, shortened
from ..expressions.collation import Collation
from .checks import check_known

MAX_COMMENT: Final = 256
"""Characters of a comment: PostgreSQL shows the first 1,024 bytes of a statement."""


class CallOptions(TypedDict, total=False):
    """The options that a call of most methods of a collection takes besides its own arguments. None leaves an option out.

    * `comment`: a string of up to 256 printable characters. Each statement of the call has the comment, so the database's
      logs and views show it, and so does the `OperationRecord`. Each comment is a statement of its own to the caches of
      the database and its driver: use few different comments.
    * `collation`: the rules by which strings compare, by default by code point: a mapping with the `locale`, and MongoDB's
      options `strength` (1 to 5), `caseLevel`, `caseFirst`, `numericOrdering`, `alternate`, `maxVariable`, `normalization`
      and `backwards`. Requires the extra `collation`. See [Collation](../how-to/collation.md).
    """

    comment: str | None
    collation: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class CallContext:
    """Validated `CallOptions`."""

    comment: str | None = None
    collation: Collation | None = None

    @classmethod
    def parse(cls, options: CallOptions) -> Self:
        """Validate the options of a call; raises `InvalidOption`, and `TypeError` for an unknown option."""
        check_known("the call", options, CallOptions)
        given: dict[str, Any] = {**options}
        given["collation"] = Collation.parse(options.get("collation"))
        call = cls(**given)
        if call.comment is not None:
            _check_comment(call.comment)
        return call


PLAIN: Final = CallContext()
"""A call without options."""


def _check_comment(comment: Any) -> None:
    if isinstance(comment, str) and len(comment) <= MAX_COMMENT and comment.isprintable():
        return
    problem = f"must be a string of up to {MAX_COMMENT} printable characters"
    raise InvalidOption("comment", f"{problem}, got {shortened(comment)}")
