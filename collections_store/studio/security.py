"""The rules for requests to pages.

Rules:

1. A page needs a session, or in an application of the user's own the consent of `authorize`.
2. The command accepts the names of its own address as Host. Another name may be an attacker's, whose DNS leads to this address.
3. A request that writes comes from a page of the studio: the Origin is the Host, and the form has the token of the cookie.
4. A page loads scripts and styles from the studio alone, and is in no frame.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
import socket
from typing import Final
from urllib.parse import urlsplit

COOKIE: Final = "collections_store_studio"
MAX_FORM: Final = 64 * 2**20
"""Bytes of a form. The encoding of a form makes a body up to three times as long."""
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class Tokens:
    """The token of the link, and the opened sessions. A generated token opens one session, a given token any number."""

    def __init__(self, given: str | None = None) -> None:
        self.token = given or secrets.token_urlsafe(24)
        self._is_reusable = given is not None
        self._is_used = False
        self._sessions: set[str] = set()

    def open_session(self, token: str) -> str | None:
        """Return a new session; None if the token is not valid."""
        is_right = secrets.compare_digest(token.encode(), self.token.encode())
        if not is_right or (self._is_used and not self._is_reusable):
            return None
        self._is_used = True
        session = new_session()
        self._sessions.add(session)
        return session

    def has_session(self, session: str) -> bool:
        """Return whether a token opened the session."""
        return session in self._sessions


def new_session() -> str:
    """Return the value of a new cookie."""
    return secrets.token_urlsafe(24)


def form_token(session: str) -> str:
    """Return the token of the forms of a session. The token does not reveal the session.

    >>> form_token("session")[:8]
    'a8119f07'
    """
    return hashlib.sha256(f"form:{session}".encode()).hexdigest()


def is_own_form(session: str, token: str, host: str, origin: str | None, site: str | None) -> bool:
    """Return whether a form comes from a page of the studio, by the headers Host, Origin and Sec-Fetch-Site.

    >>> is_own_form("s", form_token("s"), "localhost:8000", "http://localhost:8000", "same-origin")
    True
    >>> is_own_form("s", form_token("s"), "localhost:8000", "http://attacker.example", None)
    False
    """
    is_same_site = site in {None, "same-origin"}
    is_same_host = origin is None or urlsplit(origin).netloc == host
    is_known = bool(session) and secrets.compare_digest(
        token.encode(), form_token(session).encode()
    )
    return is_same_site and is_same_host and is_known


def is_loopback(host: str) -> bool:
    """Return whether an address of the server is reachable from this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class HostNames:
    """The values of the header Host that the server accepts. An address for all interfaces (`0.0.0.0`, `::`) accepts
    every IP address, and the names of the machine.

    >>> names = HostNames("127.0.0.1", 8000)
    >>> names.accept("localhost:8000"), names.accept("attacker.example:8000")
    (True, False)
    """

    def __init__(self, host: str, port: int) -> None:
        self._port, self._is_any = port, host in {"0.0.0.0", "::"}
        own = (socket.gethostname(), socket.getfqdn()) if self._is_any else ()
        self._names = {host.lower(), *_LOOPBACK, *(name.lower() for name in own)}

    def accept(self, value: str) -> bool:
        """Return whether a page may be served under this Host."""
        try:
            parts = urlsplit(f"//{value}")
            name, port = (parts.hostname or "").lower(), parts.port or 80
        except ValueError:
            return False
        return port == self._port and (name in self._names or (self._is_any and _is_address(name)))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
