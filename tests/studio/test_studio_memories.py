"""The pages of memories, over each backend, sync and async."""

import html
import re
from typing import Any

import pytest
from studio.browsing import browser

from collections_store.studio import memories

HOSTILE = "<script>alert(1)</script>'\"><img src=x onerror=alert(2)>{{ 7 * 7 }}"


def text_of(page: str) -> str:
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", page)).split())


def link_to(page: str, text: str) -> str:
    """Return the first link with a text."""
    return html.unescape(re.findall(rf'href="([^"]*)">{re.escape(text)}<', page)[0])


def following(client: Any, url: str, label: str, pattern: str) -> list[list[str]]:
    """Return what a pattern finds on each of the pages that a link leads through."""
    seen, following = [], url
    while following:
        page = client.get(following).text
        seen.append(re.findall(pattern, page.partition("<main")[2]))
        links = re.findall(rf'href="([^"]*)">{label}</a>', page)
        following = html.unescape(links[0]) if links else ""
    return seen


@pytest.fixture
def bot(store: Any) -> Any:
    memory = store.memory("my bot")
    memory.put("name", "Ada")
    memory.put("soon", 1, ttl=3600 * 2)
    memory.namespace("room", "42").put("topic", {"name": HOSTILE})
    memory.session("ada").put("cart", ["tea"])
    return store


@pytest.mark.each_backend
def test_the_section_is_there_if_the_store_has_memories(store: Any) -> None:
    client = browser(store)
    assert "Memories" not in text_of(client.get("/").text)
    assert "The store has no memories." in text_of(client.get("/memories").text)
    store.memory("my bot").put("a", 1, ttl=60)
    assert ">Memories</a>" in client.get("/").text
    assert re.search("my bot 1 1 ", text_of(client.get("/memories").text))


@pytest.mark.each_backend
def test_values_are_under_their_namespaces_and_sessions(bot: Any) -> None:
    client = browser(bot)
    page = client.get(link_to(client.get("/memories").text, "my bot")).text
    assert "ada session room namespace" in text_of(page)
    assert re.search(r"name Ada 1 never soon 1 1 [-0-9]+ [:0-9]+ UTC in 1 h 59 min", text_of(page))
    assert 0 < int(re.findall(r'data-left="(\d+)"', page)[0]) <= 7200
    session = client.get(link_to(page, "ada")).text
    assert "my bot / session ada" in text_of(session)
    assert 'cart ["tea"]' in text_of(session)
    room = client.get(link_to(client.get(link_to(page, "room")).text, "42")).text
    assert "my bot / room / 42" in text_of(room)
    assert "topic" in text_of(room)
    assert "<script>alert" not in room
    shown = client.get(link_to(room, "topic"))
    assert shown.status_code == 200
    assert HOSTILE in html.unescape(shown.text)


@pytest.mark.each_backend
def test_many_namespaces_and_values_have_several_pages(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memories, "MOST", 2)
    memory = store.memory("bot")
    for name in "abcde":
        memory.put(name, 1)
        for key in range(3):  # of which one counts
            memory.namespace(name).put(str(key), 1)
            memory.namespace(name, "inner").put(str(key), 1)
    client, url = browser(store), "/memories/memory__bot"
    inner = following(client, url, "Next namespaces", r'within=[^"]*">(\w)</a>')
    assert inner == [["a", "b"], ["c", "d"], ["e"]]
    values = following(client, url, "Next page", r'class="mono id"[^>]*>(\w)<')
    assert values == [["a", "b"], ["c", "d"], ["e"]]


@pytest.mark.each_backend
def test_memories_of_skills_are_under_their_sessions(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memories, "MOST", 2)
    skills = store.skill_memory(ttl=600)
    for n in range(5):
        public = {"name": "name", "value": f"Ada {n}", "scope": "PUBLIC"}
        skills.save(f"s{n}", "greeter", [public, {"name": HOSTILE, "value": HOSTILE}])
    client, url = browser(store), "/memories/skill_memory"
    sessions = following(client, url, "Next page", r">(s\d)</a>")
    assert sorted(name for names in sessions for name in names) == [f"s{n}" for n in range(5)]
    assert [len(names) for names in sessions] == [2, 2, 1]
    page = client.get(f"{url}?session=s3").text
    assert "name Ada 3 greeter PUBLIC" in text_of(page)
    assert "in 9 min 59 s" in text_of(page)
    assert "PRIVATE" in text_of(page)
    assert "<script>alert" not in page


def test_documents_of_other_programs_have_pages(store: Any) -> None:
    ids = ["", "x", "9", "99:x", "4:room", "4:roomx", "0:/k", "4:room/" + HOSTILE, "/", "1:a1;b/k"]
    for name in ("memory__bot", "skill_memory"):
        store[name].put_many({id: [5, HOSTILE, {"session": 5}][n % 3] for n, id in enumerate(ids)})
    client = browser(store)
    urls = ["/memories/memory__bot", "/memories/skill_memory", "/memories/skill_memory?session=x"]
    urls += [f"/memories/memory__bot?within={path}" for path in ("0:", "4:room", "1:a1;b")]
    for url in urls:
        page = client.get(url)
        assert page.status_code == 200
        assert "<script>alert" not in page.text
    assert client.get("/memories/memory__bot?within=4:roomx").status_code == 404
    assert client.get("/memories/people").status_code == 404
