"""Ids of documents for the names of frameworks: paths, whose parts may contain any characters."""


def under(prefix: str) -> dict[str, str]:
    """Return the condition on ids that begin with a prefix and `/`.

    >>> under("weather/ada")
    {'$gte': 'weather/ada/', '$lt': 'weather/ada0'}
    """
    return {"$gte": f"{prefix}/", "$lt": f"{prefix}0"}  # 0 is the character after /


def escaped(name: str) -> str:
    """Return a name as a part of a path.

    >>> escaped("a/b")
    'a%2Fb'
    """
    return name.replace("%", "%25").replace("/", "%2F")


def unescaped(part: str) -> str:
    """Return the name of an escaped part."""
    return part.replace("%2F", "/").replace("%25", "%")


def sized(name: str) -> str:
    """Return an unescaped name as the first part of a path. With the name's length, no two names share an id.

    >>> sized("a/b")
    '3:a/b'
    """
    return f"{len(name)}:{name}"
