"""The application, and the table of the pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ..document import check_name
from ..errors import InvalidOption, shortened
from ..models.codec import codec_of
from ..models.declared import collection_of
from ..options import check_flag, check_function
from ..store import Store
from . import (
    aggregation,
    collection,
    dialogues,
    document,
    explain,
    live,
    memories,
    overview,
    schema,
    upgrades,
)
from .aio import Admission, Authorize, application
from .pages import PageRoute, StudioContext

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from ..aio.store import AsyncStore

PAGES: Final[tuple[PageRoute, ...]] = (
    *overview.PAGES,
    *collection.PAGES,
    *document.PAGES,
    *explain.PAGES,
    *aggregation.PAGES,
    *schema.PAGES,
    *upgrades.PAGES,
    *live.PAGES,
    *dialogues.PAGES,
    *memories.PAGES,
)


class _SyncStore(Store):
    """A store on the core of an `AsyncStore`: pages run in threads."""

    def __init__(self, store: AsyncStore) -> None:
        self._share(store.core)
        self._owner = store
        """The store, which is open for as long as this one exists."""


def studio(
    store: Store | AsyncStore, *, authorize: Authorize, write: bool = False, using: Any = None
) -> Starlette:
    """Return the pages over a store as an ASGI application, to mount into one's own.

    `authorize` is called with each request of a page, a Starlette `Request`, and returns or awaits True for a person who may
    see everything in the store. All other requests get status 403. `write`: the pages can also change the store. `using`: a
    model, or a mapping of names of collections to models, or to the settings of `VersionSettings`; the pages show which documents do
    not fit, and what an upgrade would change. The application checks the Host, and keeps the store open.

    Raise `InvalidOption`, and `MissingExtra` without the extra `studio`.

    >>> from starlette.applications import Starlette
    >>> from collections_store.studio import studio
    >>> app = Starlette()
    >>> app.mount("/studio", studio(store, authorize=lambda request: request.client.host == "127.0.0.1"))
    """
    check_function("authorize", authorize)
    return pages_over(store, Admission(authorize), write=check_flag("write", write), using=using)


def pages_over(
    store: Store | AsyncStore, admission: Admission, *, write: bool, using: Any = None
) -> Starlette:
    """Return the application of all pages over a store."""
    from ..aio.store import AsyncStore

    if isinstance(store, AsyncStore):
        store = _SyncStore(store)
    elif not isinstance(store, Store):
        raise InvalidOption("store", f"must be a Store or an AsyncStore, got {shortened(store)}")
    declared = read_using(using)
    models = {
        name: codec_of(each, store.core.codec, invalid="return")
        for name, each in declared.items()
        if not isinstance(each, Mapping)
    }
    return application(PAGES, StudioContext(store, write, declared, models, PAGES), admission)


def read_using(using: Any) -> dict[str, Any]:
    """Return what is declared of collections, by name; raise `InvalidOption` and `InvalidName`.

    >>> read_using({"cities": {"schema_version": 2}})
    {'cities': {'schema_version': 2}}
    """
    if using is None:
        return {}
    if isinstance(using, type):
        return {collection_of(using): using}
    if not isinstance(using, Mapping):
        problem = f"must be a model, or a mapping of names of collections to models, got {shortened(using)}"
        raise InvalidOption("using", problem)
    return {check_name(name): each for name, each in using.items()}
