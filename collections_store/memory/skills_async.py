"""The memories of a session's skills, by the rules of their platform; for asyncio."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..collection import Ttl
from ..document import SKILL_MEMORY
from .namespace_async import AsyncScope
from .skill_saving import Keeping
from .skill_values import Policy


class AsyncSkillMemory:
    """What the skills of a session remember: `store.skill_memory()`.

    A memory has a name, a value, perhaps a session_id of its own, and a scope: PRIVATE (which None means too) is
    for the skill that made it, PUBLIC for all skills of the session. Name, session_id and scope tell which it is.
    Memories are dicts, or objects with these attributes; `load` makes what `model` makes of them. Values are those
    of `Memory`, and come back as they were.

    `policy` says what becomes of a PUBLIC memory that a skill changes though another one made it: "creator" leaves
    it as it is, "anyone" changes it, "raise" raises `NotTheCreator`. `ttl`: seconds, or a timedelta, after which a
    session is gone if nobody saves.

    >>> async def main():
    ...     async with AsyncStore("sqlite://") as store:
    ...         skills = store.skill_memory()
    ...         name = {"name": "name", "value": "Ada", "scope": "PUBLIC"}
    ...         count = await skills.save("session 1", "greeter", [name, {"name": "greeted", "value": True}])
    ...         return [each["value"] for each in await skills.load("session 1", "weather")]
    >>> asyncio.run(main())
    ['Ada']
    """

    def __init__(
        self,
        scope: AsyncScope,
        collection: str = SKILL_MEMORY,
        *,
        policy: Policy = "creator",
        model: Callable[..., Any] | None = None,
        ttl: Ttl = None,
    ) -> None:
        self._scope = scope
        self._keeping = Keeping.of(collection, scope._codec, policy=policy, model=model, ttl=ttl)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self._keeping.collection!r}, policy={self._keeping.policy!r})"
        )

    async def load(self, session: str, skill: str) -> list[Any]:
        """Return what a skill is shown: what is PRIVATE to it, and all that is PUBLIC in the session, in the order
        in which it came into being.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         count = await store.skill_memory().save("session 1", "weather", [{"name": "city", "value": "Bonn"}])
        ...         return await store.skill_memory().load("session 1", "weather")
        >>> asyncio.run(main())
        [{'name': 'city', 'value': 'Bonn', 'session_id': None, 'scope': 'PRIVATE'}]
        """
        return self._keeping.shown(await self._scope.run(self._keeping.load(session, skill)))

    async def save(self, session: str, skill: str, memories: Iterable[Any]) -> int:
        """Do what a skill's response asks; returns how many memories were written or deleted. It takes place as
        one, and so that skills that save at once do not lose each other's.

        What is PRIVATE to the skill and not in `memories` is deleted, so a list must be given, even an empty one;
        what is PUBLIC stays for as long as the session, and can only be given a value such as None. Of several
        memories that are the same the last counts. Raises `NotTheCreator`, `InvalidOption` and `InvalidBody`; then
        nothing is written.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         skills = store.skill_memory()
        ...         count = await skills.save("session 1", "weather", [{"name": "city", "value": "Bonn"}])
        ...         return await skills.save("session 1", "weather", [])
        >>> asyncio.run(main())
        1
        """
        count: int = await self._scope.run(self._keeping.save(session, skill, memories))
        return count

    async def end_session(self, session: str) -> int:
        """Delete all memories of a session, and of no other; returns how many.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         count = await store.skill_memory().save("session 1", "weather", [{"name": "city", "value": "Bonn"}])
        ...         return await store.skill_memory().end_session("session 1")
        >>> asyncio.run(main())
        1
        """
        count: int = await self._scope.run(self._keeping.end(session))
        return count
