"""Which requests see a page, and which may change something."""

import re
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.testclient import TestClient
from studio.browsing import HOST, browser

from collections_store import InvalidOption, MissingExtra, Store
from collections_store.studio import studio
from collections_store.studio.aio import Admission, application
from collections_store.studio.app import PAGES, pages_over
from collections_store.studio.pages import FOLDER, Call, PageRoute, StudioContext
from collections_store.studio.security import HostNames, Tokens
from collections_store.studio.server import ListenAddress

PLAIN = {"a": 1}


@pytest.fixture
def shelf() -> Iterator[Store]:
    with Store("sqlite://") as store:
        store["things"].put("x", PLAIN)
        yield store


def at_the_door(store: Store, tokens: Tokens, host: str = HOST) -> TestClient:
    app = pages_over(
        store, Admission(tokens=tokens, hosts=HostNames("127.0.0.1", 8421)), write=True
    )
    return TestClient(app, base_url=f"http://{host}", follow_redirects=False)


def test_a_generated_token_opens_one_session(shelf: Store) -> None:
    tokens = Tokens()
    first, second = at_the_door(shelf, tokens), at_the_door(shelf, tokens)
    assert first.get("/").status_code == 401
    answer = first.get(f"/?token={tokens.token}")
    assert answer.status_code == 303
    assert tokens.token not in answer.headers["location"]
    assert re.search(r"HttpOnly; Path=/; SameSite=strict$", answer.headers["set-cookie"])
    assert "things" in first.get("/").text
    assert second.get(f"/?token={tokens.token}").status_code == 401
    assert second.get("/").status_code == 401


def test_a_given_token_opens_any_number_of_sessions(shelf: Store) -> None:
    tokens = Tokens("chosen")
    for _ in range(2):
        client = at_the_door(shelf, tokens)
        assert client.get("/?token=other").status_code == 401
        answer = client.get("/c/things?token=chosen&sort=a")
        assert (answer.status_code, answer.headers["location"]) == (303, "/c/things?sort=a")
        assert client.get("/").status_code == 200


@pytest.mark.parametrize(
    "page", [each for each in PAGES if each.method == "GET"], ids=lambda each: each.path
)
def test_no_page_is_shown_without_a_session(shelf: Store, page: object) -> None:
    path = page.path.replace("{name}", "things")  # type: ignore[attr-defined]
    answer = at_the_door(shelf, Tokens()).get(path)
    assert answer.status_code == 401
    assert "things" not in answer.text.replace(path, "")


@pytest.mark.parametrize(
    "page", [each for each in PAGES if each.method != "GET"], ids=lambda each: each.path
)
def test_a_form_of_another_page_changes_nothing(shelf: Store, page: object) -> None:
    path = page.path.replace("{name}", "things")  # type: ignore[attr-defined]
    client = browser(shelf, write=True)
    for headers in ({}, {"Origin": "http://attacker.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert client.post(path, data={"form_token": "0" * 64}, headers=headers).status_code == 403
    assert shelf["things"].get("x") == PLAIN


@pytest.mark.parametrize(
    "host", ["attacker.example:8421", "127.0.0.1:80", "localhost", "127.0.0.1:x"]
)
def test_a_foreign_host_is_refused(shelf: Store, host: str) -> None:
    for path in ("/", "/static/studio.css"):
        answer = browser(shelf).get(path, headers={"Host": host})
        assert answer.status_code == 421
        assert "things" not in answer.text


@pytest.mark.parametrize("path", ["/", "/nowhere", "/static/studio.js", "/static/../app.py"])
def test_every_response_forbids_scripts_from_elsewhere(shelf: Store, path: str) -> None:
    headers = browser(shelf).get(path).headers
    policy = headers["content-security-policy"]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] in {"no-store", "no-cache"}


def test_templates_have_no_script_or_style_of_their_own() -> None:
    for path in FOLDER.glob("templates/*.html"):
        text = path.read_text()
        assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=|javascript:", text), (
            path.name
        )
        assert not re.search(r"\|\s*safe|autoescape", text), path.name


def test_a_page_loads_nothing_from_a_network() -> None:
    for path in (*FOLDER.glob("templates/*"), *FOLDER.glob("static/*")):
        assert not re.findall(r"https?://(?!www\.w3\.org/)", path.read_text()), path.name
    assert sum(path.stat().st_size for path in FOLDER.glob("static/*.js")) <= 30 * 1024


def test_the_studio_stays_light() -> None:
    """2,500 lines of Python without blank ones, and 30 KB of script."""
    lines = [line for path in FOLDER.glob("*.py") for line in path.read_text().splitlines()]
    assert len([line for line in lines if line.strip()]) <= 2500
    assert sum(path.stat().st_size for path in (FOLDER / "static").glob("*.js")) <= 30_000


def test_a_link_leads_nowhere_else(shelf: Store) -> None:
    tokens = Tokens("chosen")
    for path in ("//attacker.example/", "/\\attacker.example", "/%5cattacker.example"):
        answer = at_the_door(shelf, tokens).get(f"http://{HOST}{path}?token=chosen")
        assert not re.match(r"(https?:)?[/\\]{2}|/\\", answer.headers.get("location", ""))


async def admitted_later(request: Request) -> bool:
    return request.headers.get("x-person") == "ada"


@pytest.mark.parametrize(
    "authorize", [lambda request: request.headers.get("x-person") == "ada", admitted_later]
)
def test_another_application_decides_who_sees_the_pages(
    shelf: Store, authorize: Callable[[Request], bool | Awaitable[bool]]
) -> None:
    app = Starlette()
    app.mount("/studio", studio(shelf, authorize=authorize))
    client = TestClient(app, base_url="http://intranet.example")
    refused = client.get("/studio/")
    assert refused.status_code == 403
    assert shelf.core.shown not in refused.text
    page = client.get("/studio/", headers={"X-Person": "ada"})
    assert page.status_code == 200
    assert 'href="/studio/c/things"' in page.text
    links = re.findall(r'(?:href|src|action)="([^"#]+)"', page.text)
    assert [link for link in links if not link.startswith("/studio/")] == []
    assert "Path=/studio;" in page.headers["set-cookie"]
    assert client.get("/studio/static/studio.css").status_code == 200


def test_other_arguments_are_refused(shelf: Store) -> None:
    with pytest.raises(InvalidOption, match="option authorize: must be a function, got None"):
        studio(shelf, authorize=None)  # type: ignore[arg-type]
    with pytest.raises(
        InvalidOption, match="option store: must be a Store or an AsyncStore, got 'x'"
    ):
        studio("x", authorize=bool)  # type: ignore[arg-type]


def test_an_address_beyond_the_machine_needs_a_token() -> None:
    with pytest.raises(
        InvalidOption, match="option --host: must be a loopback address, or --token"
    ):
        ListenAddress("0.0.0.0").listen()
    with (
        ListenAddress("0.0.0.0", token="chosen").listen(),
        ListenAddress("::1").listen(),
        ListenAddress().listen(),
    ):
        pass


def test_answers_are_not_delayed() -> None:
    """asyncio sets TCP_NODELAY only on sockets of this protocol; without it each answer waited 40 ms for the client."""
    with ListenAddress().listen() as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        assert accepted.proto == socket.IPPROTO_TCP
        accepted.close()


def test_the_names_of_an_open_address_are_its_own() -> None:
    names = HostNames("0.0.0.0", 80)
    assert names.accept("192.0.2.7")
    assert names.accept("[2001:db8::1]:80")
    assert not names.accept("attacker.example")
    assert not HostNames("192.0.2.7", 80).accept("192.0.2.8")


def test_an_unexpected_error_is_logged_and_not_shown(
    shelf: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(call: Call) -> Response:
        raise ZeroDivisionError(f"secret of {call.name}")

    page = PageRoute("/c/{name}", fail)
    app = application([page], StudioContext(shelf, write=False), Admission(lambda _: True))
    answer = TestClient(app).get("/c/things")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "secret of things" in caplog.text


def test_an_error_of_the_library_is_shown(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'none' / 'x.db'}") as store:
        answer = browser(store).get("/")
    assert answer.status_code == 503
    assert "unable to open" in answer.text or "cannot" in answer.text


def test_a_closed_store_is_not_a_fault_of_the_reader() -> None:
    with Store("sqlite://") as store:
        client = browser(store)
    assert client.get("/").status_code == 503


@pytest.mark.parametrize(
    "page",
    [each.path for each in PAGES if each.path.startswith("/c/") and each.method == "GET"],
)
def test_an_unknown_collection_has_no_pages(shelf: Store, page: str) -> None:
    client = browser(shelf, write=True)
    assert client.get(page.replace("{name}", "none")).status_code == 404
    assert [each.name for each in shelf.collections()] == ["things"]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import collections_store.studio as package

    monkeypatch.setitem(__import__("sys").modules, "collections_store.studio.app", None)
    with pytest.raises(MissingExtra, match=r"pip install 'collections-store\[studio\]'"):
        package.__getattr__("studio")
