"""Docstrings as Markdown: an example that begins with `>>>` becomes a block of code. An async method that is declared as
`get = counterpart(Memory.get)` gets the signature of the sync method.

Only `mkdocs build` loads this, as an extension of Griffe: see `mkdocs.yml`.
"""

import re
from typing import Any

import griffe

_COUNTERPART = re.compile(r"_?counterpart\((\w+)(?:\[\w+\])?\.(\w+)(?:, prepares=True)?\)")
_EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Examples(griffe.Extension):
    """Fences the examples of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            fenced = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
            obj.docstring.value = fenced.replace("::\n\n    ", ":\n\n    ")

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Replace declarations of async counterparts by methods."""
        modules = [pkg]
        while modules:
            module = modules.pop()
            modules += module.modules.values()
            for kind in module.classes.values():
                for name, attribute in [] if kind.is_alias else [*kind.attributes.items()]:
                    if found := _COUNTERPART.fullmatch(str(attribute.value)):
                        kind.set_member(name, _counterpart(module[found[1]][found[2]]))


def _counterpart(method: Any) -> griffe.Function:
    text = f"Async counterpart of `{method.parent.name}.{method.name}`."
    function = griffe.Function(
        method.name,
        parameters=method.parameters,
        returns=method.returns,
        docstring=griffe.Docstring(text),
    )
    function.labels.add("async")
    return function
