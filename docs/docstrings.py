"""Docstrings as Markdown: an example that begins with `>>>` becomes a block of code.

Only `mkdocs build` loads this, as an extension of Griffe: see `mkdocs.yml`.
"""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Examples(griffe.Extension):
    """Fences the examples of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            fenced = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
            obj.docstring.value = fenced.replace("::\n\n    ", ":\n\n    ")
