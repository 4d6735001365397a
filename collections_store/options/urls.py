"""URLs of databases: reading a URL, and printing a URL without passwords."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

import sqlalchemy as sa

from ..errors import InvalidUrl, shortened


def read_url(url: str | sa.URL) -> sa.URL:
    """Return a parsed database URL; raises `InvalidUrl`, never with a password."""
    if not isinstance(url, str | sa.URL):
        raise InvalidUrl(f"a URL must be a string or a sqlalchemy.URL, got {shortened(url)}")
    try:
        read = sa.make_url(_with_hosts_as_options(url) if isinstance(url, str) else url)
        return read.set(drivername="postgresql") if read.drivername == "postgres" else read
    except (sa.exc.ArgumentError, ValueError):
        path = _PATH.fullmatch(url) if isinstance(url, str) else None
        if path is not None:
            use = "sqlite://" if path[1] == ":memory:" else f"sqlite:///{path[1]}"
            raise InvalidUrl(f"{url!r} is a path, not a URL: use {use}") from None
        raise InvalidUrl(
            "the URL cannot be read: use sqlite:///file.db, sqlite:// (in memory) or "
            "postgresql://user:password@host/database"
        ) from None


_PATH: Final = re.compile(
    r"(?:sqlite:)?(:memory:|(?:[A-Za-z]:(?=[\\/]))?(?=.*[.\\/])[^:@=?#%,~\0]+)"
)
"""A path where a URL should be, but no other form of a URL: that may hold a password."""
_LIBPQ_HOSTS: Final = re.compile(
    "(postgres[^/]*://(?:[^@/?]*@)?)([^@/?]*[,%][^@/?]*)((?:/[^@?]*)?(?:[?].*)?)", re.DOTALL
)
_HOST: Final = re.compile(r"(\[[^]]*\]|[^:]*)(?::([0-9]*))?")


def _with_hosts_as_options(url: str) -> sa.URL | str:
    """Return libpq's URLs of several hosts, `//h1:p1,h2:p2/db`, and of a socket, `//%2Frun/db`, as SQLAlchemy has them."""
    found = _LIBPQ_HOSTS.fullmatch(url)
    if found is None:
        return url
    hosts = [_HOST.fullmatch(each) for each in found[2].split(",")]
    if None in hosts:
        raise ValueError("no host and port")
    names, ports = zip(
        *((unquote(each[1].strip("[]")), each[2] or "") for each in hosts if each), strict=True
    )
    options = {"host": ",".join(names)} | ({"port": ",".join(ports)} if any(ports) else {})
    return sa.make_url(found[1] + found[3]).update_query_dict(options)


def safe_url(url: sa.URL) -> str:
    """Return a URL without passwords: before the host, in options, and in the URL of replicas.

    >>> import sqlalchemy as sa
    >>> safe_url(sa.make_url("postgresql://me:secret@host/db?sslpassword=secret&sslmode=require"))
    'postgresql://me:***@host/db?sslmode=require&sslpassword=...'
    """
    hidden = {
        option: "..." for option in url.query if "passw" in option.lower() or option == "replicas"
    }
    return url.update_query_dict(hidden).render_as_string(hide_password=True)
