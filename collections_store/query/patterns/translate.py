"""What Python's `re` calls a pattern."""

from __future__ import annotations

import re
from typing import Final

from .parser import (
    EVERY,
    LAST,
    Alternatives,
    Anchor,
    At,
    Atomic,
    Back,
    Chars,
    If,
    Look,
    Node,
    Ranges,
    Repeat,
    Sequence,
    Subpattern,
    without,
)

_ANCHORS: Final[dict[Anchor, str]] = {
    "start": r"\A",
    "end": r"\Z",
    "last line": "$",
    "line start": r"(?m:^)(?!(?<=\n)\Z)",  # not behind a newline that ends the text
    "line end": "(?m:$)",
    "word": r"(?a:\b)",
    "inside": r"(?!(?a:\b))",  # what `\B` says of an empty text depends on Python's version
}
_GREEDS: Final = {"greedy": "", "lazy": "?"}


def translated(node: Node) -> re.Pattern[str]:
    """Return the pattern for `re`."""
    return re.compile(_source(node))


def _source(node: Node) -> str:
    match node:
        case Chars(ranges):
            return _set(ranges)
        case Sequence(parts):
            return "".join(map(_part, parts))
        case Alternatives(parts):
            return "|".join(map(_source, parts))
        case Repeat():
            return _repeat(node)
        case Subpattern(part):
            return f"({_source(part)})"
        case Atomic(part):
            return f"(?>{_source(part)})"
        case Look():
            return _look(node)
        case At(anchor):
            return _ANCHORS[anchor]
        case Back(number):
            return f"(?:\\{number})"
        case If(number, yes, no):
            return f"(?({number}){_part(yes)}|{_part(no)})"


def _part(node: Node) -> str:
    source = _source(node)
    return f"(?:{source})" if isinstance(node, Alternatives) else source


def _repeat(node: Repeat) -> str:
    whole = isinstance(node.part, Chars | Subpattern | Atomic)
    part = _source(node.part) if whole else f"(?:{_source(node.part)})"
    least, most = node.least, node.most
    times = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get(
        (least, most), f"{{{least},{'' if most is None else most}}}"
    )
    if node.greed == "possessive":
        return f"(?>{part}{times})"
    return f"{part}{times}{_GREEDS[node.greed]}"


def _look(node: Look) -> str:
    direction, sign = "<" if node.behind else "", "!" if node.negative else "="
    return f"(?{direction}{sign}{_source(node.part)})"


def _set(ranges: Ranges) -> str:
    if ranges == EVERY:
        return "(?s:.)"
    if not ranges:
        return "(?!)"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _character(ranges[0][0])
    if ranges[-1][1] == LAST:
        return f"[^{''.join(map(_range, without(ranges)))}]"
    return f"[{''.join(map(_range, ranges))}]"


def _range(pair: tuple[int, int]) -> str:
    low, high = pair
    return _character(low) if low == high else f"{_character(low)}-{_character(high)}"


def _character(code: int) -> str:
    if code < 128 and chr(code).isalnum():
        return chr(code)
    if 32 <= code < 127:
        return f"\\{chr(code)}"
    return f"\\U{code:08x}"
