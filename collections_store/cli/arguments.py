"""Arguments and options that are JSON, fields and sort orders.

A field is a text with dots, `address.city`; in JSON also the list of its keys, which may hold dots
themselves. An order is `age`, `age:-1`, `age:desc` or `-age`, or in JSON a mapping or a list:
`{"age": -1, "name": 1}`, `[["age", -1], "name"]`, `[[["a.b", "c"], -1]]`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

import click

from .. import Collection, Document, InvalidFilter, InvalidSort, Path
from ..errors import shortened
from .exits import Exit, Failure
from .files import MAX_LINE, BadItem, parse_json, parse_line

Pairs: TypeAlias = list[tuple[str | Path, int]]
Refusal: TypeAlias = Callable[[str, str], Exception]
"""Makes an error of a place and a problem: `InvalidSort` and its sisters."""

_DIRECTIONS: Final = {"1": 1, "asc": 1, "-1": -1, "desc": -1}
_IN_JSON: Final = '. In JSON a field may be any string: {"a:b": -1}'


def is_json(text: str) -> bool:
    """Return whether an argument is JSON: a field that begins so must be written in JSON, too."""
    return text[:1] in {"{", "["}


def pair_of(text: str, refuse: Refusal) -> tuple[str | Path, int]:
    """Read a field: as it is, `-` before it, or a direction after a colon; raises what `refuse` makes."""
    field, colon, direction = text.rpartition(":")
    if colon and direction not in _DIRECTIONS:
        problem = f"the direction is one of {', '.join(_DIRECTIONS)}, got {shortened(direction)}"
        raise refuse(text, problem + _IN_JSON)
    if colon and field.startswith("-"):
        raise refuse(text, "give the direction before the field or behind it, not both" + _IN_JSON)
    if colon:
        return field, _DIRECTIONS[direction]
    return (text[1:], -1) if text.startswith("-") else (text, 1)


def pairs_of(order: Any, refuse: Refusal) -> Pairs:
    """Read an order in JSON; raises what `refuse` makes of what is none."""
    if isinstance(order, dict):
        return [_pair(field, direction, refuse) for field, direction in order.items()]
    if isinstance(order, list):
        return [_element(each, refuse) for each in order]
    raise refuse("", f"give a mapping, or a list of fields and pairs, not {shortened(order)}")


def field_of(value: Any, refuse: Refusal) -> str | Path:
    """Read a field in JSON: a text with dots, or a list of keys; raises what `refuse` makes."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(key, str) for key in value):
        return Path(*value)
    raise refuse("", f"{shortened(value)} is neither a field nor a list of keys")


def _element(value: Any, refuse: Refusal) -> tuple[str | Path, int]:
    if isinstance(value, str):
        return value, 1
    if isinstance(value, list) and len(value) == 2:
        return _pair(value[0], value[1], refuse)
    raise refuse("", f"{shortened(value)} is no field and no pair of field and direction")


def _pair(field: Any, direction: Any, refuse: Refusal) -> tuple[str | Path, int]:
    named = field_of(field, refuse)
    if isinstance(direction, bool) or not isinstance(direction, int) or abs(direction) != 1:
        raise refuse(str(named), f"the direction is 1 or -1, not {shortened(direction)}")
    return named, direction


F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Question:
    """What `find` and `list` are asked."""

    filter: Any = None
    sort: Pairs | None = None
    skip: int = 0
    limit: int | None = None
    projection: Any = None

    def documents(self, collection: Collection) -> Iterable[Document]:
        """Return the answer: in natural order, without a limit, in constant memory."""
        if self.sort or self.limit is not None or self.skip > sys.maxsize:
            window: dict[str, Any] = {"skip": self.skip, "limit": self.limit}
            return collection.find(
                self.filter, sort=self.sort, projection=self.projection, **window
            )
        found = collection.stream(self.filter, projection=self.projection)
        return islice(found, self.skip, None)

    def count(self, collection: Collection) -> int:
        """Return how many objects the answer has."""
        left = max(0, collection.count(self.filter) - self.skip)
        return left if self.limit is None else min(left, self.limit)


def sort_option(command: F) -> F:
    """Give a command the option `--sort`."""
    option = click.option(
        "--sort",
        multiple=True,
        metavar="FIELD",
        help="Order by FIELD; FIELD:desc or FIELD:-1 for descending. Again for what is equal in it. Or JSON, "
        'for any field: {"age": -1, "name": 1} or [[["a.b", "c"], -1]].',
    )
    return option(command)


def window_options(command: F) -> F:
    """Give a command the options `--skip` and `--limit`."""
    skip = click.option(
        "--skip", type=click.IntRange(0), default=0, metavar="N", help="Leave out the first N."
    )
    limit = click.option(
        "--limit", type=click.IntRange(0), metavar="N", help="At most so many objects."
    )
    return skip(limit(command))


def read_json(text: str | None, what: str) -> Any:
    """Read a JSON argument, or standard input in its place."""
    try:
        if text in {None, "-"}:
            return parse_line(sys.stdin.buffer.read(MAX_LINE + 1))
        return parse_json(str(text).encode())
    except BadItem as error:
        raise Failure(f"{what} is {error}", Exit.BAD_INPUT) from error
    except OSError as error:
        raise Failure(f"standard input: {error.strerror or error}", Exit.FAILED) from error
    except UnicodeEncodeError as error:
        raise Failure(f"{what} is not Unicode", Exit.BAD_INPUT) from error


def read_order(texts: Iterable[str], refuse: Refusal = InvalidSort, what: str = "--sort") -> Pairs:
    """Read an order from all its parts; raises what `refuse` makes of what is none."""
    pairs: Pairs = []
    for text in texts:
        pairs += (
            pairs_of(read_json(text, what), refuse) if is_json(text) else [pair_of(text, refuse)]
        )
    return pairs


def read_field(text: str) -> str | Path:
    """Read a field, or the list of its keys in JSON."""
    return field_of(read_json(text, "FIELD"), InvalidFilter) if is_json(text) else text


def read_projection(fields: str | None, projection: str | None) -> Any:
    """Return which parts of the bodies are wanted; None: all."""
    if fields is not None and projection is not None:
        raise click.UsageError("--fields and --projection say the same: give one of them")
    if projection is not None:
        return read_json(projection, "--projection")
    return None if fields is None else fields.split(",")
