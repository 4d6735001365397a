"""The page of a collection's schema versions: what an upgrade would change, and with `--write` the upgrade."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ..document import SCHEMA_VERSION
from ..errors import CollectionsStoreError
from ..operations.survey import Survey
from .cells import cell
from .collection import MANY, surveyed
from .entries import read_number
from .pages import Call, PageRoute

if TYPE_CHECKING:
    from starlette.responses import Response

    from ..collection import Collection
    from ..results import UpgradeResult

SAMPLED: Final = 100
_OPTIONS: Final = (SCHEMA_VERSION, "upgrades", "downgrades")


def has_versions(call: Call) -> bool:
    """Return whether `--using` declares a schema version of the page's collection."""
    declared = call.studio.declared.get(call.name)
    return isinstance(declared, Mapping) and SCHEMA_VERSION in declared


def _versioned(call: Call) -> Collection:
    """Return the page's collection with the declared version alone: other settings would change the stored collection."""
    declared = call.studio.declared.get(call.name, {})
    settings: dict[str, Any] = {name: declared[name] for name in _OPTIONS if name in declared}
    return call.store.collection(call.name, **settings)


def show_upgrades(call: Call) -> Response:
    """Show the documents of each version, and what an upgrade would change. A large collection is only sampled without consent."""
    survey = surveyed(call)
    is_read = survey.count <= MANY or bool(call.query("scan"))
    result: UpgradeResult | None = None
    bad = None
    try:
        if is_read and has_versions(call):
            result = _versioned(call).upgrade_documents(dry_run=True)
    except CollectionsStoreError as error:
        bad = error
    versions, counted = _versions(call, is_read)
    return call.render(
        "upgrades.html",
        200,
        bad,
        survey=survey,
        declared=call.studio.declared[call.name][SCHEMA_VERSION] if has_versions(call) else None,
        versions=versions,
        counted=counted,
        is_read=is_read,
        result=result,
        upgraded=read_number(call.query("upgraded")),
        failed=read_number(call.query("failed")),
    )


def _versions(call: Call, is_read: bool) -> tuple[list[tuple[str, int]], int]:
    """Return the versions and their numbers of documents, and of how many documents: all, or sampled ones."""
    if is_read:
        found = call.collection.aggregate([{"$sortByCount": f"${SCHEMA_VERSION}"}])
        pairs = [(each["_id"], each["count"]) for each in found]
    else:
        survey = call.store.run(Survey(call.name, SAMPLED))
        pairs = [] if survey is None else [*survey.versions.items()]
    named = [("none" if each is None else cell(each).text, count) for each, count in pairs]
    return sorted(named), sum(count for _, count in named)


def upgrade(call: Call) -> Response:
    """Upgrade all documents of the collection."""
    surveyed(call)  # opened with settings, a missing collection would be created
    result = _versioned(call).upgrade_documents()
    failed = result.failed_count
    return call.go("/c/{name}/upgrades", upgraded=result.upgraded_count, failed=failed)


PAGES: Final = (
    PageRoute("/c/{name}/upgrades", show_upgrades, tab="Upgrades", is_shown=has_versions),
    PageRoute("/c/{name}/upgrades", upgrade, method="POST", writes=True),
)
