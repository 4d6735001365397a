"""The command studio, as a process."""

import re
import signal
import threading
from contextlib import suppress
from pathlib import Path

import httpx2 as httpx
import pytest
from backends import Backend
from cli.cli_process import Cli
from studio.browsing import studio_at

from collections_store import Store
from collections_store.cli.output import Exit


def test_the_link_opens_the_pages_and_a_signal_ends_them(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'things.db'}"
    with Store(url) as store:
        store["things"].put("x", 1)
    with studio_at(url) as (process, link), httpx.Client(follow_redirects=True) as client:
        assert "things" in client.get(link).text
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == Exit.INTERRUPTED
        assert process.stderr is not None
        assert process.stderr.read() == "Press Ctrl-C to end it.\n"


@pytest.mark.parametrize("write", [False, True])
def test_each_database_is_served(shared_backend: Backend, write: bool) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["things"].put("x", 1)
    names = [f"--{name}={value}" for name, value in shared_backend.options.items()]
    with (
        studio_at(shared_backend.url, *names, *(["--write"] if write else [])) as (_, link),
        httpx.Client(follow_redirects=True) as client,
    ):
        page = client.get(link)
        assert "things" in page.text
        assert ("top danger" in page.text) is (write and shared_backend.is_postgresql)
        assert client.get(f"{link.partition('?')[0]}c/things/document?id=x").status_code == 200


def test_two_studios_share_a_browser(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'things.db'}"
    with Store(url) as store:
        store["things"].put("x", 1)
    with studio_at(url) as (_, one), studio_at(url) as (_, other), httpx.Client() as client:
        for link in (one, other):
            assert client.get(link).status_code == 303
        for link in (one, other):
            assert client.get(link.partition("?")[0]).status_code == 200


def test_a_signal_ends_a_page_that_waits(tmp_path: Path) -> None:
    """The page waits for a writer: its own write is not done afterwards."""
    url = f"sqlite:///{tmp_path / 'things.db'}"
    with Store(url) as store, httpx.Client(timeout=60) as client:
        store["things"].put("x", 1)
        with studio_at(url, "--write") as (process, link), store.transaction() as transaction:
            transaction["things"].put("x", 2)
            client.get(link)
            form = f"{link.partition('?')[0]}c/things/new"
            [token] = re.findall(r'name="form_token" value="(\w+)"', client.get(form).text)
            fields = {"form_token": token, "id": "y", "body": "1"}
            page = threading.Thread(target=_post, args=(client, form, fields))
            page.start()
            page.join(1)
            assert page.is_alive()
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=20) == Exit.INTERRUPTED
            page.join()
        assert [each.id for each in store["things"].list()] == ["x"]


def _post(client: httpx.Client, url: str, fields: dict[str, str]) -> None:
    with suppress(httpx.TransportError):
        client.post(url, data=fields)


def test_a_token_of_ones_own_is_part_of_the_link(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'things.db'}"
    with Store(url) as store:
        store["things"].put("x", 1)
    with studio_at(url, "--token", "chosen", "--host", "localhost") as (_, link):
        assert re.fullmatch(r"http://localhost:\d+/\?token=chosen", link)


def test_what_cannot_be_served_is_refused(tmp_path: Path) -> None:
    cli = Cli()
    missing = f"sqlite:///{tmp_path / 'none.db'}"
    message = cli.fails(Exit.UNAVAILABLE, "studio", missing)
    assert "there is no SQLite file" in message
    assert message.endswith("name another database with the argument URL")
    assert not (tmp_path / "none.db").exists()
    there = f"sqlite:///{tmp_path / 'there.db'}"
    Cli((f"--url={there}",)).done("put", "things", "x", "1")
    message = cli.fails(Exit.UNAVAILABLE, "studio", there, "--compare", missing, "--no-browser")
    assert message.endswith("name another database with --compare")
    with Store(missing) as store:
        store["things"].put("x", 1)
    message = cli.fails(Exit.USAGE, "studio", missing, "--host", "0.0.0.0", "--no-browser")
    assert message.startswith("option --host: must be a loopback address, or --token must be given")
    message = cli.fails(Exit.USAGE, "studio", missing, "--token", "", "--no-browser")
    assert message.startswith("option --token: must not be empty")


def test_a_model_of_ones_own_checks_the_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "studio_models.py").write_text(
        "from dataclasses import dataclass\n@dataclass\nclass Thing:\n    a: int\n"
    )
    monkeypatch.chdir(tmp_path)
    url = "sqlite:///things.db"
    with Store(url) as store:
        store["Thing"].put("x", {"a": "one"})
    with studio_at(url, "--using", "studio_models:Thing") as (_, link), httpx.Client() as client:
        client.get(link)
        page = client.get(link.partition("?")[0] + "c/Thing/document?id=x")
        assert "invalid" in page.text
    message = Cli().fails(Exit.USAGE, "studio", url, "--using", "studio_models:Things")
    assert "the module 'studio_models' has no 'Things'" in message
