"""The quarantine of a namespace: records that restore no dialogue, moved there and back within a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..codec import decode
from ..document import Document, new_id
from ..errors import InvalidBody
from ..operations import by_id
from .reader import DialogueReader, Run
from .records import UNLIMITED, Quarantined, Record, message_id


@dataclass(frozen=True, slots=True)
class DialogueQuarantine:
    """The quarantine beside the stored dialogues of a namespace."""

    stored: DialogueReader

    def move(self, run: Run, record: Record, reason: str) -> None:
        """Move a record with its messages. Raises `VersionConflict` if the stored record has changed."""
        header, is_terminal = record.document, record.is_terminal
        self._move(run, self.stored.names.headers(is_terminal), header, header.version, reason)
        for number, json in self.stored.record(run, header, is_terminal).messages:
            message = Document(message_id(header.id, number), json)
            self._move(run, self.stored.names.messages, message, None, reason)

    def _move(
        self, run: Run, collection: str, found: Document, version: int | None, reason: str
    ) -> None:
        parts, json = {"collection": collection, "id": found.id, "reason": reason}, self.stored.json
        try:
            text = json.encode({**parts, "body": found.body})
        except InvalidBody:  # one level deeper than a body may be
            text = json.encode({**parts, "text": UNLIMITED.encode(found.body)})
        run(by_id.RemoveById(collection, found.id, version))
        run(by_id.Put(self.stored.names.quarantine, new_id(), text))

    def record_of(self, found: Document) -> Quarantined | None:
        """Return the record of a document in the quarantine; None: another program wrote the document."""
        names = self.stored.names
        match found.body:
            case {"collection": str(collection), "id": str(id), "reason": str(reason), **rest}:
                if collection in (names.active, names.terminal, names.messages):
                    with suppress(ValueError, TypeError, KeyError):
                        body = rest["body"] if "body" in rest else decode(found.body["text"])
                        return Quarantined(collection, id, reason, body)
        return None

    def move_back(
        self, run: Run, key: str, group: Sequence[tuple[Document, Quarantined]]
    ) -> list[Record]:
        """Move a dialogue's records back from the quarantine; move none if the dialogue has begun again, has ended or was
        deleted. Raises `VersionConflict` if another record has an id, or the records have moved.
        """
        names = self.stored.names
        known = names.active, names.terminal, names.finished
        is_headless = all(record.collection == names.messages for _, record in group)
        if is_headless or any(run(by_id.DocumentExists(each, key)) for each in known):
            return []
        for document, record in group:
            run(by_id.RemoveById(names.quarantine, document.id, document.version))
            run(by_id.Insert(record.collection, record.id, UNLIMITED.encode(record.body)))
        return self.stored.load(run, [key])
