"""The states of flows: a document for each flow, with its last state."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.persistence.base import FlowPersistence

from ... import AsyncStore, InvalidBody, InvalidUpdate
from ..stores import PairedCollection, PairedOwner


class CollectionsFlowPersistence(PairedOwner, FlowPersistence):
    """CrewAI's persistence of flows in a store: an `AsyncStore`, which stays open, or a URL with `options` of
    `AsyncStore`.

    Pass it to `@persist` and to flows, or to CrewAI's `set_flow_persistence_factory`. `collection` has a document for
    each flow, under the id of its state: the last state, without the states before. Values that JSON lacks are stored
    as by CrewAI's `SQLiteFlowPersistence`: sets as arrays, times in ISO format, all others as strings.

    >>> with CollectionsFlowPersistence("sqlite://") as flows:
    ...     flows.save_state("1", "ask", {"id": "1", "question": "Rain?"})
    ...     flows.load_state("1")
    {'id': '1', 'question': 'Rain?'}
    """

    persistence_type: str = "CollectionsFlowPersistence"
    _opened: PairedCollection

    def __init__(
        self, store: AsyncStore | str, *, collection: str = "crewai_flows", **options: Any
    ) -> None:
        super().__init__()
        self._opened = PairedCollection(store, collection, (), options)

    def init_db(self) -> None:
        """Do nothing: the first write creates the collection."""

    def save_state(self, flow_uuid: str, method_name: str, state_data: Any) -> None:
        """Replace the state of a flow. `state_data` is a dict or a model. Raise `InvalidBody` and `InvalidId`."""
        self._save(flow_uuid, {"method": method_name, "state": _json(state_data)})

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """Return the last state of a flow, or None."""
        body = self._opened.sync.get(flow_uuid)
        return None if body is None else body["state"]

    def save_pending_feedback(
        self, flow_uuid: str, context: PendingFeedbackContext, state_data: Any
    ) -> None:
        """Replace the state of a flow that waits for the feedback of a person, and store what resumes the flow."""
        state = _json(state_data)
        pending = {"context": _json(context.to_dict()), "state": state}
        self._save(flow_uuid, {"method": context.method_name, "state": state, "pending": pending})

    def load_pending_feedback(
        self, flow_uuid: str
    ) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        """Return the state and the context of a flow that waits for feedback, or None."""
        pending = (self._opened.sync.get(flow_uuid) or {}).get("pending")
        if pending is None:
            return None
        return pending["state"], PendingFeedbackContext.from_dict(pending["context"])

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """Record that a flow does not wait for feedback any more."""
        self._opened.sync.update(flow_uuid, {"$unset": {"pending": ""}})

    def _save(self, flow_uuid: str, fields: dict[str, Any]) -> None:
        try:
            self._opened.sync.update(flow_uuid, {"$set": fields}, upsert=True)
        except InvalidUpdate as error:
            place = error.place.removeprefix("$set.")
            raise InvalidBody(place, error.problem, self._opened.name, flow_uuid) from None


def _json(state: Any) -> Any:
    """Return a state as JSON values."""
    try:
        return json.loads(json.dumps(state, default=_plain))
    except (RecursionError, TypeError, ValueError):
        raise InvalidBody("state", "holds a key or a value that has no JSON form") from None


def _plain(value: Any) -> Any:
    """Return a value that `json` lacks as a value that it has."""
    if hasattr(value, "model_dump"):
        try:
            return value.model_dump(mode="json")
        except ValueError:
            return value.model_dump()  # with objects, whose strings are stored
    if isinstance(value, set | frozenset):
        return list(value)
    return value.isoformat() if isinstance(value, date) else str(value)
