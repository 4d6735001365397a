"""Whether a pattern is found, in a time that grows with the text and no faster.

A deterministic automaton that is made as far as texts need it. A state is where a program may be, and
what kind of character came before; it is a dictionary from the next character to the next state.
"""

from __future__ import annotations

from typing import Final

from ...errors import PatternLimitExceeded
from ..budget import spend
from .parser import WORD, Members
from .programs import AGAIN, AT, CHAR, JUMP, LAST_NEWLINE, MATCH, SAVE, SPLIT, Program, is_at

PIECE: Final = 256
"""Characters between two looks whether to go on."""
MAX_STEPS: Final = 4000
"""Steps between states that are remembered."""
PLACES: Final = 16
"""Places of a state that take the memory of a step."""
LIMIT: Final = 20_000_000
"""Steps of a search, without those between states that are remembered."""
_WORDS: Final = Members(WORD)


class _State(dict[str, "_State"]):
    def __init__(self, automaton: Automaton, places: frozenset[int], before: str | None) -> None:
        self.automaton, self.places, self.before = automaton, places, before

    def __missing__(self, character: str) -> _State:
        after = self[character] = self.automaton.after(self, character)
        return after


class Automaton:
    """Looks for a regular program in texts; threads may share it."""

    def __init__(self, program: Program) -> None:
        self._program, self._work = program, 0
        self._found = _State(self, frozenset({-1}), "")
        self._forget()

    def _forget(self) -> None:
        self._steps = 0
        self._states: dict[tuple[frozenset[int], str | None], _State] = {}
        self._begin = _State(self, frozenset({0}), None)

    def finds(self, text: str) -> bool:
        """Return whether the pattern is found anywhere."""
        state, end, worked = self._begin, len(text), self._work
        last = text.endswith("\n")
        for place in range(0, end - last, PIECE):
            for character in text[place : min(place + PIECE, end - last)]:
                state = state[character]
            if state is self._found:
                return True
            self._look(worked)
        if last:
            state = state[LAST_NEWLINE]
        return state[""] is self._found

    def _look(self, worked: int) -> None:
        """Look whether to go on."""
        if self._work - worked > LIMIT:
            raise PatternLimitExceeded(LIMIT)
        spend(PIECE >> 4)

    def after(self, state: _State, character: str) -> _State:
        """Return the state behind the next character."""
        if state is self._found:
            return state
        places = self._reached(state, character)
        self._steps += 1 + len(places or ()) // PLACES
        if self._steps > MAX_STEPS:
            self._forget()
        if places is None:
            return self._found
        if not character:
            return state
        before = "a" if _WORDS[character[:1]] else "\n" if character[:1] == "\n" else " "
        key = frozenset({0, *places}), before  # a match may begin behind each character
        return self._states.setdefault(key, _State(self, *key))

    def _reached(self, state: _State, character: str) -> list[int] | None:
        """Return where the program is behind the next character; None: it is at its end before."""
        program, seen, left, reached = self._program, set[int](), list(state.places), list[int]()
        while left:
            place = left.pop()
            if place in seen:
                continue
            seen.add(place)
            name, one, other = program[place]
            if name == CHAR:
                if character and one[character[0]]:
                    reached.append(place + 1)
            elif name == SPLIT:
                left += (one, other)
            elif name == JUMP:
                left.append(one)
            elif name == AGAIN:
                left += (one, place + 1)
            elif name == SAVE or (name == AT and is_at(one, state.before, character)):
                left.append(place + 1)
            elif name == MATCH:
                return None
        self._work += len(seen)
        spend(len(seen))
        return reached
