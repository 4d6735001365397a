"""Searches by words of 100,000 documents, and writes with a text index, against SQL by hand: FTS5, tsvector, triggers.

`SEARCHED=20000` in the environment is quicker. The fixed cost of a call shows where a query finds a few documents only.
"""

import os
import random
import time
from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from typing import Any

import orjson
import pytest
from benchmarks.fixtures import Setup, all_results, one_core, setup, table
from benchmarks.floors import floor_of, numbered
from benchmarks.measuring import Table, again, cpu_of, without_parallel_workers

__all__ = ["all_results", "one_core", "setup", "table"]
pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]
SEARCHED, PUTS = int(os.environ.get("SEARCHED", "100000")), 200
WORDS = 20_000
FIELDS = {"title": 3, "body": 1}

FTS5 = """
CREATE VIRTUAL TABLE hand USING fts5(title, body, content='', tokenize='unicode61 remove_diacritics 2');
INSERT INTO hand(hand, rank) VALUES ('rank', 'bm25(3, 1)');
INSERT INTO hand(rowid, title, body) SELECT seq, body ->> 'title', body ->> 'body' FROM {table};
CREATE TRIGGER hand_insert AFTER INSERT ON {table} BEGIN
INSERT INTO hand(rowid, title, body) VALUES (NEW.seq, NEW.body ->> 'title', NEW.body ->> 'body'); END;
CREATE TRIGGER hand_update AFTER UPDATE OF body ON {table} BEGIN
INSERT INTO hand(hand, rowid, title, body) VALUES ('delete', OLD.seq, OLD.body ->> 'title', OLD.body ->> 'body');
INSERT INTO hand(rowid, title, body) VALUES (NEW.seq, NEW.body ->> 'title', NEW.body ->> 'body'); END;
"""
VECTOR = (
    "setweight(to_tsvector('simple', coalesce({body} ->> 'title', '')), 'A') || "
    "setweight(to_tsvector('simple', coalesce({body} ->> 'body', '')), 'B')"
)
TSVECTOR = f"""
CREATE TABLE {{hand}} (seq BIGINT PRIMARY KEY, words tsvector NOT NULL);
INSERT INTO {{hand}} SELECT seq, {VECTOR.format(body="body")} FROM {{table}};
CREATE INDEX ON {{hand}} USING gin (words);
CREATE FUNCTION {{hand}}_keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
IF TG_OP = 'INSERT' THEN INSERT INTO {{hand}} VALUES (NEW.seq, {VECTOR.format(body="NEW.body")});
ELSE UPDATE {{hand}} SET words = {VECTOR.format(body="NEW.body")} WHERE seq = NEW.seq; END IF; RETURN NULL; END $$;
CREATE TRIGGER keep AFTER INSERT OR UPDATE OF body ON {{table}} FOR EACH ROW EXECUTE FUNCTION {{hand}}_keep();
"""
BY_HAND = {
    False: "SELECT d.id, d.body, hand.rank FROM hand JOIN {table} AS d ON d.seq = hand.rowid "
    "WHERE hand MATCH ? ORDER BY hand.rank LIMIT 10",
    True: "SELECT d.id, d.body::text, ts_rank('{{0, 0, 0.333, 1}}', words, to_tsquery('simple', %(q)s), 1) AS rank "
    "FROM {hand} JOIN {table} AS d USING (seq) WHERE words @@ to_tsquery('simple', %(q)s) "
    "ORDER BY rank DESC LIMIT 10",
}


def vocabulary() -> list[str]:
    chance = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return ["".join(chance.choices(letters, k=chance.randint(4, 9))) for _ in range(WORDS)]


def notes(count: int, words: list[str], seed: int = 2) -> Iterator[dict[str, Any]]:
    """Yield documents whose words are as frequent as in a language."""
    chance = random.Random(seed)
    weights = list(accumulate(1 / (n + 1) for n in range(len(words))))

    def text(least: int, most: int) -> str:
        return " ".join(chance.choices(words, cum_weights=weights, k=chance.randint(least, most)))

    for n in range(count):
        yield {"n": n, "title": text(3, 9), "body": text(10, 80)}


def queries(words: list[str]) -> dict[str, tuple[str, str, str]]:
    """Return queries in our language, of FTS5 and of PostgreSQL."""
    two = words[50], words[80]
    return {
        "a rare word": (words[15_000],) * 3,
        "a word": (words[300],) * 3,
        "a frequent word": (words[20],) * 3,
        "two words": (" ".join(two), " ".join(two), " & ".join(two)),
        "a phrase": (f'"{words[0]} {words[1]}"', f'"{words[0]} {words[1]}"', f"{words[0]} <-> {words[1]}"),
        "a prefix": (f"{words[500][:3]}*", f"{words[500][:3]}*", f"{words[500][:3]}:*"),
    }  # fmt: skip


def test_searches(setup: Setup, table: Table) -> None:
    if setup.name == "SQLite, full":
        pytest.skip("reading is the same")
    if setup.is_postgresql:
        without_parallel_workers(setup.backend.url)
    words = vocabulary()
    with setup.store() as store:
        things, other = store["things"], store["hand"]
        for each in (things, other):
            each.put_many(numbered(notes(SEARCHED, words)))
        things.create_text_index(FIELDS)
        floor = floor_of(setup.backend, setup.options, "hand", number=2)
        pg = setup.is_postgresql
        hand = f"{setup.backend.options['schema']}.by_hand" if pg else "hand"
        sql = (TSVECTOR if pg else FTS5).format(table=floor.table, hand=hand)
        if pg:
            floor.connection.execute(sql)
            floor.connection.execute("ANALYZE")
        else:
            floor.connection.executescript(sql)
        select = BY_HAND[pg].format(table=floor.table, hand=hand)
        cpu = cpu_of(floor.connection) if pg else time.process_time

        def low(query: str) -> list[Any]:
            given: Any = {"q": query} if pg else (query,)
            rows = floor.connection.execute(select, given).fetchall()
            return [(id, orjson.loads(body), rank) for id, body, rank in rows]

        for what, (ours, fts5, tsquery) in queries(words).items():
            theirs = tsquery if pg else fts5
            assert len(low(theirs)) == len(things.search(ours)) > 0
            table.compare(
                f"{setup.name}, search", f"{what}, the best 10 (floor: SQL by hand)",
                again(partial(low, theirs), 5), {"ours": again(partial(things.search, ours), 5)},
                per=5, reach="≤ 1.3", cpu=cpu,
            )  # fmt: skip
        changed = list(numbered(notes(PUTS, words, seed=3)))

        def puts(put: Any) -> Any:
            order = changed[:]

            def call() -> None:
                random.shuffle(order)
                for (id, _), (_, body) in zip(changed, order, strict=True):
                    put(id, body)

            return call

        table.compare(
            f"{setup.name}, search", "a put (floor: a trigger by hand)",
            puts(floor.put), {"ours": puts(things.put)}, per=PUTS, reach="≤ 1.3", cpu=cpu,
        )  # fmt: skip
        floor.close()
