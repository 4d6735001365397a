"""The keys of indexes under a collation, stored beside the body where the database cannot make them.

Each written text brings them along, see `with_keys`. The column has one entry for each field of such an index, and a digest of the body: the table
refuses a body without its own keys. So it refuses writes of other programs, and of a store that does not know of the first such index yet. A
store that knows other indexes names another column.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeAlias

from .. import codec
from ..expressions.collation import keyed, stored_key
from ..query.index import Index
from ..query.matcher import value_at
from .elements import Keys

KeyedPath: TypeAlias = tuple[str, Keys]
"""The `Collation.key_name` of keys, and the keys from the top of a body to the field."""


_CODEC: Final = codec.Codec(max_bytes=sys.maxsize)
"""Spells the numbers of keys as those of bodies; a key may be longer than its string."""


def keyed_paths(indexes: Iterable[Index]) -> tuple[KeyedPath, ...]:
    """Return the fields with keys."""
    found = {(each.key_name, path.keys) for each in indexes if each.key_name for path in each.paths}
    return tuple(sorted(found))


def column_of(paths: Sequence[KeyedPath]) -> str:
    """Return the name of the column of fields with keys; empty for none. Other fields have another name: a statement for the fields
    of before does not run.
    """
    return f"keys_{sha256(codec.spell(paths).encode()).hexdigest()[:16]}" if paths else ""


def entry_of(key_name: str, keys: Keys) -> str:
    """Return the name of the entry of a field in the column."""
    return codec.spell([key_name, *keys])


def with_keys(text: str, body: Any, paths: Sequence[KeyedPath]) -> str:
    """Return the text of an object with a body, whose text is given, too, and its keys."""
    keys = {
        entry_of(name, path): keyed(value_at(body, path), partial(_key, name))
        for name, path in paths
    }
    return f'{{"body":{text},"keys":{_CODEC.encode_body(keys)}}}'


def _key(name: str, string: str) -> str:
    """Return a key: the function is looked up for strings alone, because a document without strings needs no ICU."""
    return stored_key(name)(string)
