"""What the repository reads of a namespace's dialogues, within a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, TypeAlias

from ..codec import Codec
from ..document import Document
from ..expressions.evaluation import size_of
from ..operations import by_id
from ..operations.find import Find
from ..operations.read import NaturalBatches
from ..operations.search import FindWords
from ..query.filter import Filter
from ..query.matcher import matches
from ..query.sort import Sort
from ..results import SearchResult
from .model import DialogueLabel
from .records import DialogueNamespace, Persisted, Record, key_of, messages_of, number_of
from .search import Search

Run: TypeAlias = Callable[[Any], Any]
"""Runs operations within a transaction."""
RESTORE_BATCH: Final = 200
"""Dialogues of a page, at most."""
PAGE_SIZE: Final = 4 * 2**20
"""Bytes of memory of the messages of a page, about, unless a single dialogue is larger."""
_HEADER_BATCH: Final = 500
_BY_ID: Final = Sort.parse("$id")
_LAST: Final = Sort.parse({"$id": -1})


@dataclass(frozen=True, slots=True)
class DialogueReader:
    """The stored dialogues of a namespace; `ordered`: the database keeps the order of an object's keys."""

    names: DialogueNamespace
    json: Codec
    ordered: bool

    def load(self, run: Run, keys: Iterable[str]) -> list[Record]:
        """Return the first dialogue with any of the keys, or nothing."""
        for key in keys:
            for is_terminal in (False, True):
                header = run(by_id.GetDocument(self.names.headers(is_terminal), key))
                if header is not None:
                    return [self.record(run, header, is_terminal)]
        return []

    def page(self, run: Run, after: str, is_terminal: bool) -> tuple[list[Record], str | None]:
        """Return a page of dialogues past a key, and the last of their keys; None: the page is the last."""
        past, names = Filter.parse({"$id": {"$gt": after}}), self.names.headers(is_terminal)
        found = run(Find(names, past, _BY_ID, limit=RESTORE_BATCH))
        records, size = list[Record](), 0
        while size < PAGE_SIZE and len(records) < len(found):
            records.append(self.record(run, found[len(records)], is_terminal))
            size += size_of([body for _, body in records[-1].messages], PAGE_SIZE)
        is_last = len(records) == len(found) < RESTORE_BATCH
        return records, None if is_last else records[-1].document.id

    def record(self, run: Run, header: Document, is_terminal: bool) -> Record:
        """Return the record of a dialogue, with its messages."""
        found = run(Find(self.names.messages, Filter.parse(messages_of(header.id)), _BY_ID))
        own = [each for each in found if key_of(each.id) == header.id]  # others may write there too
        return Record(header, is_terminal, tuple((number_of(each.id), each.body) for each in own))

    def messages(self, run: Run, label: DialogueLabel, after: int, limit: int) -> list[Any]:
        """Return messages of a dialogue past a number."""
        if not self.is_of(run, label):
            return []
        past = Filter.parse(messages_of(label.key, after))
        return [each.body for each in run(Find(self.names.messages, past, _BY_ID, limit=limit))]

    def is_known(self, run: Run, label: DialogueLabel) -> bool:
        """Return whether a dialogue is stored, or must not begin again."""
        collections = self.names.finished, self.names.terminal, self.names.active
        there = any(run(by_id.DocumentExists(each, label.key)) for each in collections)
        return there and self.is_of(run, label)

    def is_of(self, run: Run, label: DialogueLabel) -> bool:
        """Return whether a label is of the dialogue with its key: a complete label may have another reference."""
        if label.is_complete:
            for is_terminal in (False, True):
                header = run(by_id.GetDocument(self.names.headers(is_terminal), label.key))
                if header is not None:
                    body = header.body
                    return isinstance(body, dict) and label.is_in(body.get("dialogue_label"))
        return True

    def persisted(self, run: Run, keys: Iterable[str]) -> dict[str, Persisted]:
        """Return the stored states of dialogues, by their keys."""
        found: dict[str, Persisted] = {}
        for is_terminal in (False, True):
            for each in self._by_keys(run, keys, is_terminal):
                last, header = self._last_message(run, each.id), self.json.encode(each.body)
                count = number_of(last.id) if last else 0
                text = self.json.encode(last.body) if last and count else None
                found[each.id] = Persisted(count, header, is_terminal, each.version, text)
        return found

    def count(self, run: Run, key: str) -> int:
        """Return the number of a dialogue's messages."""
        last = self._last_message(run, key)
        return number_of(last.id) if last else 0

    def find(self, run: Run, search: Search, limit: int | None, is_terminal: bool) -> list[Record]:
        """Return the dialogues that a search finds."""
        if search.messages:
            headers = iter(self._headers_of_messages(run, search, is_terminal))
        else:
            headers = _stream(run, self.names.headers(is_terminal), search.header)
        found = (self.record(run, each, is_terminal) for each in headers)
        if search.whole is not None:
            found = (each for each in found if self._matches(search.whole, each.dialogue))
        return list(islice(found, limit))

    def search(
        self, run: Run, words: FindWords, limit: int | None, parts: Iterable[bool]
    ) -> list[tuple[Record, SearchResult[Any]]]:
        """Return dialogues with their best messages, the best first."""
        found: list[tuple[Record, SearchResult[Any]]] = []
        seen: set[str] = set()
        while True:
            page = run(words)
            best: dict[str, SearchResult[Any]] = {}
            for each in page:
                best.setdefault(key_of(each.id), each)
            headers = {
                header.id: (header, is_terminal)
                for is_terminal in parts
                for header in self._by_keys(run, best.keys() - seen, is_terminal)
            }
            seen |= best.keys()
            for key, (header, is_terminal) in ((k, headers[k]) for k in best if k in headers):
                if len(found) == limit:
                    return found
                found.append((self.record(run, header, is_terminal), best[key]))
            if page.cursor is None:
                return found
            words = replace(words, after=page.cursor)

    def _by_keys(self, run: Run, keys: Iterable[str], is_terminal: bool) -> list[Document]:
        wanted = Filter.parse({"$id": {"$in": list(keys)}})
        found: list[Document] = run(Find(self.names.headers(is_terminal), wanted))
        return found

    def _last_message(self, run: Run, key: str) -> Document | None:
        own = Filter.parse(messages_of(key))
        return next(iter(run(Find(self.names.messages, own, _LAST, limit=1))), None)

    def _headers_of_messages(self, run: Run, search: Search, is_terminal: bool) -> list[Document]:
        """Return the matching headers with matching messages, in the order of `find`."""
        matching = (_stream(run, self.names.messages, each) for each in search.messages)
        keys = sorted(set.intersection(*({key_of(each.id) for each in some} for some in matching)))
        found: list[Document] = []
        for first in range(0, len(keys), _HEADER_BATCH):
            some = self._by_keys(run, keys[first : first + _HEADER_BATCH], is_terminal)
            found += [each for each in some if self._matches(search.header, each)]
        return sorted(found, key=lambda each: (each.created_us, each.id))

    def _matches(self, filter: Filter, document: Document) -> bool:
        return matches(filter, document, ordered=self.ordered)


def _stream(run: Run, collection: str, filter: Filter) -> Iterator[Document]:
    stream = NaturalBatches(collection, filter)
    while (batch := stream.next()) is not None:
        yield from stream.advance(run(batch))
