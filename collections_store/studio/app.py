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
    compare,
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
    *compare.PAGES,
)


class _SyncStore(Store):
    """A store on the core of an `AsyncStore`: pages run in threads."""

    def __init__(self, store: AsyncStore) -> None:
        self._share(store.core)
        self._owner = store
        """The store, which is open for as long as this one exists."""


def studio(
    store: Store | AsyncStore,
    *,
    authorize: Authorize,
    write: bool = False,
    using: Any = None,
    compare: Store | AsyncStore | None = None,
) -> Starlette:
    """Return the pages over a store as an ASGI application, to mount into one's own.

    `authorize` is called with each request of a page, a Starlette `Request`, and returns or awaits True for a person who may
    see everything in the store. All other requests get status 403. `write`: the pages can also change the store. `using`: a
    model, or a mapping of names of collections to models, or to the settings of `VersionSettings`; the pages show which documents do
    not fit, and what an upgrade would change. `compare`: a second store, which the pages only read; they show what differs. The
    application checks the Host, and keeps the stores open.

    Raise `InvalidOption`, and `MissingExtra` without the extra `studio`.

    >>> from starlette.applications import Starlette
    >>> from collections_store.studio import studio
    >>> app = Starlette()
    >>> app.mount("/studio", studio(store, authorize=lambda request: request.client.host == "127.0.0.1"))
    """
    check_function("authorize", authorize)
    is_writing = check_flag("write", write)
    return pages_over(store, Admission(authorize), write=is_writing, using=using, other=compare)


def pages_over(
    store: Store | AsyncStore,
    admission: Admission,
    *,
    write: bool,
    using: Any = None,
    other: Store | AsyncStore | None = None,
) -> Starlette:
    """Return the application of all pages over a store, and over the differences to another store."""
    store, compared = _sync("store", store), None if other is None else _sync("compare", other)
    declared = read_using(using)
    models = {
        name: codec_of(each, store.core.codec, invalid="return")
        for name, each in declared.items()
        if not isinstance(each, Mapping)
    }
    context = StudioContext(store, write, declared, models, PAGES, compared)
    return application(PAGES, context, admission)


def _sync(option: str, store: Store | AsyncStore) -> Store:
    from ..aio.store import AsyncStore

    if isinstance(store, AsyncStore):
        return _SyncStore(store)
    if not isinstance(store, Store):
        raise InvalidOption(option, f"must be a Store or an AsyncStore, got {shortened(store)}")
    return store


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
