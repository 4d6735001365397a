"""The keys of indexes under a collation, stored beside the body where the database cannot make them.

Each written text brings them along, see `with_keys`. The column has one entry for each field of such an index, and a digest of the body: the table
refuses a body without its own keys. So it refuses writes of other programs, and of a store that does not know of a new index yet.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Sequence
from functools import partial
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


def entry_of(key_name: str, keys: Keys) -> str:
    """Return the name of the entry of a field in the column."""
    return codec.spell([key_name, *keys])


def entries_of(indexes: Iterable[Index]) -> list[str]:
    """Return the names of the entries in the column."""
    return [entry_of(*each) for each in keyed_paths(indexes)]


def column_of(entries: Sequence[str]) -> str:
    """Return the name of the column; "" without entries. Other entries have another column: a statement of a store that
    knows a dropped index fails, because no new row has its entry.
    """
    if not entries:
        return ""
    return f"keys_{hashlib.sha256(codec.spell(entries).encode()).hexdigest()[:16]}"


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
