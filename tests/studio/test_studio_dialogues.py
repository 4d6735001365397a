"""The pages of dialogues, over each backend, sync and async."""

import html
import re
from typing import Any

import pytest
from studio.browsing import browser

from collections_store import Store
from collections_store.dialogues import DialogueLabel, Dialogues
from collections_store.dialogues.records import DialogueNamespace, message_id
from collections_store.studio import dialogues

HOSTILE = "<script>alert(1)</script>'\"><img src=x onerror=alert(2)>{{ 7 * 7 }}"
NAMES = DialogueNamespace("ada", "my-shop")
SHOP = "/dialogues/ada__my_2dshop"


def text_of(page: str) -> str:
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", page)).split())


def links_of(page: str) -> list[str]:
    """Return the links to conversations."""
    found = re.findall(r'href="(/dialogues/[^"]*/conversation\?id=[^"]*)"', page)
    return [html.unescape(each) for each in found]


def next_of(page: str) -> str | None:
    links = re.findall(r'rel="next" href="([^"]*)"', page)
    return html.unescape(links[0]) if links else None


def header(number: int, **changes: Any) -> dict[str, Any]:
    """Return the header of a dialogue with bob that ada began."""
    label = {
        "dialogue_starter_reference": f"r{number}",
        "dialogue_responder_reference": "",
        "dialogue_opponent_addr": "bob" if number % 2 else "carol",
        "dialogue_starter_addr": "ada",
    }
    own = {"self_address": "ada", "role": "buyer", "state": "active", "metadata": {}}
    return {"dialogue_label": label, "is_terminal": False, **own, **changes}


def key_of(number: int) -> str:
    return DialogueLabel.from_json(header(number)["dialogue_label"]).key


def say(number: int, sender: str, performative: str, body: Any = None) -> dict[str, Any]:
    to = {"ada": "bob", "bob": "ada"}[sender]
    return {"performative": performative, "body": body, "message_id": number, "target": number - 1,
            "dialogue_reference": ["r1", ""], "sender": sender, "to": to}  # fmt: skip


@pytest.fixture
def shop(store: Any) -> Any:
    """Dialogues of ada in a shop, as a `Dialogues` stores them."""
    store[NAMES.active].put_many({key_of(n): header(n) for n in (1, 2, 3)})
    store[NAMES.messages].put_many(
        {
            message_id(key_of(1), 1): say(1, "ada", "ask", {"for": "tea"}),
            message_id(key_of(1), 2): say(2, "bob", "offer", {"price": 5}),
        }
    )
    return store


@pytest.mark.each_backend
def test_the_sections_are_those_that_the_store_has(store: Any) -> None:
    client = browser(store)
    assert "Dialogues" not in text_of(client.get("/").text)
    assert "The store has no dialogues." in text_of(client.get("/dialogues").text)
    store["dialogues__stats"].put("x", 1)
    assert "Dialogues" not in text_of(client.get("/").text)
    store[NAMES.active].put(key_of(1), header(1))
    assert ">Dialogues</a>" in client.get("/").text
    assert re.search(r"ada / my-shop 1 0 0", text_of(client.get("/dialogues").text))


@pytest.mark.each_backend
def test_a_conversation_has_bubbles_of_both_agents(shop: Any) -> None:
    client = browser(shop)
    page = client.get(SHOP).text
    assert "r1 bob buyer active 2 offer" in text_of(page)
    page = client.get(links_of(page)[0]).text
    assert re.findall(r'<li class="(own|other|gap)">', page) == ["own", "other"]
    assert "ask ada 1 field for tea Message 1 ·" in text_of(page)
    assert "offer bob 1 field price 5 Message 2, answers 1" in text_of(page)


@pytest.mark.each_backend
def test_dialogues_are_found_by_counterparty_and_page_by_cursor(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialogues, "MOST", 1)
    client, seen = browser(shop), []
    url: str | None = f"{SHOP}?counterparty=bob"
    while url:
        page = client.get(url).text
        seen += re.findall(r'conversation\?id=[^"]*">(\w+)<', page)
        url = next_of(page)
    assert seen == ["r1", "r3"]


def test_a_counterparty_without_an_index_asks_before_a_scan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dialogues, "MANY", 2)
    with Store("sqlite://") as store:  # PostgreSQL scans the few of a test in any case
        store[NAMES.active].put_many({key_of(n): header(n) for n in (1, 2, 3)})
        client = browser(store)
        page = client.get(f"{SHOP}?counterparty=bob").text
        assert "The database would scan" in text_of(page)
        assert links_of(page) == []
        assert len(links_of(client.get(f"{SHOP}?counterparty=bob&scan=1").text)) == 2
        store[NAMES.active].create_index("dialogue_label.dialogue_opponent_addr")
        assert len(links_of(client.get(f"{SHOP}?counterparty=bob").text)) == 2


def test_a_long_conversation_has_several_pages_and_shows_gaps(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialogues, "MESSAGES", 2)
    shop[NAMES.messages].put_many(
        {message_id(key_of(1), n): say(n, "ada", f"say{n}") for n in (3, 6, 7)}
    )
    client, seen = browser(shop), []
    url: str | None = f"{SHOP}/conversation?id={key_of(1)}"
    while url:
        page = client.get(url).text
        seen.append(re.findall(r"<strong>(\w+)</strong>|(\d+ messages?) missing", page))
        url = next_of(page)
    assert [[a or b for a, b in each] for each in seen] == [
        ["ask", "offer"], ["say3", "2 messages", "say6"], ["say7"]
    ]  # fmt: skip


def test_the_pages_show_what_a_program_stores() -> None:
    """Also a record that the program quarantined, with its reason."""
    with Store("sqlite://") as store:
        own = Dialogues(store, "ada", component="my-shop")
        _, dialogue = own.create("bob", "ask", {"for": HOSTILE})
        own.finish(dialogue, "cancelled")
        store[NAMES.active].put("bad", {"dialogue_label": HOSTILE})
        client = browser(store)
        page = client.get(SHOP).text
        assert "cannot be restored" in text_of(page)
        assert store[NAMES.active].exists("bad")  # a look moves nothing
        Dialogues(store, "ada", component="my-shop").setup()
        assert not store[NAMES.active].exists("bad")
        page = client.get(f"{SHOP}?part=quarantine").text
        assert "lacks keys of a label" in text_of(page)
        assert "<script>alert" not in page
        page = client.get(f"{SHOP}?part=terminal").text
        assert "cancelled 1 ask" in text_of(page)
        page = client.get(links_of(page)[0]).text
        assert HOSTILE in html.unescape(page)
        assert "<script>alert" not in page


def test_records_of_other_programs_have_pages(store: Any) -> None:
    odd: list[Any] = [None, 5, "text", [1], {"dialogue_label": 5}, {"dialogue_label": {"dialogue_opponent_addr": [HOSTILE]}}]  # fmt: skip
    for part in (NAMES.active, NAMES.messages, NAMES.quarantine):
        store[part].put_many({f"odd{n}": each for n, each in enumerate(odd)})
    store[NAMES.messages].put_many({message_id("odd0", n + 1): e for n, e in enumerate(odd)})
    client = browser(store)
    for url in [*map(f"{SHOP}?part={{}}".format, dialogues.SHOWN), SHOP]:
        page = client.get(url)
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        for link in links_of(page.text):
            shown = client.get(link)
            assert shown.status_code == 200
            assert "<script>alert" not in shown.text


def test_an_unknown_dialogue_is_not_found(shop: Any) -> None:
    client = browser(shop)
    assert client.get(f"{SHOP}/conversation?id=none").status_code == 404
    assert client.get("/dialogues/none").status_code == 404


def test_names_of_other_programs_are_shown_as_they_are(store: Any) -> None:
    long = DialogueNamespace("a" * 200, "b")
    for name in (long.active, "dialogues__a_ff__b__active"):
        store[name].put("x", 1)
    store.memory("c" * 200).put("key", 1)
    store["memory__d_ff"].put("/key", 1)
    client = browser(store)
    page = text_of(client.get("/dialogues").text)
    assert "a_ff / b" in page
    assert re.search(r"__[0-9a-f]{64} 1", page)
    page = text_of(client.get("/memories").text)
    assert "d_ff 1" in page
    assert re.search(r"__[0-9a-f]{64} 1", page)


def test_messages_of_an_aea_have_sides_and_contents_too(shop: Any) -> None:
    """AEA stores whose message it is, the contents, and the bytes that it sends."""
    sent = {"sender": "ada", "to": "bob", "message": "AAEC", "message_id": 3, "target": 2}
    aea = {**sent, "performative": "inform", "content": {"shipped": True}}
    sides = {3: {**aea, "is_incoming": False}, 4: {**aea, "is_incoming": True}}
    shop[NAMES.messages].put_many({message_id(key_of(1), n): each for n, each in sides.items()})
    page = browser(shop).get(f"{SHOP}/conversation?id={key_of(1)}").text
    assert re.findall(r'<li class="(own|other|gap)">', page) == ["own", "other", "own", "other"]
    assert "inform ada 1 field shipped true Message 3, answers 2" in text_of(page)
    assert "AAEC" not in page
