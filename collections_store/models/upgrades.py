"""Schema versions of documents, and the functions from each version to the next.

Rules:

1. The version is the field `schema_version` at the top of a body, an integer from 1 on. A body without the field has
   version 1. The codec of the collection writes and removes the field: functions and callers never see it.
2. A step leads from one version to the next. The result must be a JSON object of at most the size of a body, without
   another `schema_version`, and with the same `id` or `_id` if the field held the id of the document.
3. A step receives a copy. If the step fails, nothing is written, and `UpgradeFailed` names the document and the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, Self, TypeAlias

from ..document import SCHEMA_VERSION
from ..errors import DocumentTooNew, InvalidOption, UpgradeFailed, shortened
from ..options import check_flag, check_integer
from .steps import Step

MAX_VERSION: Final = 2**31 - 1
Steps: TypeAlias = Mapping[int, Step]
"""The steps by the version that each begins with."""
_OPTIONS: Final = (SCHEMA_VERSION, "upgrades", "downgrades", "write_back")


@dataclass(frozen=True, slots=True)
class Upgrades:
    """The schema version that a program declares for a collection, and the steps from other versions.

    `write_back`: `get`, `document` and `get_many` write upgraded bodies.
    """

    version: int
    up: Steps = field(default_factory=dict, repr=False)
    down: Steps = field(default_factory=dict, repr=False)
    write_back: bool = False

    @classmethod
    def parse(
        cls, version: Any, upgrades: Any = None, downgrades: Any = None, write_back: Any = False
    ) -> Self:
        """Validate the declaration of a caller; raise `InvalidOption`."""
        wanted = check_integer("schema_version", version, most=MAX_VERSION)
        up, down = _steps("upgrades", upgrades), _steps("downgrades", downgrades)
        if up and (any(n >= wanted for n in up) or not _is_row([*up, wanted])):
            given = ", ".join(map(str, up))
            problem = (
                f"must lead from each version to the next, up to {wanted}, got steps from {given}"
            )
            raise InvalidOption("upgrades", problem)
        if down and (any(n <= wanted for n in down) or not _is_row([wanted, *down])):
            given = ", ".join(map(str, down))
            problem = f"must lead from each version to the one before, down to {wanted}, got steps from {given}"
            raise InvalidOption("downgrades", problem)
        return cls(wanted, up, down, check_flag("write_back", write_back))

    @classmethod
    def taken(cls, settings: Mapping[str, Any]) -> tuple[Self | None, dict[str, Any]]:
        """Return the declaration in the arguments of `collection`, and all other arguments; raise `InvalidOption`."""
        given = {name: settings[name] for name in _OPTIONS if name in settings}
        others = {name: value for name, value in settings.items() if name not in given}
        if SCHEMA_VERSION in given:
            return cls.parse(**{"version": given.pop(SCHEMA_VERSION), **given}), others
        if given:
            raise InvalidOption(SCHEMA_VERSION, f"must be given with {', '.join(given)}")
        return None, others

    def version_of(self, body: Any) -> int:
        """Return the schema version of a stored body; raise `UpgradeFailed` if the field is no version."""
        if not isinstance(body, dict):
            raise UpgradeFailed(1, self.version, "the body must be a JSON object to have a version")
        found = body.get(SCHEMA_VERSION, 1)
        if type(found) is int and 1 <= found <= MAX_VERSION:
            return found
        problem = f"the field {SCHEMA_VERSION} must be an integer from 1 on, got {shortened(found)}"
        raise UpgradeFailed(1, self.version, problem)

    def apply(self, body: Any, id: str | None = None) -> dict[str, Any]:
        """Return a stored body in this version, without the field of the version. `body` may be changed.

        Raise `UpgradeFailed` and `DocumentTooNew`.
        """
        found = self.version_of(body)
        body.pop(SCHEMA_VERSION, None)
        while found != self.version:
            steps, wanted = (self.up, found + 1) if found < self.version else (self.down, found - 1)
            if found not in steps:
                if found > self.version:
                    raise DocumentTooNew(found, self.version)
                raise UpgradeFailed(found, wanted, f"`upgrades` has no step from {found}")
            body = steps[found].run(body, found, wanted, id)
            found = wanted
        return body  # type: ignore[no-any-return]


def _steps(option: str, given: Any) -> Steps:
    """Return steps in the order of their versions; raise `InvalidOption`."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        problem = f"must be a mapping of versions to functions, got {shortened(given)}"
        raise InvalidOption(option, problem)
    for version in given:
        check_integer(f"{option}, a version", version, most=MAX_VERSION)
    ordered = sorted(given.items())
    steps = {version: Step.parse(f"{option}[{version}]", each) for version, each in ordered}
    return MappingProxyType(steps)


def _is_row(versions: list[int]) -> bool:
    """Return whether each version is the predecessor plus 1."""
    return all(second == first + 1 for first, second in pairwise(versions))
