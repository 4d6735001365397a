"""Searches by words, and text indexes as arguments and in exports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from .. import Path
from .arguments import (
    Target,
    collection_argument,
    on_database,
    output_option,
    read_field,
    read_json,
)
from .output import Format, to_text, write_rows

if TYPE_CHECKING:
    from .. import SearchResult, TextIndex


@click.command()
@collection_argument
@click.argument("words", nargs=-1, required=True)
@click.option(
    "--filter", "filter", metavar="JSON", help="Find only documents that match this filter."
)
@click.option(
    "--offset", type=click.IntRange(0), default=0, metavar="N", help="Leave out the first N."
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="N",
    help="Print at most N documents.",
)
@click.option("--highlight", is_flag=True, help="Print the passages with the words, too.")
@output_option("jsonl", "json", "table")
@on_database
def search(
    target: Target,
    collection: str,
    words: tuple[str, ...],
    *,
    filter: str | None,
    output: Format,
    **options: Any,
) -> None:
    """Print the documents with all WORDS, the best first. The collection needs a text index: `index create --text`.

    A word may be a "phrase", the beginning* of a word, one OR another, an -exclusion, or in a field:word:

    \b
      collections-store search notes -- tea '"green tea"' 'chin*' -cake
    """
    chosen = None if filter is None else read_json(filter, "--filter")
    with target.to_read() as store:
        found = target.collection(store, collection)
        page = found.search(" ".join(words), filter=chosen, **options)
    rows = [
        (each.id, f"{each.score:.3f}", "\n".join(each.snippets.values()) or to_text(each.body))
        for each in page
    ]
    columns = {name: {"overflow": "fold"} for name in ("id", "score", "document")}
    write_rows(map(_as_json, page), output, columns, rows)


def _as_json(result: SearchResult) -> dict[str, Any]:
    line = {"id": result.id, "score": result.score, "body": result.body}
    return {**line, "snippets": dict(result.snippets)} if result.snippets else line


def read_weights(fields: Sequence[str]) -> dict[str | Path, float]:
    """Parse the fields of a text index, each with an optional weight after a colon."""
    weights: dict[str | Path, float] = {}
    for text in fields:
        name, colon, number = text.rpartition(":")
        try:
            weights[read_field(name if colon else text)] = float(number) if colon else 1
        except ValueError:
            weights[read_field(text)] = 1
    return weights


def text_index_as_json(index: TextIndex) -> dict[str, Any]:
    """Return the definition of a text index; a field is the list of its keys, with its weight."""
    fields = [[list(path.keys), weight] for path, weight in index.weights]
    return {"name": index.name, "text": fields, "language": index.language}


def read_text_index(value: dict[str, Any]) -> TextIndex:
    """Parse a definition of `text_index_as_json`; raises `InvalidIndex`, and `ValueError` for another form."""
    from .. import TextIndex

    weights = {Path(*keys): weight for keys, weight in value["text"]}
    return TextIndex.parse(weights, language=value.get("language"), name=value.get("name"))
