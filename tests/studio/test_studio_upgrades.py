"""The page of the schema versions of a collection, over each backend, sync and async."""

import html
import re
from typing import Any

import pytest
from studio.browsing import browser, form_token

from collections_store.studio import upgrades

HOSTILE = "<script>alert(1)</script>'\"><img src=x onerror=alert(2)>{{ 7 * 7 }}"
PAGE = "/c/people/upgrades"


def text_of(page: str) -> str:
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", page)).split())


def one_to_two(body: dict[str, Any]) -> dict[str, Any]:
    return {"first": body["name"]}


USING = {"people": {"schema_version": 2, "upgrades": {1: one_to_two}}}


@pytest.fixture
def people(store: Any) -> Any:
    found = store["people"]
    found.put_many({"ada": {"name": "Ada"}, "odd": {"no name": 1}})
    found.put("new", {"first": "Grace", "schema_version": 2})
    return found


def test_only_a_declared_collection_has_the_tab(store: Any, people: Any) -> None:
    store["other"].put("x", 1)
    client = browser(store, using=USING)
    assert ">Upgrades</a>" in client.get("/c/people").text
    assert ">Upgrades</a>" not in client.get("/c/other").text
    assert ">Upgrades</a>" not in browser(store).get("/c/people").text
    assert "declares no schema version" in text_of(browser(store).get(PAGE).text)


@pytest.mark.each_backend
def test_a_dry_run_shows_differences_and_writes_nothing(store: Any, people: Any) -> None:
    client = browser(store, using=USING)
    page = text_of(client.get(PAGE).text)
    assert "declares the schema version 2" in page
    assert "2 1 none 2 All 3 documents" in page
    assert "1 document would be upgraded, 1 cannot be upgraded" in page
    assert '- "name": "Ada" + "first": "Ada", + "schema_version": 2' in page
    assert "document 'odd'" in page
    assert "Upgrade all documents" not in page
    assert client.post(PAGE).status_code == 403
    assert people.get("ada") == {"name": "Ada"}


@pytest.mark.each_backend
def test_the_button_upgrades(store: Any, people: Any) -> None:
    client = browser(store, write=True, using=USING)
    page = client.post(PAGE, data={"form_token": form_token(client, PAGE)}).text
    assert "Upgraded 1 document; 1 cannot be upgraded." in text_of(page)
    assert people.get("ada") == {"first": "Ada", "schema_version": 2}
    assert people.get("odd") == {"no name": 1}
    assert "Upgrade all documents" not in page


@pytest.mark.each_backend
def test_a_large_collection_is_read_with_consent(
    store: Any, people: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrades, "MANY", 2)
    client = browser(store, write=True, using=USING)
    page = client.get(PAGE).text
    assert "A sample of 3 documents" in text_of(page)
    assert "A dry run reads all 3 documents." in text_of(page)
    assert "would be upgraded" not in page
    assert "Upgrade all documents" in page
    assert "1 document would be upgraded" in text_of(client.get(f"{PAGE}?scan=1").text)


def test_other_settings_of_the_declaration_change_nothing(store: Any, people: Any) -> None:
    using = {"people": {**USING["people"], "ttl": 60, "changes": True}}
    assert "would be upgraded" in browser(store, using=using).get(PAGE).text
    people.put("later", 1)
    assert people.document("later").expires_at is None


def test_hostile_documents_and_bad_declarations_have_a_page(store: Any, people: Any) -> None:
    people.put("ada", {"name": HOSTILE, "schema_version": HOSTILE})
    people.put(HOSTILE, {"name": HOSTILE})
    for settings in (USING["people"], {"schema_version": HOSTILE}, {"schema_version": 3}):
        page = browser(store, using={"people": settings}).get(PAGE)
        assert page.status_code == 200
        assert "<script>alert" not in page.text


def test_an_upgrade_creates_no_collection(store: Any, people: Any) -> None:
    using = {**USING, "missing": USING["people"]}
    client = browser(store, write=True, using=using)
    form = {"form_token": form_token(client, PAGE)}
    assert client.post("/c/missing/upgrades", data=form).status_code == 404
    assert "missing" not in store.collections()
