"""What commands are asked: the arguments and options that are JSON, fields and orders."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import click

from .. import Collection, Document, InvalidFilter, InvalidSort, Path
from .exits import Exit, Failure
from .fields import Pairs, Refusal, field_of, is_json, pair_of, pairs_of
from .reading import BadItem, parse_json

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
        if self.sort or self.limit is not None:
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
        help="Order by FIELD, or FIELD:-1 for descending; again for what is equal in it. Or JSON, "
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
            return parse_json(sys.stdin.buffer.read())
        return parse_json(str(text).encode())
    except BadItem as error:
        raise Failure(f"{what} is {error}", Exit.BAD_INPUT) from error
    except UnicodeEncodeError as error:
        raise Failure(f"{what} is not Unicode", Exit.BAD_INPUT) from error


def read_order(texts: Iterable[str], refuse: Refusal = InvalidSort, what: str = "--sort") -> Pairs:
    """Read an order from all its parts; raises what `refuse` makes of what is none."""
    pairs: Pairs = []
    for text in texts:
        pairs += pairs_of(read_json(text, what), refuse) if is_json(text) else [pair_of(text)]
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
