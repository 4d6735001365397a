"""Memories of skills, by the rules of Soul Machines' platform: the classes of a store's `skill_memory`."""

from ..memory.aio import AsyncSkillMemory
from ..memory.skills import PRIVATE, PUBLIC, Policy, SkillMemory, scope_of

__all__ = ["PRIVATE", "PUBLIC", "AsyncSkillMemory", "Policy", "SkillMemory", "scope_of"]
