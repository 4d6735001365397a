"""Relevance of searches on the dialogues of `shared/data`: recall and mean reciprocal rank of the first ten results.

Each dialogue is a document: the text of its turns, without one. The turn that is left out is a question, and its dialogue is
the only relevant document. It is the turn whose words fewest dialogues have: the sum of log(dialogues / dialogues with the
word) is the greatest. Its key words are the four rarest. Every eighth dialogue is asked for. `BENCH_REPORT=docs/explanation/search` writes the table and the
picture of the page.
"""

import gzip
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from backends import Backend
from benchmarks import charts
from benchmarks.measuring import REPORT
from dialogues.scripts import DATA

from collections_store import Collection, Store
from collections_store.search.words import words_of

wordllama = pytest.importorskip(
    "wordllama", reason="a small embedding model: pip install wordllama"
)
pytestmark = [
    pytest.mark.bench,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not DATA.is_file(), reason="the dialogues of shared/data are not here"),
]
ASKED, KEYS, FIRST, DIMENSIONS, CHUNK = 8, 4, 10, 256, 250
WHOLE = 10**6
"""Characters of a chunk that has any dialogue."""
BEGIN, END = "<!-- relevance -->", "<!-- relevance ends -->"


class Quality(NamedTuple):
    """The share of questions whose dialogue is among the first results, and the mean of 1 / its rank."""

    recall: float
    mrr: float


Qualities = dict[str, dict[str, Quality]]
"""By the search and the database."""


class Question(NamedTuple):
    """A turn, and its key words."""

    text: str
    keys: str


class Task(NamedTuple):
    """The texts of dialogues, and questions by the ids of their dialogues."""

    texts: dict[str, str]
    questions: dict[str, Question]


@pytest.fixture(scope="session")
def task() -> Task:
    with gzip.open(DATA) as lines:
        dialogues = {each["dialogue_id"]: each for each in map(json.loads, lines)}
    turns = {id: [turn["utterance"] for turn in each["turns"]] for id, each in dialogues.items()}
    having = Counter(word for each in turns.values() for word in set(words_of(" ".join(each))))

    def rarity(turn: str) -> float:
        return sum(math.log(len(turns) / having[word]) for word in set(words_of(turn)) if word)

    def key_words(turn: str) -> str:
        words = dict.fromkeys(word for word in words_of(turn) if word)
        return " ".join(sorted(words, key=having.__getitem__)[:KEYS])

    left_out = {id: max(each, key=rarity) for id, each in turns.items()}
    return Task(
        {id: "\n".join(t for t in each if t != left_out[id]) for id, each in turns.items()},
        {id: Question(left_out[id], key_words(left_out[id])) for id in list(turns)[::ASKED]},
    )


Search = Callable[[Question], Any]


def searches(things: Collection) -> dict[str, Search]:
    def meaning(question: Question, *, index: str = "whole", **options: Any) -> Any:
        return things.search(meaning=question.text, index=index, **options)

    return {
        "all words": lambda question: things.search(question.text),
        "key words": lambda question: things.search(question.keys),
        "any word": lambda question: things.search(question.text, match="any"),
        "meaning": meaning,
        "meaning of chunks": lambda question: meaning(question, index="chunks"),
        "key words, and meaning": lambda question: meaning(question, query=question.keys),
        "any word, and meaning": lambda question: meaning(
            question, query=question.text, match="any"
        ),
    }


def quality(search: Search, questions: dict[str, Question]) -> Quality:
    ranks = []
    for id, question in questions.items():
        found = [each.id for each in search(question)][:FIRST]
        if id in found:
            ranks.append(found.index(id) + 1)
    return Quality(len(ranks) / len(questions), sum(1 / rank for rank in ranks) / len(questions))


@pytest.fixture(scope="session")
def qualities() -> Iterator[Qualities]:
    """The results, which the end of the run writes into the folder that `BENCH_REPORT` names, and the page beside it."""
    found: Qualities = {}
    yield found
    if (report := os.environ.get(REPORT)) and found:
        folder = Path(report)
        folder.mkdir(parents=True, exist_ok=True)
        bars = {
            what: {name: each.recall for name, each in of.items()} for what, of in found.items()
        }
        picture = charts.shares(f"Questions whose dialogue is among the first {FIRST}", bars)
        (folder / "relevance.svg").write_text(picture, encoding="utf-8")
        page = folder.with_suffix(".md")
        text = page.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        page.write_text(f"{before}{BEGIN}\n\n{table_of(found)}\n{END}{after}", encoding="utf-8")


def table_of(found: Qualities) -> str:
    """Return the table, in Markdown."""
    databases = list(next(iter(found.values())))
    head = "".join(f" {each}, recall | MRR |" for each in databases)
    lines = [f"| Search by |{head}", f"| --- |{' ---: | ---: |' * len(databases)}"]
    for what, of in found.items():
        cells = (f"{of[each].recall:.3f} | {of[each].mrr:.3f}" for each in databases)
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("database", ["SQLite", "PostgreSQL"])
def test_relevance(
    database: str,
    task: Task,
    qualities: Qualities,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    backend = Backend("sqlite-memory", "sqlite://")
    if database == "PostgreSQL":
        backend = request.getfixturevalue("postgres_backend")
    model = wordllama.WordLlama.load(
        cache_dir=Path(wordllama.__file__).parent, disable_download=True
    )
    with Store(backend.url, **backend.options) as store:
        things = store["things"]
        things.put_many({id: {"text": text} for id, text in task.texts.items()})
        things.create_text_index("text")
        for name, chunks in {"whole": WHOLE, "chunks": CHUNK}.items():
            options: Any = {"embed": model.embed, "model": f"wordllama, {name}", "chunks": chunks}
            things.create_vector_index("text", dimensions=DIMENSIONS, name=name, **options)
            assert things.store_vectors(name) == 0
        for what, search in searches(things).items():
            found = quality(search, task.questions)
            qualities.setdefault(what, {})[database] = found
            with capsys.disabled():
                line = f"{database}, {what}"
                print(f"\n  {line:<45} recall {found.recall:.3f}, MRR {found.mrr:.3f}", end="")
