"""Searches by words, and text indexes as arguments and in exports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from .output import Exit, Failure, Format, to_text, write_rows

if TYPE_CHECKING:
    from .. import Collection, SearchResult, TextIndex


@click.command()
@collection_argument
@click.argument("words", nargs=-1)
@click.option(
    "--like", metavar="ID", help="Find the documents whose vectors are near those of this document."
)
@click.option("--index", metavar="NAME", help="With --like: one of several vector indexes.")
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
@click.option(
    "--any",
    "any_word",
    is_flag=True,
    help="Find documents with any of WORDS, a text without operators.",
)
@click.option("--highlight", is_flag=True, help="Print the passages with the words, too.")
@output_option("jsonl", "json", "table")
@on_database
def search(
    target: Target,
    collection: str,
    words: tuple[str, ...],
    *,
    like: str | None,
    index: str | None,
    filter: str | None,
    any_word: bool,
    output: Format,
    **options: Any,
) -> None:
    """Print the documents with all WORDS, the best first. The collection needs a text index: `index create --text`.

    With --like the nearest documents come first, with the score of `index create --vector`. With WORDS as well, both
    rankings are fused.

    A word may be a "phrase", the beginning* of a word, one OR another, an -exclusion, or in a field:word:

    \b
      collections-store search notes -- tea '"green tea"' 'chin*' -cake
      collections-store search notes --any 'What was it about green tea?'
      collections-store search notes --like note-17 --limit 5
    """
    if not words and like is None:
        raise click.UsageError("needs WORDS, or --like")
    if any_word and not words:
        raise click.UsageError("--any goes with WORDS")
    if index is not None and like is None:
        raise click.UsageError("--index goes with --like")
    chosen = {} if filter is None else read_json(filter, "--filter")
    query = " ".join(words) or None
    by_words = {"filter": chosen, "match": "any" if any_word else "all", **options}
    with target.to_read() as store:
        found = target.collection(store, collection)
        page: Iterable[SearchResult]
        if like is None:
            page = found.search(query, **by_words)
        else:
            vector, index = _vector_of(found, like, index)
            by_words["filter"] = chosen = {"$and": [{"$id": {"$ne": like}}, chosen]}
            if query is None:
                page = _nearest(found, vector, index, chosen, **options)
            else:
                page = found.search(query, meaning=vector, index=index, **by_words)
    rows = [
        (each.id, f"{each.score:.3f}", "\n".join(each.snippets.values()) or to_text(each.body))
        for each in page
    ]
    columns = {name: {"overflow": "fold"} for name in ("id", "score", "document")}
    write_rows(map(_as_json, page), output, columns, rows)


def _nearest(
    found: Collection, vector: Any, index: str, filter: Any, *, limit: int, offset: int, **_: Any
) -> list[SearchResult]:
    return found.nearest(vector, offset + limit, filter=filter, index=index)[offset:]


def _vector_of(found: Collection, id: str, name: str | None) -> tuple[Any, str]:
    """Return the first vector of a document, and the name of its index."""
    from .. import VectorIndex

    every = [each for each in found.indexes() if isinstance(each, VectorIndex)]
    indexes = [each for each in every if name in {None, each.name}]
    if len(indexes) != 1:
        names = ", ".join(each.name for each in every) or "none: use index create --vector"
        problem = "has no such vector index" if name or not every else "needs --index"
        raise click.UsageError(f"{found.name} {problem}; there is {names}")
    [index] = indexes
    if index.model is not None:
        problem = f"the index {index.name} is of texts, which no command can embed"
        raise click.UsageError(f"--like needs an index of given vectors: {problem}")
    document = found.document(id)
    vectors = () if document is None else index.vectors(document.body)
    for _, vector in vectors:
        return vector, index.name
    problem = "no document" if document is None else f"no vector of the index {index.name} in"
    raise Failure(f"there is {problem} {id!r} in {found.name}", Exit.NO)


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
    definition = {"name": index.name, "text": fields, "language": index.language}
    return {**definition, "substring": True} if index.substring else definition


def read_text_index(value: dict[str, Any]) -> TextIndex:
    """Parse a definition of `text_index_as_json`; raises `InvalidIndex`, and `ValueError` for another form."""
    from .. import TextIndex

    weights = {Path(*keys): weight for keys, weight in value["text"]}
    options = {key: value[key] for key in ("language", "name", "substring") if key in value}
    return TextIndex.parse(weights, **options)
