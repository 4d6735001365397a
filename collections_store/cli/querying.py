"""The commands `count`, `distinct` and `aggregate`, whose results are no documents."""

from __future__ import annotations

import sys
from typing import Any

import click

from .arguments import (
    Target,
    collation_option,
    collection_argument,
    field_argument,
    filter_argument,
    on_database,
    output_option,
    read_field,
    read_json,
)
from .documents import with_command
from .output import Format, emit, write_bodies, write_lines, write_values
from .spreadsheet import sheet_of_bodies


@click.command()
@collection_argument
@filter_argument
@collation_option
@on_database
def count(target: Target, collection: str, filter: str, *, collation: Any) -> None:
    """Print the number of documents that match FILTER.

    \b
      collections-store count people '{"age": {"$gte": 30}}'
    """
    query = read_json(filter, "FILTER")
    with target.to_read() as store:
        emit(str(target.collection(store, collection).count(query, collation=collation)))


@click.command()
@collection_argument
@field_argument
@filter_argument
@collation_option
@output_option("jsonl", "json")
@on_database
def distinct(
    target: Target, collection: str, field: str, filter: str, *, collation: Any, output: Format
) -> None:
    """Print the distinct values of FIELD in the documents that match FILTER.

    The values are in MongoDB's order. An array counts as its elements; a missing field has no value. FIELD is a
    dotted path, or in JSON a list of keys, which may contain dots:

    \b
      collections-store distinct people address.city '{"age": {"$gte": 30}}'
      collections-store distinct people '["a.b", "c"]'
    """
    path, query = read_field(field), read_json(filter, "FILTER")
    with target.to_read() as store:
        values = target.collection(store, collection).distinct(path, query, collation=collation)
    write_values(values, output)


@click.command()
@collection_argument
@click.argument("pipeline", required=False)
@collation_option
@output_option("jsonl", "json", "table", "csv")
@click.option(
    "--explain", is_flag=True, help="Print how the pipeline would run, and do not run it."
)
@on_database
def aggregate(
    target: Target,
    collection: str,
    pipeline: str | None,
    *,
    collation: Any,
    output: Format,
    explain: bool,
) -> None:
    """Run PIPELINE, a JSON array of MongoDB's stages, and print the results.

    Without PIPELINE, or with "-", the command reads PIPELINE from standard input. CSV is as of find:

    \b
      collections-store aggregate people '[{"$sortByCount": "$age"}]'
      collections-store aggregate people '[{"$sortByCount": "$age"}]' --explain
    """
    stages = read_json(pipeline, "PIPELINE")
    with target.to_read() as store:
        found = target.collection(store, collection)
        if explain:
            explanation = found.explain_aggregate(stages, collation=collation)
            emit(str(with_command(target, collection, explanation)))
            return
        results = found.aggregate(stages, collation=collation)
    if output == "csv":
        write_lines(sheet_of_bodies(results), sys.stdout.buffer, array=False)
    else:
        write_bodies(results, output)
