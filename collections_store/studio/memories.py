"""The pages of memories: the memories of a store, the namespaces, sessions and values of one, and those of skills."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from ..document import SKILL_MEMORY, Document, unspelled
from ..errors import CollectionNotFound
from ..memory.encoding import MEMORY, Space, SpaceName, spaces_of
from ..memory.skills import after_session, memories_of
from ..operations.find import FindIds
from ..operations.survey import ListNames, Survey
from ..query.filter import Filter
from .cells import Cell, cell
from .collection import affordable, surveyed
from .pages import Call, PageRoute, visible

if TYPE_CHECKING:
    from starlette.responses import Response

MOST: Final = 50
"""Memories, namespaces, sessions or values on a page."""


def has_memories(call: Call) -> bool:
    """Return whether the store has memories."""
    return bool(_names(call))


def _names(call: Call) -> list[str]:
    """Return the names of the collections of memories."""
    listed = (name for name, _ in call.store.run(ListNames()))
    return [name for name in listed if name == SKILL_MEMORY or name.startswith(MEMORY)]


def _title(name: str) -> str:
    """Return the namespace of a memory's collection; a digest, if the namespace is long."""
    return "skills" if name == SKILL_MEMORY else unspelled(name.removeprefix(MEMORY))


def show_memories(call: Call) -> Response:
    """Show the memories of the store, `MOST` on a page."""
    names = [each for each in _names(call) if each > call.query("after")]
    surveys = [(_title(name), call.store.run(Survey(name, 1))) for name in names[:MOST]]
    rows = [(title, survey) for title, survey in surveys if survey is not None]
    after = names[MOST - 1] if len(names) > MOST else None
    return call.render("memories.html", rows=rows, after=after)


def show_memory(call: Call) -> Response:
    """Show the inner namespaces, the sessions and the values of a namespace."""
    if call.name not in _names(call):
        raise CollectionNotFound(call.name, _names(call))
    if call.name == SKILL_MEMORY:
        return _show_skills(call)
    survey, path = surveyed(call), call.query("within")
    parents = spaces_of(path)
    space = parents[-1][1] if parents else Space()
    if space.path != path:
        return call.fail(HTTPStatus.NOT_FOUND, "The memory has no such namespace.")
    inner, more = _inner(call, space, len(parents))
    page = call.collection.page(
        space.keys(),
        sort="$id",
        limit=affordable(MOST, survey),
        after=call.query("after") or None,
    )
    return call.render(
        "memory.html",
        title=_title(call.name),
        parents=parents,
        path=path,
        inner=inner,
        more=more,
        values=[(visible(space.key_of(each.id)), cell(each.body), each) for each in page],
        after=page.cursor,
    )


def _inner(
    call: Call, space: Space, depth: int
) -> tuple[list[tuple[SpaceName, Space]], str | None]:
    """Return up to `MOST` of the namespaces and sessions directly within a namespace, and the id from which on there are more.
    Each costs a search in the ids, however many values it has.
    """
    found: list[tuple[SpaceName, Space]] = []
    begin = call.query("inner") or f"{space.path}0"  # after the keys, which follow a slash
    for _ in range(MOST + 1):
        within = {"$id": {"$gte": begin, "$lt": f"{space.path}:"}}
        ids = call.store.run(FindIds(call.name, Filter.parse(within), 1))
        if not ids:
            return found, None
        spaces = spaces_of(ids[0])
        if len(found) == MOST:
            return found, begin
        if len(spaces) > depth:
            found.append(spaces[depth])
            begin = f"{spaces[depth][1].path}:"
        else:  # of another program
            begin = f"{ids[0]}\x01"
    return found, begin


# -- memories of skills ----------------------------------------------------------------------------


def _show_skills(call: Call) -> Response:
    """Show the sessions of skills, or the memories of one session."""
    survey, session = surveyed(call), call.query("session", "")
    sessions, after = list[str](), None
    found: list[tuple[dict[str, Cell], Document]] = []
    if "session" in call.request.query_params:
        limit, cursor = affordable(MOST, survey), call.query("after") or None
        page = call.collection.page(memories_of(session), sort="$id", limit=limit, after=cursor)
        found, after = [_skill_value(each) for each in page], page.cursor
    else:
        sessions, after = _sessions(call)
    return call.render(
        "skill_memory.html",
        title=_title(call.name),
        session=session,
        is_session="session" in call.request.query_params,
        sessions=sessions,
        values=found,
        after=after,
    )


def _sessions(call: Call) -> tuple[list[str], str | None]:
    """Return up to `MOST` sessions, and the id from which on there are more. Each costs a search in the ids."""
    found: list[str] = []
    begin = call.query("after")
    for _ in range(MOST + 1):
        first = call.collection.find({"$id": {"$gte": begin}}, sort="$id", limit=1)
        if not first:
            return found, None
        if len(found) == MOST:
            return found, begin
        body, begin = first[0].body, after_session(first[0].id)
        if isinstance(body, dict) and isinstance(body.get("session"), str):
            found.append(body["session"])
    return found, begin


def _skill_value(found: Document) -> tuple[dict[str, Cell], Document]:
    """Return the parts of a memory of a skill as cells, and the document."""
    body = found.body if isinstance(found.body, dict) else {"value": found.body}
    parts = {name: cell(body.get(name, "")) for name in ("name", "creator", "scope")}
    return {**parts, "value": cell(body.get("value"))}, found


PAGES: Final = (
    PageRoute("/memories", show_memories, section="Memories", is_shown=has_memories),
    PageRoute("/memories/{name}", show_memory),
)
