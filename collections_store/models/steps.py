"""Steps between schema versions: functions of the user, and the check of their results.

The first argument and the result of a function are bodies, or instances of models in the annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Final, Self, get_type_hints

from ..codec import Codec, decode
from ..document import SCHEMA_VERSION
from ..errors import CollectionsStoreError, InvalidBody, UpgradeFailed, shortened
from ..options import check_function

_CODEC: Final = Codec(2**40)
"""For what is between two steps: the codec of the collection limits what is written."""
_IDS: Final = ("id", "_id")


@dataclass(frozen=True, slots=True)
class Step:
    """A function, and the codecs of its argument and result."""

    function: Callable[[Any], Any]
    takes: Codec = field(default=_CODEC, repr=False)
    gives: Codec = field(default=_CODEC, repr=False)

    @classmethod
    def parse(cls, option: str, function: Any) -> Self:
        """Read a function and its annotations; raise `InvalidOption`, and `MissingExtra` for a model's library."""
        check_function(option, function)
        try:
            hints = get_type_hints(function)
            first = next(iter(signature(function).parameters), "")
        except (TypeError, ValueError, NameError):
            return cls(function)  # a builtin, or names that do not exist at run time
        return cls(function, _codec_of(hints.get(first)), _codec_of(hints.get("return")))

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", None) or type(self.function).__name__

    def run(self, body: dict[str, Any], found: int, wanted: int, id: str | None) -> dict[str, Any]:
        """Return the checked result for a body of version `found`. The function may change `body`.

        A field `id` or `_id` with the document's id must stay unchanged. Raise `UpgradeFailed`.
        """
        own = {key: id for key in _IDS if id is not None and body.get(key) == id}
        try:
            given = self.takes.decode_body(_CODEC.encode(body)) if self.takes.has_model else body
        except InvalidBody as error:
            raise UpgradeFailed(found, wanted, f"{self.name} cannot take it: {error}") from None
        try:
            result = self.function(given)
        except Exception as error:
            reason = f"{self.name} raised {type(error).__name__}{_line(error)}"
            if isinstance(error, CollectionsStoreError):
                reason = f"{reason}: {error}"
            raise UpgradeFailed(found, wanted, reason) from error
        if result is None:
            problem = "returned nothing: it must return the new body"
            raise UpgradeFailed(found, wanted, f"{self.name} {problem}")
        try:
            new = decode(self.gives.encode_body(result))
        except InvalidBody as error:
            raise UpgradeFailed(found, wanted, f"{self.name} returned a body: {error}") from None
        problem = _problem(new, wanted, own)
        if problem:
            raise UpgradeFailed(found, wanted, f"{self.name} {problem}")
        new.pop(SCHEMA_VERSION, None)
        return new  # type: ignore[no-any-return]


def _codec_of(annotation: Any) -> Codec:
    """Return the codec of the model in an annotation; without a model, the codec of plain JSON."""
    from .declared import alternatives, declared_fields

    if not any(declared_fields(each) is not None for each in alternatives(annotation)):
        return _CODEC
    from .codec import codec_of

    return codec_of(annotation, _CODEC)


def _problem(new: Any, wanted: int, own: Mapping[str, str]) -> str:
    """Return the problem with the result of a step, "" for none. The result must keep the ids `own`."""
    if not isinstance(new, dict):
        return f"must return a JSON object, got {type(new).__name__}"
    if new.get(SCHEMA_VERSION, wanted) != wanted:
        got = shortened(new[SCHEMA_VERSION])
        return f"must return a body of version {wanted}, got {SCHEMA_VERSION} {got}"
    lost = [key for key, id in own.items() if new.get(key) != id]
    return f"must keep the field {lost[0]!r}, which is the id of the document" if lost else ""


def _line(error: BaseException) -> str:
    """Return where in the function an error was raised."""
    trace = error.__traceback__ and error.__traceback__.tb_next
    return f" in line {trace.tb_lineno}" if trace else ""
