"""Documents of the application: `name` becomes `first` and `last`."""

import os
from typing import Any

from alembic import op

from collections_store.migrate import upgrade_documents

revision, down_revision = "0002", "0001"


def split_name(body: dict[str, Any]) -> dict[str, Any]:
    first, last = body.pop("name").split(" ", 1)
    return {**body, "first": first, "last": last}


def join_name(body: dict[str, Any]) -> dict[str, Any]:
    first, last = body.pop("first"), body.pop("last")
    return {**body, "name": f"{first} {last}"}


def upgrade() -> None:
    bring_to(2)


def downgrade() -> None:
    bring_to(1)


def bring_to(version: int) -> None:
    upgrades = {1: split_name} if version == 2 else None
    downgrades = {2: join_name} if version == 1 else None
    upgrade_documents(
        op.get_bind(),
        "people",
        schema=os.environ.get("SHOP_SCHEMA"),
        schema_version=version,
        upgrades=upgrades,
        downgrades=downgrades,
    )
