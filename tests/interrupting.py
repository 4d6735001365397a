"""Ctrl-C at each position where Python may raise it.

CPython looks for signals at few positions: at the beginning of a function, at a jump backwards, and after a call of a
function that is written in C. `interrupted_at` raises KeyboardInterrupt at the n-th of those that a call comes to, in
whichever module that is.
"""

import dis
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from itertools import count
from types import FrameType
from typing import Any

_CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})
_HANG = 20.0
"""Seconds after which a call is considered to hang: it takes milliseconds."""


class Injector:
    """A trace function that raises at the n-th position."""

    def __init__(self, number: int, within: str) -> None:
        self.left, self._within = number, re.compile(within)
        self.is_hit = False
        self._last: dict[FrameType, int] = {}
        self._called: set[FrameType] = set()
        """The frames whose current call is of a function in Python."""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if self.is_hit:
            return None
        frame.f_trace_opcodes = True
        if event == "call":
            if frame.f_back is not None:
                self._called.add(frame.f_back)
        elif event == "opcode":
            self._count(frame)
        elif event == "return":
            self._last.pop(frame, None)
            self._called.discard(frame)
        return self

    def _count(self, frame: FrameType) -> None:
        last, self._last[frame] = self._last.get(frame), frame.f_lasti
        if last is None:
            looks = frame.f_lasti > 0  # RESUME was passed
        else:
            name = dis.opname[frame.f_code.co_code[last]]
            looks = name.startswith("JUMP_BACKWARD") and "NO_INTERRUPT" not in name
            looks = looks or name == "RESUME" or (name in _CALLS and frame not in self._called)
            self._called.discard(frame)
        if looks and self._within.search(frame.f_code.co_filename):
            self.left -= 1
            if self.left == 0:
                self.is_hit = True
                sys.settrace(None)
                self._last.clear()
                self._called.clear()
                raise KeyboardInterrupt


def interrupted_at(
    number: int, call: Callable[[], object], within: str = ""
) -> BaseException | None:
    """Call with a KeyboardInterrupt at the n-th position; return the exception, or None if there is no such position."""
    injector = Injector(number, within)
    raised: list[BaseException] = []
    sys.settrace(injector)
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - the test checks it
        raised.append(error)
    finally:
        sys.settrace(None)
    if not injector.is_hit:
        assert not raised, raised
        return None
    return raised.pop() if raised else Survived()  # referenced only by the caller


class Survived(Exception):
    """The call returned: the interrupt came at a position where Python can only print it."""


def interrupts(call: Callable[[], object], within: str = "") -> Iterator[BaseException]:
    """Yield the exception of each interruption of a call, at each position in the files whose names match."""
    for number in count(1):
        with watchdog():
            raised = interrupted_at(number, call, within)
        if raised is None:
            return
        taken, raised = [raised], None
        yield taken.pop()  # only the caller references the traceback and its frames


class watchdog:  # noqa: N801
    """A context that raises if its body hangs."""

    def __enter__(self) -> None:
        def bark(*_: Any) -> None:
            traceback.print_stack()
            raise TimeoutError("the call hangs")

        self._before = signal.signal(signal.SIGALRM, bark)
        signal.setitimer(signal.ITIMER_REAL, _HANG)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
