"""The pages of dialogues: the namespaces, the dialogues of one, a conversation, and the quarantine. No page writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from ..dialogues.records import (
    DIALOGUES,
    PARTS,
    BadRecord,
    Record,
    key_of,
    messages_of,
    number_of,
)
from ..dialogues.repository import COUNTERPARTY
from ..document import Document, unspelled
from ..errors import CollectionNotFound, DocumentNotFound, SchemaTooNew
from ..operations.survey import CollectionSurvey, ListNames, Scans, Survey
from ..query.filter import Filter
from ..query.sort import NATURAL
from .cells import Branch, cell, tree_of
from .collection import MANY, affordable
from .entries import read_number
from .pages import Call, PageRoute, visible

if TYPE_CHECKING:
    from starlette.responses import Response

MOST: Final = 50
"""Namespaces, dialogues or quarantined records on a page."""
MESSAGES: Final = 100
"""Messages on a page."""
SHOWN: Final = ("active", "terminal", "quarantine")
_HEADER: Final = ("state", "role", "self_address")
_LABEL: Final = (
    "dialogue_opponent_addr", "dialogue_starter_addr", "dialogue_starter_reference", "dialogue_responder_reference",
)  # fmt: skip
_MESSAGE: Final = ("performative", "message_id", "sender", "target")
_ENVELOPE: Final = frozenset(
    {"performative", "message_id", "target", "dialogue_reference", "sender", "to", "is_incoming"}
)


@dataclass(frozen=True, slots=True)
class DialogueCollections:
    """A namespace of dialogues: the part that the names of its collections share."""

    prefix: str

    @property
    def title(self) -> str:
        """The agent and the component; a digest, if the two are long."""
        agent, separator, component = self.prefix.partition("__")
        if not agent or not separator:
            return self.prefix
        return f"{unspelled(agent)} / {unspelled(component)}"

    def collection(self, part: str) -> str:
        """Return the name of a collection of the namespace."""
        return f"{DIALOGUES}{self.prefix}__{part}"


# -- namespaces ------------------------------------------------------------------------------------


def has_dialogues(call: Call) -> bool:
    """Return whether the store has dialogues."""
    return any(_prefixes(call))


def _prefixes(call: Call) -> Iterator[str]:
    """Yield the prefix of each collection of dialogues."""
    for name, _ in call.store.run(ListNames()):
        prefix, separator, part = name.removeprefix(DIALOGUES).rpartition("__")
        if name.startswith(DIALOGUES) and separator and part in PARTS:
            yield prefix


def show_namespaces(call: Call) -> Response:
    """Show the namespaces with the numbers of their dialogues, `MOST` on a page."""
    names = [each for each in sorted(set(_prefixes(call))) if each > call.query("after")]
    rows = []
    for prefix in names[:MOST]:
        namespace = DialogueCollections(prefix)
        surveys = [call.store.run(Survey(namespace.collection(part), 1)) for part in SHOWN]
        rows.append((namespace, dict(zip(SHOWN, surveys, strict=True))))
    after = names[MOST - 1] if len(names) > MOST else None
    return call.render("dialogue_namespaces.html", rows=rows, after=after)


def _namespace(call: Call) -> DialogueCollections:
    if call.name not in _prefixes(call):
        raise CollectionNotFound(DialogueCollections(call.name).collection(SHOWN[0]))
    return DialogueCollections(call.name)


# -- dialogues -------------------------------------------------------------------------------------


def show_dialogues(call: Call) -> Response:
    """Show active or terminal dialogues in the order of their beginning or end, or the quarantine."""
    namespace, part = _namespace(call), call.query("part", SHOWN[0])
    part = part if part in SHOWN else SHOWN[0]
    survey = call.store.run(Survey(namespace.collection(part), 10))
    counterparty = call.query("counterparty") if part != "quarantine" else ""
    filter = {COUNTERPARTY: counterparty} if counterparty else {}
    scans = survey is not None and not call.query("scan") and _scans(call, survey, filter)
    documents, after = list[Document](), None
    if survey is not None and not scans:
        limit, cursor = affordable(MOST, survey), call.query("after") or None
        page = call.store[survey.name].page(filter, limit=limit, after=cursor)
        documents, after = [*page], page.cursor
    is_quarantine = part == "quarantine"
    return call.render(
        "dialogues.html",
        namespace=namespace,
        part=part,
        parts=SHOWN,
        survey=survey,
        counterparty=counterparty,
        scans=scans,
        rows=[] if is_quarantine else [_listed(call, namespace, part, each) for each in documents],
        records=[_record(each) for each in documents] if is_quarantine else [],
        after=after,
    )


def _scans(call: Call, survey: CollectionSurvey, filter: dict[str, Any]) -> bool:
    """Return whether a filter would read all of many dialogues: without the index that a namespace has since its first write."""
    if survey.count <= MANY or not filter:
        return False
    return call.store.run(Scans(survey.name, Filter.parse(filter), NATURAL))


def _header_texts(header: Document) -> dict[str, str]:
    """Return what a stored header and its label say."""
    body = _object(header.body)
    return _texts(body, _HEADER) | _texts(_object(body.get("dialogue_label")), _LABEL)


def _listed(
    call: Call, namespace: DialogueCollections, part: str, header: Document
) -> dict[str, Any]:
    """Return a dialogue in a list: with the number of its messages, and the reason why the record restores no dialogue."""
    messages = call.store[namespace.collection("messages")]
    of_last: dict[str, Any] = {"sort": {"$id": -1}, "limit": 1, "projection": ["performative"]}
    last = next(iter(messages.find(messages_of(header.id), **of_last)), None)
    return {
        "document": header,
        "header": _header_texts(header),
        "count": 0 if last is None else number_of(last.id),
        "performative": "" if last is None else _text(_object(last.body), "performative"),
        "reason": _reason(header, part),
    }


def _reason(header: Document, part: str) -> str:
    """Return why a header restores no dialogue, "" if its form is right."""
    try:
        Record(header, part == "terminal", ()).label  # noqa: B018 - raises
    except (BadRecord, SchemaTooNew) as error:
        return str(error)
    return ""


def _record(found: Document) -> tuple[Document, dict[str, str], Branch]:
    """Return a quarantined record: its document, its collection, id and reason, and its body."""
    body = _object(found.body)
    parts = _texts(body, ("collection", "id", "reason"))
    parts["collection"] = parts["collection"].rpartition("__")[2]
    return found, parts, tree_of(body.get("body", body.get("text", found.body)))


# -- a conversation --------------------------------------------------------------------------------


def show_conversation(call: Call) -> Response:
    """Show the messages of a dialogue, `MESSAGES` on a page."""
    namespace, key = _namespace(call), call.query("id")
    header, part = _header(call, namespace, key)
    after = read_number(call.query("after")) or 0
    messages = namespace.collection("messages")
    survey = call.store.run(Survey(messages, 10))
    most = MESSAGES if survey is None else affordable(MESSAGES, survey)
    found = call.store[messages].find(messages_of(key, after), sort="$id", limit=most + 1)
    own = [each for each in found[:most] if key_of(each.id) == key]
    metadata = _object(header.body).get("metadata")
    shown = _header_texts(header)
    numbers = [after, *(number_of(each.id) for each in own)]
    missing = [number - before - 1 for before, number in pairwise(numbers)]
    return call.render(
        "conversation.html",
        namespace=namespace,
        part=part,
        document=header,
        header=shown,
        metadata=tree_of(metadata, "metadata") if metadata else None,
        reason=_reason(header, part),
        bubbles=[_bubble(*each, shown["self_address"]) for each in zip(own, missing, strict=True)],
        after=numbers[-1] if own and len(found) > most else None,
    )


def _header(call: Call, namespace: DialogueCollections, key: str) -> tuple[Document, str]:
    """Return the header of a dialogue, and the part that has it; raise `DocumentNotFound`."""
    for part in ("active", "terminal"):
        header = call.store[namespace.collection(part)].document(key)
        if header is not None:
            return header, part
    raise DocumentNotFound(namespace.collection("active"), key)


def _bubble(found: Document, missing: int, address: str) -> dict[str, Any]:
    """Return a message of a conversation. `missing`: messages before it that are not stored."""
    json = found.body if isinstance(found.body, dict) else {"body": found.body}
    content: Any = {name: each for name, each in json.items() if name not in _ENVELOPE}
    for name in ("content", "body"):
        if name in content:
            content = content[name]
            break
    return _texts(json, _MESSAGE) | {
        "is_own": json.get("is_incoming", json.get("sender") != address) is False,
        "time": found.created_at,
        "content": tree_of(content),
        "missing": missing,
    }


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(parts: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the texts of some keys; "" for what a record of another program has not."""
    return {name: _text(parts, name) for name in names}


def _text(parts: dict[str, Any], name: str) -> str:
    value = parts.get(name, "")
    return visible(value) if isinstance(value, str) else cell(value).text


PAGES: Final = (
    PageRoute("/dialogues", show_namespaces, section="Dialogues", is_shown=has_dialogues),
    PageRoute("/dialogues/{name}", show_dialogues),
    PageRoute("/dialogues/{name}/conversation", show_conversation),
)
