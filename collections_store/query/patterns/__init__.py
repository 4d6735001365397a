"""Regular expressions: MongoDB's syntax, and matchers that always end.

`parser` reads what PCRE means into nodes. `translate` writes it in Python's `re`, and `cost` how long that may
take. `automaton` and `backtracking` run the `programs` of what may take too long, and can be stopped. `pattern` chooses.
Nothing else in the library gives patterns of users to `re`.
"""

from __future__ import annotations

from .parser import OPTIONS, InvalidPattern
from .pattern import Pattern, compiled, options_of

__all__ = ["OPTIONS", "InvalidPattern", "Pattern", "compiled", "options_of"]
