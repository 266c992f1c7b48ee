"""Conversations on the service's own surface: listed, searched, changed, deleted, exported, imported."""

from __future__ import annotations

from typing import Any

import pytest

from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve
from tests.service.native.conftest import MakeApi


def test_a_conversation_is_created_renamed_and_deleted_with_a_receipt(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=AsyncScripted(says("Hello."))))
    made = call("POST", "/conversations", 201, json={"id": "lesson-7", "title": "Bows", "meta": {"a": 1}})
    assert (made["id"], made["title"], made["meta"]) == ("lesson-7", "Bows", {"a": 1, "title": "Bows"})
    assert call("POST", "/conversations", 409, json={"id": "lesson-7"})["error"]["code"] == "already_exists"
    assert call("PATCH", "/conversations/lesson-7", json={"title": "Strings"})["title"] == "Strings"
    changed = call("PATCH", "/conversations/lesson-7", json={"meta": {"b": 2}})
    assert (changed["title"], changed["meta"]) == ("Strings", {"b": 2, "title": "Strings"})
    assert call("PATCH", "/conversations/lesson-7", json={"title": ""})["meta"] == {"b": 2}
    call("POST", "/conversations/lesson-7/turns", json={"message": "Hi.", "model": "m"})
    assert call("GET", "/conversations/lesson-7/stats")["entries"] == 2
    assert call("GET", "/stats")["conversations"] == 1
    receipt = call("DELETE", "/conversations/lesson-7")
    assert (receipt["conversation"], receipt["entries"], receipt["turns"]) == ("lesson-7", 2, 1)
    assert call("GET", "/conversations/lesson-7", 404)["error"]["code"] == "not_found"
    assert call("DELETE", "/conversations/lesson-7", 404)


def test_conversations_are_listed_by_page_and_by_metadata(serve: Serve, api: MakeApi) -> None:
    call = api(serve())
    names = [call("POST", "/conversations", json={"meta": {"even": i % 2 == 0}})["id"] for i in range(5)]
    first = call("GET", "/conversations?limit=3")
    second = call("GET", "/conversations", params={"limit": 3, "after": first["next"]})
    found = [each["id"] for each in first["conversations"] + second["conversations"]]
    assert sorted(found) == sorted(names)
    assert second["next"] is None
    even = call("GET", "/conversations", params={"meta": '{"even": true}'})["conversations"]
    assert sorted(each["id"] for each in even) == sorted(names[::2])
    for wrong in ({"after": "x"}, {"meta": "1"}, {"limit": 0}, {"limit": "x"}, {"other": 1}):
        assert call("GET", "/conversations", 400, params=wrong)


def test_what_was_said_is_found(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=AsyncScripted(says("Rosin helps the bow."), says("No."))))
    talk, other = call.new(), call.new()
    call("POST", f"{talk}/turns", json={"message": "My bow slips.", "model": "m"})
    call("POST", f"{other}/turns", json={"message": "Hi.", "model": "m"})
    (hit,) = call("GET", "/search", params={"q": "rosin"})["hits"]
    assert (hit["conversation"], hit["role"], hit["position"]) == (talk.rpartition("/")[2], "assistant", 1)
    here = {"q": "rosin", "conversation": other.rpartition("/")[2]}
    assert call("GET", "/search", params=here)["hits"] == []


def test_an_export_is_imported_again(serve: Serve, api: MakeApi) -> None:
    served = serve(m=AsyncScripted(says("Hello.")))
    call = api(served)
    talk = call.new(title="First")
    call("POST", f"{talk}/turns", json={"message": "Hi.", "model": "m"})
    text = call.http.get(f"{talk}/export", params={"format": "md"})
    assert text.headers["content-type"].startswith("text/markdown")
    assert "Hello." in text.text
    data = call.http.get(f"{talk}/export").content
    call("DELETE", talk)
    done = call("POST", "/import", content=data)
    assert [each["how"] for each in done["conversations"]] == ["new"]
    copied = call("POST", "/import?id=copy", content=data)
    assert [each["id"] for each in copied["conversations"]] == ["copy"]
    assert [each["text"] for each in call("GET", "/conversations/copy/history")["entries"]] == ["Hi.", "Hello."]
    assert call("POST", "/import", 400, content=b"nonsense")
    # A path is never read.
    assert call("POST", "/import", 400, content=__file__.encode())


def test_a_repeated_post_with_a_key_is_done_once(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=AsyncScripted()))
    more: Any = {"json": {"title": "One"}, "headers": {"Idempotency-Key": "k"}}
    first = call("POST", "/conversations", 201, **more)
    assert call("POST", "/conversations", 201, **more) == first
    assert len(call("GET", "/conversations")["conversations"]) == 1
    assert call("POST", "/conversations", 422, json={"title": "Two"}, headers=more["headers"])
    note: Any = {"json": {"text": "It rains."}, "headers": {"Idempotency-Key": "n"}}
    path = f"/conversations/{first['id']}"
    assert call("POST", f"{path}/notes", **note) == call("POST", f"{path}/notes", **note)
    assert len(call("GET", f"{path}/history")["entries"]) == 1


def test_branches_are_forked_and_rewound(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=AsyncScripted(says("One."), says("Two."))))
    talk = call.new()
    first = call("POST", f"{talk}/turns", json={"message": "1", "model": "m"})
    call("POST", f"{talk}/turns", json={"message": "2", "model": "m"})
    made = call("POST", f"{talk}/branches", 201, json={"at": first["id"], "name": "side"})
    assert (made["name"], made["entries"], made["source"], made["shared"]) == ("side", 2, "main", 2)
    assert call("POST", f"{talk}/branches", 400, json={"name": "side"})
    assert call("POST", f"{talk}/branches", 404, json={"at": "nothing"})
    kept = call("POST", f"{talk}/branches/main/rewind", json={"to": first["id"]})["kept"]
    sizes = {each["name"]: each["entries"] for each in call("GET", f"{talk}/branches")["branches"]}
    assert sizes == {"main": 2, "side": 2, kept: 4}


def test_the_sample_is_imported_once_and_deleted_like_any_other(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=AsyncScripted()))
    first, again = call("POST", "/sample"), call("POST", "/sample")
    (sample,) = first["conversations"]
    assert (sample["how"], again["conversations"][0]["how"]) == ("new", "here")
    assert call("GET", f"/conversations/{sample['id']}")["meta"]["sample"] is True
    assert call("GET", f"/conversations/{sample['id']}/stats/daily")["days"]
    assert call("GET", "/stats/daily")["days"] == []
    call("DELETE", f"/conversations/{sample['id']}")
    assert call("GET", "/conversations")["conversations"] == []


def test_a_sample_that_was_changed_stays_as_it_is(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=AsyncScripted()))
    (sample,) = call("POST", "/sample")["conversations"]
    note = {"text": "The lesson is on Monday.", "source": "app"}
    call("POST", f"/conversations/{sample['id']}/notes", 201, json=note)
    (again,) = call("POST", "/sample")["conversations"]
    assert (again["how"], again["entries"]) == ("here", sample["entries"] + 1)


@pytest.mark.parametrize("title", ["", "  ", "\t\n"])
def test_a_blank_title_is_none(serve: Serve, api: MakeApi, title: str) -> None:
    call = api(serve())
    made = call("POST", "/conversations", json={"title": title})
    assert made["title"] == ""
    call("PATCH", f"/conversations/{made['id']}", json={"title": " Violin "})
    assert call("GET", f"/conversations/{made['id']}")["title"] == "Violin"
    assert call("PATCH", f"/conversations/{made['id']}", json={"title": title})["title"] == ""
