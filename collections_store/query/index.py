"""Index definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from .. import codec
from ..errors import (
    CollectionsStoreError,
    InvalidFilter,
    InvalidIndex,
    InvalidSort,
    cut,
    shortened,
)
from ..expressions.collation import Collation, KeysUnavailable, stored_key
from ..expressions.path import (
    ANY,
    Path,
    Wildcard,
    is_index,
    path_prefixes,
    path_repr,
)
from .conditions import (
    TIMES,
    Exists,
    Field,
    HasType,
    Matches,
    OneOf,
    scalars_of,
)
from .filter import Filter
from .parser import FilterParser
from .serving import MAX_OPENED, can_open, every_conjunct, is_indexable
from .sort import Sort, field_pairs

MAX_FIELDS: Final = 5
"""A row of PostgreSQL's indexes ends at 2,704 bytes."""
MAX_NAME: Final = 200
TYPES: Final = frozenset({"string", "object", "array", "bool", "null", "number"})
"""The types that both databases distinguish."""
MAX_POSITIONS: Final = 40
"""Keys of all fields of an index and of its `where`: each may need a small index of its own."""
MAX_LISTED: Final = 100
"""Values of an `$in` in the `where` of an index."""
MAX_EXPIRY: Final = 2**31 - 1
"""MongoDB's limit of `expire_after_seconds`."""
ID_INDEX: Final = "_id_"
"""MongoDB's name of the index of the ids."""
MAX_INDEXES: Final = 64
"""MongoDB's limit."""
_CODEC: Final = codec.Codec()
_KEYS: Final = (
    "name",
    "fields",
    "unique",
    "where",
    "arrays",
    "sparse",
    "expire_after_seconds",
    "collation",
    "key_name",
    "hidden",
    "physical",
)


@dataclass(frozen=True, slots=True)
class Index:
    """An index of a collection: its fields, and the documents in the index.

    >>> with Store("sqlite://") as store:
    ...     name = store["cities"].create_index([("country", 1), ("population", -1)])
    ...     print(*store["cities"].indexes())
    country_1_population_-1: {'country': 1, 'population': -1}
    """

    name: str
    sort: Sort
    unique: bool = False
    where: Filter | None = None
    arrays: bool = False
    sparse: bool = False
    expire_after_seconds: int | None = None
    collation: Collation | None = None
    key_name: str = field(default="", compare=False, repr=False)
    """The `Collation.key_name` of the keys in the index."""
    hidden: bool = field(default=False, compare=False)
    """Whether no query uses the index. Two indexes that differ in this alone are the same index."""
    physical: str = field(default="", compare=False, repr=False)
    unknown: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What a newer version of the library stores besides."""

    def __post_init__(self) -> None:
        parts: Any = self.name, self.sort, self.unique, self.arrays, self.physical, self.where
        kinds = (str, Sort, bool, bool, str, Filter | None)
        if not all(map(isinstance, parts, kinds)):
            raise InvalidIndex("", "must have parsed parts: use Index.parse")

    @classmethod
    def parse(
        cls,
        keys: Any,
        *,
        unique: bool = False,
        where: Any = None,
        arrays: bool = False,
        sparse: bool = False,
        expire_after_seconds: int | None = None,
        collation: Any = None,
        hidden: bool = False,
        name: Any = None,
    ) -> Self:
        """Read the arguments of a caller; raises `InvalidIndex`, `InvalidFilter` for `where`, and `InvalidOption` or
        `MissingExtra` for `collation`.
        """
        try:
            _check_names(keys)
            sort = read_keys(keys)
        except InvalidSort as error:
            raise InvalidIndex(error.field, error.problem) from None
        flags = {"unique": unique, "arrays": arrays, "sparse": sparse, "hidden": hidden}
        for option, value in flags.items():
            if not isinstance(value, bool):
                raise InvalidIndex(option, f"must be True or False, got {shortened(value)}")
        if any(isinstance(each.target, Wildcard) for each in sort.fields):
            is_alone = not (
                unique or sparse or where is not None or expire_after_seconds is not None
            )
            _check_wildcard(sort, is_alone=is_alone)
            arrays = True
        _check_fields(sort, arrays=arrays, unique=unique, sparse=sparse)
        if arrays and where is not None:
            raise InvalidIndex("where", "an index of arrays covers all documents")
        if sparse and where is not None:
            raise InvalidIndex(
                "where", "a sparse index has the documents with its fields, no others"
            )
        partial = None if where is None else _partial(Filter.parse(where))
        if expire_after_seconds is not None:
            _check_expiry(expire_after_seconds, sort, arrays=arrays)
        rules = collation if isinstance(collation, Collation) else Collation.parse(collation)
        others = {"arrays": arrays, "expire_after_seconds": expire_after_seconds}
        if rules is not None:
            _check_collated(sort, others)
            if partial is not None and partial.collated(rules) != partial:
                raise InvalidIndex("collation", "does not go with strings in where")
        options = unique, partial, arrays, sparse, expire_after_seconds, rules, "", hidden
        index = cls(name_of(name, sort, arrays=arrays), sort, *options)
        if (positions := len(prefixes_of(index))) > MAX_POSITIONS:
            problem = f"must have at most {MAX_POSITIONS} keys in all, with those of where, got {positions}"
            raise InvalidIndex(sort.fields[0].name, problem)
        return index

    def check(self) -> None:
        """Raise `InvalidIndex` or `InvalidFilter` for an index that only `from_json` returns, never `parse`."""
        options: Any = {"unique": self.unique, "where": self.where, "arrays": self.arrays}
        options |= {"sparse": self.sparse, "expire_after_seconds": self.expire_after_seconds}
        options["collation"] = self.collation and self.collation.to_json()
        options["hidden"] = self.hidden
        parsed = Index.parse(self.sort, **options, name=self.name)
        if parsed.arrays != self.arrays:
            raise InvalidIndex("arrays", "must be true in a wildcard index")
        if parsed != self:
            raise InvalidIndex("where", "must have conditions, or be null")

    @property
    def fields(self) -> tuple[tuple[str, int], ...]:
        """Field and direction, 1 or -1, the first field first."""
        return tuple((each.name, -1 if each.descending else 1) for each in self.sort.fields)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths of the fields of the body."""
        return tuple(each.target for each in self.sort.fields if isinstance(each.target, Path))

    @property
    def own_name(self) -> str | None:
        """The name, unless it is the default of the fields."""
        return None if self.name == name_of(None, self.sort, arrays=self.arrays) else self.name

    @property
    def has_entries(self) -> bool:
        """Whether a table of entries holds the keys, see `query.multikey`: of a unique or a compound index through arrays."""
        return self.arrays and (self.unique or len(self.sort.fields) > 1)

    @property
    def is_partial(self) -> bool:
        """Whether the index may lack documents that match a condition on its first field. An index through arrays serves
        only conditions on scalars in it.
        """
        return self.where is not None or (self.sparse and not self.arrays)

    def serves(self, collation: Collation | None) -> bool:
        """Return whether the index compares strings as queries under a collation do, None: by code point. An index with
        keys of another version of ICU or Unicode serves no query.
        """
        return self.collation == collation and (collation is None or self.has_readable_keys)

    @property
    def has_readable_keys(self) -> bool:
        """Whether this Python makes the keys of an index under a collation."""
        try:
            stored_key(self.key_name)
        except KeysUnavailable:
            return False
        return True

    @property
    def is_wildcard(self) -> bool:
        """Whether the index has the scalars at all paths that begin with its field."""
        return any(isinstance(path, Wildcard) for path in self.paths)

    @property
    def refuses(self) -> bool:
        """Whether the index can refuse a document: a duplicate, or two arrays side by side."""
        return self.unique or self.has_entries

    def __str__(self) -> str:
        more = [word for word in ("unique", "arrays", "sparse") if getattr(self, word)]
        if self.expire_after_seconds is not None:
            more.append(f"expires after {self.expire_after_seconds} s")
        if self.collation is not None:
            more.append(f"collation {self.collation.to_json()}")
        if self.where is not None:
            more.append(f"where {self.where}")
        if self.hidden:
            more.append("hidden")
        return f"{self.name}: {', '.join([str(dict(self.fields)), *more])}"

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the catalogue. Newer options are omitted unless they are set."""
        expiry = self.expire_after_seconds
        return {
            "name": self.name,
            "fields": [
                [
                    each.name
                    if isinstance(each.target, str | Wildcard)
                    else list(each.target.keys),
                    direction,
                ]
                for each, (_, direction) in zip(self.sort.fields, self.fields, strict=True)
            ],
            "unique": self.unique,
            "where": None if self.where is None else _as_stored(self.where.to_json()),
            "arrays": self.arrays,
            **({"sparse": True} if self.sparse else {}),
            **({"expire_after_seconds": expiry} if expiry is not None else {}),
            **({"collation": self.collation.to_json()} if self.collation is not None else {}),
            **({"key_name": self.key_name} if self.key_name else {}),
            **({"hidden": True} if self.hidden else {}),
            "physical": self.physical,
            **self.unknown,
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Self:
        """Read an entry of the catalogue."""
        pairs = [
            (keys if isinstance(keys, str) else Path(*keys), direction)
            for keys, direction in entry["fields"]
        ]
        sort = read_keys(pairs)
        where = None if entry["where"] is None else _stored_filter(entry["where"])
        parts = entry["name"], sort, entry["unique"], where, entry["arrays"]
        collation = entry.get("collation")
        rules = None if collation is None else Collation.from_json(collation)
        newer = entry.get("sparse", False), entry.get("expire_after_seconds")
        names = entry.get("key_name", ""), entry.get("hidden", False), entry["physical"]
        return cls(*parts, *newer, rules, *names, unknown_keys(entry, _KEYS))


def unknown_keys(entry: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """Return the entries of a stored document whose keys are not known."""
    return {key: value for key, value in entry.items() if key not in known}


def prefixes_of(index: Index) -> tuple[tuple[str, ...], ...]:
    """Return the path prefixes of the fields of an index, the paths included."""
    if index.arrays:
        return ()
    paths = [*index.paths, *(field.path for limit in limits_of(index) for field in limit)]
    return tuple(dict.fromkeys(each for path in paths for each in path_prefixes(path.keys)))


def limits_of(index: Index) -> tuple[tuple[Field, ...], ...]:
    """Return the conditions of a partial index: of each inner tuple at least one must hold. A sparse index has the
    documents with at least one of its fields.
    """
    if index.sparse:
        return (tuple(Field(path, Exists()) for path in index.paths),)
    every = () if index.where is None else every_conjunct(index.where.condition)
    return tuple((each,) for each in every if isinstance(each, Field))


def read_keys(keys: Any) -> Sort:
    """Return the fields and directions of an index, as `Sort.parse` does, also wildcards; raise `InvalidSort`."""
    if keys is None or isinstance(keys, Sort):
        return Sort.parse(keys)
    return Sort.parse([(_wildcard(field), direction) for field, direction in field_pairs(keys)])


def _wildcard(field: Any) -> Any:
    """Return the paths that a field such as "a.$**" stands for, or any other field unchanged."""
    if not isinstance(field, str) or field.rpartition(".")[2] != ANY:
        return field
    try:
        return Wildcard(*field.removeprefix("$body.").split(".")[:-1])
    except InvalidFilter as error:
        raise InvalidSort(field, error.problem) from None


def _check_names(keys: Any) -> None:
    """Raise `InvalidIndex` for dotted paths that are unlikely to mean their keys."""
    for name, _ in () if keys is None or isinstance(keys, Sort) else field_pairs(keys):
        if not isinstance(name, str):
            continue
        parts = name.removeprefix("$body.").split(".")
        key = f"For a key of the body write {cut(path_repr(parts))}"
        if parts[-1] == ANY:
            parts.pop()
        if not all(parts):
            raise InvalidIndex(name, f"a part of the path is empty. {key}")
        if parts != [name] and any(each.startswith("$") for each in parts):
            raise InvalidIndex(name, f"a part of the path begins with $. {key}")


def _check_wildcard(sort: Sort, *, is_alone: bool) -> None:
    field, target = next((e, e.target) for e in sort.fields if isinstance(e.target, Wildcard))
    if len(sort.fields) > 1 or field.descending or not is_alone:
        problem = "a wildcard index has one field, ascending, and no other options than name"
        raise InvalidIndex(field.name, problem)
    _check_names(field.name)
    is_odd = any(map(is_index, target.keys)) or target.keys[:1] == ("_id",)
    if is_odd or _wildcard(field.name) != target:
        problem = "must not begin with _id, and have no numbers and no keys with dots before $**"
        raise InvalidIndex(field.name, problem)


def _check_fields(sort: Sort, *, arrays: bool, unique: bool, sparse: bool) -> None:
    if not sort.fields:
        raise InvalidIndex("", "must have at least one field")
    if len(sort.fields) > MAX_FIELDS:
        problem = f"must have at most {MAX_FIELDS} fields, got {len(sort.fields)}"
        raise InvalidIndex(sort.fields[MAX_FIELDS].name, problem)
    for each in sort.fields:
        problem = ""
        if isinstance(each.target, str):
            if each.target == "id":
                problem = "the ids always have an index"
            elif each.target not in TIMES:
                times = "$created_at, $updated_at, $expires_at"
                problem = f"must be a field of the body or a time: {times}"
            elif arrays or unique or sparse:
                problem = "times cannot be in a unique or sparse index, or in one of arrays"
        elif isinstance(each.target, Wildcard):
            continue
        elif not each.target.keys:
            problem = "must name a field within the body"
        elif arrays and not can_open(each.target.keys):
            problem = f"must have at most {MAX_OPENED} keys in an index of arrays, and no numbers"
        if problem:
            raise InvalidIndex(each.name, problem)


def _check_expiry(seconds: Any, sort: Sort, *, arrays: bool) -> None:
    option, is_whole = "expire_after_seconds", type(seconds) is int
    if not is_whole or not 0 <= seconds <= MAX_EXPIRY:
        problem = f"must be an integer from 0 to {MAX_EXPIRY:,}, got {shortened(seconds)}"
        raise InvalidIndex(option, problem)
    if len(sort.fields) != 1 or isinstance(sort.fields[0].target, str):
        raise InvalidIndex(option, "requires an index on one field of the body")
    if arrays:
        problem = "arrays of times expire without arrays=True: create the index without it"
        raise InvalidIndex(option, problem)


def _check_collated(sort: Sort, others: Mapping[str, Any]) -> None:
    """Raise `InvalidIndex` for what does not go with a collation."""
    if not any(isinstance(each.target, Path) for each in sort.fields):
        raise InvalidIndex("collation", "must have a field of the body: times are no strings")
    for option, value in others.items():
        if value is not None and value is not False:
            raise InvalidIndex("collation", f"does not go with {option}")


def name_of(name: Any, sort: Sort, *, arrays: bool) -> str:
    """Return the name of an index: a caller's, or the default of its fields."""
    arrays = arrays and not isinstance(sort.fields[0].target, Wildcard)
    if arrays and len(sort.fields) == 1:
        default = sort.fields[0].name
    else:
        pairs = ((each.name, -1 if each.descending else 1) for each in sort.fields)
        default = "_".join(f"{field}_{direction}" for field, direction in pairs)
    default = f"{default}{'_arrays' if arrays else ''}"[:MAX_NAME]
    if name is None or (isinstance(name, str) and name == default):
        return default
    return read_own_name(name)


def read_own_name(name: Any) -> str:
    """Return the name that a caller gives an index; raises `InvalidIndex`."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
        problem = (
            f"must be a printable string of up to {MAX_NAME} characters, got {shortened(name)}"
        )
        raise InvalidIndex("name", problem)
    if name.startswith("$"):
        raise InvalidIndex("name", "must not begin with $, as the store's own indexes do")
    return name


def read_index_name(name: Any) -> str:
    """Return the name of an index to look for; raises `InvalidIndex`. Names made of fields hold any characters."""
    if not isinstance(name, str):
        raise InvalidIndex("name", f"must be a string, got {shortened(name)}")
    return name


def read_hidden_name(name: Any) -> str:
    """Return the name of an index to hide; raises `InvalidIndex`."""
    read = read_index_name(name)
    if read in {ID_INDEX, "$id"}:
        raise InvalidIndex("name", "must not be the index of the ids, which cannot be hidden")
    return read


def _partial(where: Filter) -> Filter | None:
    if where == Filter():
        return None
    for each in every_conjunct(where.condition):
        if not isinstance(each, Field) or not each.path.keys or not _can_limit(each):
            raise InvalidIndex(
                "where",
                "must have fields of the body that equal or are compared with scalars, $in, $exists: true "
                f"and $type ({', '.join(sorted(TYPES))}), joined by and, got {Filter(each)}",
            )
    try:
        written = _CODEC.encode(_as_stored(where.to_json()))
        is_same = _stored_filter(codec.decode(written)) == where
    except CollectionsStoreError:
        is_same = False
    if not is_same:
        raise InvalidIndex("where", "must not have keys that hold a dot or begin with $")
    return where


def _as_stored(document: Mapping[str | Path, Any]) -> dict[str, Any]:
    """Return the filter document of a partial index, with strings as keys."""
    return {
        f"$body.{key}" if isinstance(key, Path) else key: [_as_stored(each) for each in value]
        if key == "$and"
        else value
        for key, value in document.items()
    }


def _stored_filter(document: Any) -> Filter:
    """Return the filter of a catalogue's entry; older versions wrote the field `_id` as a plain field."""
    return Filter(FilterParser(_CODEC, names_id=False).document(document))


def _can_limit(field: Field) -> bool:
    match field.test:
        case Exists():
            return True
        case HasType(types):
            return set(types) <= TYPES
        case Matches():
            return False
        case OneOf(lists) if (count := sum(len(scalars_of(each)) for each in lists)) > MAX_LISTED:
            raise InvalidIndex("where", f"$in must have at most {MAX_LISTED} values, got {count}")
    return is_indexable(field, {field.path.keys})


# -- explanations ------------------------------------------------------------------------------
