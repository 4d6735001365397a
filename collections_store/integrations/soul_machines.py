"""The rules of Soul Machines' platform for the memories of skills: the classes that `skill_memory` of a store returns."""

from ..memory.aio import AsyncSkillMemory
from ..memory.skills import PRIVATE, PUBLIC, Policy, SkillMemory, scope_of

__all__ = ["PRIVATE", "PUBLIC", "AsyncSkillMemory", "Policy", "SkillMemory", "scope_of"]
