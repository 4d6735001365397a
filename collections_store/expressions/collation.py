"""Collations: strings compare by the rules of a language, as ICU knows the rules.

A `Collation` turns a string into its key: the keys of two strings compare by code point as the collation compares the
strings. So values are compared under a collation by comparing `keyed` values, with the same functions as other values.
A function that compares values takes an `Ordered`: either whether the order of an object's keys counts, or a
`Collator`, which also has a collation.

ICU comes with the package PyICU, in the extra `collation`. The locale "simple" with a strength folds case and accents
without ICU. Python alone decides under a collation, whatever ICU the database has: both databases then give the same
results.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import ModuleType
from typing import Any, Final, TypeAlias

from ..errors import InvalidOption, MissingExtra, shortened
from .folding import folded_case, folded_marks

SIMPLE: Final = "simple"
"""The locale without a language: strings compare by code point, with a strength by the code points of a folded form."""
CACHED: Final = 64
_STRENGTHS: Final = ("primary", "secondary", "tertiary", "quaternary", "identical")
_FLAGS: Final = {False: "no", True: "yes"}
_VALUES: Final[dict[str, tuple[str, dict[Any, str]]]] = {
    "strength": ("colStrength", dict(enumerate(_STRENGTHS, 1))),
    "caseLevel": ("colCaseLevel", _FLAGS),
    "caseFirst": ("colCaseFirst", {"upper": "upper", "lower": "lower", "off": "no"}),
    "numericOrdering": ("colNumeric", _FLAGS),
    "alternate": ("colAlternate", {"non-ignorable": "non-ignorable", "shifted": "shifted"}),
    "maxVariable": ("kv", {"punct": "punct", "space": "space"}),
    "normalization": ("colNormalization", _FLAGS),
    "backwards": ("colBackwards", _FLAGS),
}
"""MongoDB's options of a collation. For each: ICU's keyword, and the keyword's value for each value of the option."""
Options: TypeAlias = tuple[tuple[str, Any], ...]
_FOLDINGS: Final[Mapping[str, Callable[[str], str]]] = {
    "simple@colStrength=primary": folded_marks,
    "simple@colStrength=secondary": folded_case,
}
"""The folded forms of the locale "simple", by `Collation.icu_locale`."""
_AFTER_VERSION: Final = "|"
_WITHOUT: Final = 'for simple folding without PyICU use {"locale": "simple", "strength": 1 or 2}'
_LOCALE: Final = re.compile(r"([A-Za-z0-9_]+)(?:@collation=([a-z]+))?")


@dataclass(frozen=True, slots=True)
class Collation:
    """The rules by which strings compare.

    >>> Collation.parse({"locale": "simple"}) is None
    True
    """

    locale: str
    options: Options = ()
    """MongoDB's options, in the order of their names, without those with the value of the locale."""
    spelled: Options = field(init=False, compare=False, repr=False)
    """The options as given."""
    key: Callable[[str], str] = field(init=False, compare=False, repr=False)
    """Return the key of a string."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "spelled", self.options)
        try:
            object.__setattr__(self, "options", _without_defaults(self.locale, self.options))
            key = _key_function(self.icu_locale)
        except MissingExtra:  # an index may have the collation, and be listed without ICU
            key = _without_icu
        object.__setattr__(self, "key", key)

    def __reduce__(self) -> tuple[type[Collation], tuple[Any, ...]]:
        """Pickle what the key is made of: ICU's function is of this process."""
        return Collation, (self.locale, self.options)

    @classmethod
    def parse(cls, given: Any) -> Collation | None:
        """Read the collation of a call; None for no collation and the locale "simple" alone. Raises `InvalidOption`, and
        `MissingExtra` without PyICU, which the locale "simple" does not need.
        """
        if given is None:
            return None
        if not isinstance(given, Mapping) or not isinstance(given.get("locale"), str):
            problem = f'must be a mapping such as {{"locale": "en"}}, got {shortened(given)}'
            raise InvalidOption("collation", problem)
        options = {name: value for name, value in given.items() if name != "locale"}
        for name, value in options.items():
            _check(name, value)
        if given["locale"] == SIMPLE:
            return _simple(options)
        _icu()
        _check_together(options)
        _check_locale(given["locale"])
        return cls(given["locale"], tuple(sorted(options.items())))

    @property
    def version(self) -> str:
        """The version of the tables that make the keys: keys of different versions do not compare."""
        return _version(self.icu_locale)

    @property
    def key_name(self) -> str:
        """The name of the keys, for `stored_key`: the version of their tables, then the locale and the options."""
        return f"{self.version}{_AFTER_VERSION}{self.icu_locale}"

    @property
    def icu_locale(self) -> str:
        """The locale and the options as ICU names them."""
        return _icu_locale(self.locale, self.options)

    def keyed(self, value: Any) -> Any:
        """Return a value with keys in place of its strings. The names of fields remain."""
        return keyed(value, self.key)

    def to_json(self) -> dict[str, Any]:
        """Return the collation as `parse` reads it."""
        return {"locale": self.locale, **dict(self.options)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Collation:
        """Read `to_json`. Keys are made only with ICU, but none is needed to read."""
        options = {name: value for name, value in stored.items() if name != "locale"}
        return cls(stored["locale"], tuple(sorted(options.items())))


@dataclass(frozen=True, slots=True)
class Collator:
    """How values compare under a collation. True if the order of an object's keys counts."""

    collation: Collation
    ordered: bool

    def __bool__(self) -> bool:
        return self.ordered

    def keyed(self, value: Any) -> Any:
        return self.collation.keyed(value)


Ordered: TypeAlias = bool | Collator


def under(collation: Collation | None, ordered: Ordered) -> Ordered:
    """Return how values compare under a collation, if there is one."""
    return ordered if collation is None else Collator(collation, bool(ordered))


class KeysUnavailable(Exception):
    """This Python cannot make the keys of an index: ICU is missing, or its tables are of the version `found`."""

    def __init__(self, name: str, found: str | None) -> None:
        super().__init__(name, found)
        self.name, self.found = name, found
        self.version = name.partition(_AFTER_VERSION)[0]


def stored_key(name: str) -> Callable[[str], str]:
    """Return the function that makes the keys of a `Collation.key_name`; raises `KeysUnavailable`."""
    version, _, locale = name.partition(_AFTER_VERSION)
    try:
        found = _version(locale)
    except MissingExtra:
        raise KeysUnavailable(name, None) from None
    if found != version:
        raise KeysUnavailable(name, found)
    return _key_function(locale)


def keyed(value: Any, key: Callable[[str], str]) -> Any:
    """Return a value with keys in place of its strings. The names of fields remain."""
    kind = type(value)
    if kind is str:
        return key(value)
    if kind is list:
        return [keyed(each, key) for each in value]
    if kind is dict:
        return {name: keyed(each, key) for name, each in value.items()}
    return value


def _version(locale: str) -> str:
    if locale in _FOLDINGS:
        return f"unicode {unicodedata.unidata_version}"
    return f"icu {_icu().ICU_VERSION}"


def _without_icu(_: str) -> str:
    raise MissingExtra("PyICU", "collation", _WITHOUT)


def _icu() -> ModuleType:
    try:
        import icu
    except ImportError:
        raise MissingExtra("PyICU", "collation", _WITHOUT) from None
    found: ModuleType = icu
    return found


def _icu_locale(locale: str, options: Options) -> str:
    base, _, type = locale.partition("@collation=")
    keywords = {"collation": type} if type else {}
    for name, value in options:
        keyword, values = _VALUES[name]
        keywords[keyword] = values[value]
    joined = ";".join(f"{name}={value}" for name, value in sorted(keywords.items()))
    return f"{base}@{joined}" if joined else base


@lru_cache(maxsize=CACHED)
def _without_defaults(locale: str, options: Options) -> Options:
    """Return the options without those whose omission changes nothing in ICU."""
    if locale == SIMPLE or not options:
        return options
    wanted, needed = _collator(_icu_locale(locale, options)), options
    for option in options:
        rest = tuple(each for each in needed if each != option)
        if _collator(_icu_locale(locale, rest)) == wanted:
            needed = rest
    return needed


def _collator(locale: str) -> Any:
    icu = _icu()
    return icu.Collator.createInstance(icu.Locale(locale))


@lru_cache(maxsize=CACHED)
def _key_function(locale: str) -> Callable[[str], str]:
    if locale in _FOLDINGS:
        return _FOLDINGS[locale]
    sort_key: Callable[[str], bytes] = _collator(locale).getSortKey

    def key(string: str) -> str:
        return sort_key(string)[:-1].decode("latin-1")  # ICU ends a key with a NUL

    return key


def _simple(options: Mapping[str, Any]) -> Collation | None:
    """Return the collation of the locale "simple"; None without a strength."""
    if not options:
        return None
    if list(options) != ["strength"] or options["strength"] > 2:
        must = 'must be alone or with a strength of 1 or 2 with the locale "simple"'
        raise InvalidOption("collation", f"{must}, got {shortened(options)}")
    return Collation(SIMPLE, tuple(options.items()))


def _check(name: Any, value: Any) -> None:
    if not isinstance(name, str) or name not in _VALUES:
        known = ", ".join(["locale", *_VALUES])
        raise InvalidOption("collation", f"must have keys of {known}, got {shortened(name)}")
    values = _VALUES[name][1]
    kind: type = type(next(iter(values)))
    if type(value) is not kind or value not in values:
        wanted = " or ".join(map(repr, values))
        raise InvalidOption(f"collation.{name}", f"must be {wanted}, got {shortened(value)}")


def _check_together(options: Mapping[str, Any]) -> None:
    """Refuse what MongoDB refuses: options that have no effect with others."""
    strength = options.get("strength", 3)
    if options.get("backwards") and strength == 1:
        raise InvalidOption("collation.backwards", "does not go with strength 1")
    if options.get("caseFirst", "off") != "off" and strength < 3 and not options.get("caseLevel"):
        problem = "goes with caseLevel or a strength of 3 or more"
        raise InvalidOption("collation.caseFirst", problem)


@lru_cache(maxsize=CACHED)  # ICU makes a list of all locales
def _check_locale(locale: str) -> None:
    icu, match = _icu(), _LOCALE.fullmatch(locale)
    base, type = match.groups() if match else ("", None)
    if base not in icu.Collator.getAvailableLocales():
        problem = f'must be a locale with a collation in ICU, such as "en" or "de_AT", got {shortened(locale)}'
        raise InvalidOption("collation.locale", problem)
    types = set(icu.Collator.getKeywordValuesForLocale("collation", icu.Locale(base), False))
    if type is not None and type not in types:
        names = ", ".join(sorted(types))
        raise InvalidOption("collation.locale", f"must have a collation of {names}, got {type}")
