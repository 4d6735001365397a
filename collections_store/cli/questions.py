"""The commands `distinct` and `explain`: what a field holds, and how a question is answered."""

from __future__ import annotations

import re
from typing import Any, Literal

import click

from .. import Explanation, Filter, Path
from .arguments import read_field, read_json, read_order, sort_option, window_options
from .output import binary_output, emit, to_text, write_lines
from .target import Target, database_options, require

_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}


@click.command()
@click.argument("collection")
@click.argument("field")
@click.argument("filter", required=False, default="{}")
@click.option(
    "--output",
    type=click.Choice(["jsonl", "json"]),
    default="jsonl",
    show_default=True,
    help="JSON lines, or one JSON array.",
)
@database_options
@click.pass_obj
def distinct(
    target: Target, collection: str, field: str, filter: str, *, output: Literal["jsonl", "json"]
) -> None:
    """Print the different values of FIELD in the objects that match FILTER.

    They come in MongoDB's order of values: of an array its elements, of a missing field nothing.
    FIELD is dotted, or the list of its keys in JSON, where keys hold dots:

    \b
      collections-store distinct people address.city '{"age": {"$gte": 30}}'
      collections-store distinct people '["a.b", "c"]'
    """
    path, asked = read_field(field), read_json(filter, "FILTER")
    with target.to_read() as store:
        values = require(store, collection).distinct(path, asked)
    write_lines(map(to_text, values), binary_output(), array=output == "json")


@click.command()
@click.argument("collection")
@click.argument("filter", required=False, default="{}")
@sort_option
@window_options
@click.option("--json", "as_json", is_flag=True, help="As one line of JSON, with the SQL.")
@database_options
@click.pass_obj
def explain(
    target: Target,
    collection: str,
    filter: str,
    *,
    sort: tuple[str, ...],
    skip: int,
    limit: int | None,
    as_json: bool,
) -> None:
    """Tell how find would answer: by which indexes, who sorts, and which index would help.

    The plan of the database is below it. Nothing but the plan is computed.
    """
    asked, order = read_json(filter, "FILTER"), read_order(sort)
    with target.to_read() as store:
        found = store.get_sync_collection(collection)
        told = found.explain(asked, sort=order, skip=skip, limit=limit)
    emit(to_text(_as_json(told)) if as_json else str(told))


def _as_json(told: Explanation) -> dict[str, Any]:
    return {
        "in_sql": _filter(told.in_sql),
        "in_matcher": None if told.in_matcher is None else _filter(told.in_matcher),
        "indexes": list(told.indexes),
        "scans": told.scans,
        "order": told.order,
        "arrays": told.arrays,
        "advice": told.advice,
        "sql": told.sql,
        "parameters": {name: _plain(value) for name, value in told.parameters.items()},
        "plan": list(told.plan),
    }


def _filter(filter: Filter) -> Any:
    return _plain(filter.to_json())


def _key(key: str | Path) -> str:
    """Return a key as JSON has it: no key that came from there holds a dot."""
    return f"$body.{key}" if isinstance(key, Path) else key


def _plain(value: Any) -> Any:
    """Return JSON: regular expressions as filters spell them, and what else there may be in words."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case dict():
            return {_key(key): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case re.Pattern():
            options = "".join(name for name, flag in _FLAGS.items() if value.flags & flag)
            return {"$regex": value.pattern} | ({"$options": options} if options else {})
    return str(value)
