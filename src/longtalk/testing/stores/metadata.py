"""Cases about the metadata that an app attaches to conversations and entries."""

from __future__ import annotations

from typing import Any

from longtalk._util import json_bytes
from longtalk.stores.base import MAIN
from longtalk.testing.report import assert_equal
from longtalk.testing.stores.harness import Case, Harness, add_to

METADATA_CASES: list[Case] = []
case = add_to(METADATA_CASES)


@case
def metadata_of_conversations_is_stored_and_filtered(harness: Harness) -> None:
    store = harness.store
    data: dict[str, Any] = {"lesson": 3, "tags": ["a", {"b": None}], "é": "東", "f": 1.5, "t": True, "n": None}
    conversation = harness.conversation("one")
    conversation.say("a", meta=data)
    kept = json_bytes.value(json_bytes.encode(data))
    data["tags"].append("changed later")
    harness.conversation("two").say("a", meta={"lesson": 4, "t": 1})
    harness.conversation("three").say("a")

    def find_ids(**meta: Any) -> list[str]:
        return sorted(found.id for found in store.conversations(harness.owner, meta=meta))

    found = {found.id: found.meta for found in store.conversations(harness.owner)}
    assert_equal(found, {"one": kept, "two": {"lesson": 4, "t": 1}, "three": {}}, "the metadata of all conversations")
    assert_equal(found["one"]["t"], True, "a boolean")
    for meta, wanted in (
        ({"lesson": 3}, ["one"]),
        ({"lesson": 3, "f": 1.5}, ["one"]),
        ({"lesson": 3, "f": 2}, []),
        ({"lesson": "3"}, []),
        ({"tags": ["a", {"b": None}]}, ["one"]),
        ({"tags": "a"}, []),
        ({"t": True}, ["one"]),
        ({"t": 1}, ["two"]),
        ({"n": None}, ["one"]),
        ({"é": "東"}, ["one"]),
        ({"nowhere": 1}, []),
        ({}, ["one", "three", "two"]),
    ):
        assert_equal(find_ids(**meta), wanted, f"the filter {meta}")
    before = conversation.head()
    assert_equal(store.describe(harness.owner, "one", {"new": 1}), True)
    assert_equal(conversation.head(), before, "the head after `describe`")
    assert_equal(find_ids(lesson=3), [], "a filter after metadata was replaced")
    assert_equal(find_ids(new=1), ["one"], "a filter after metadata was replaced")
    conversation.say("b")
    assert_equal(find_ids(new=1), ["one"], "a filter after a commit without metadata")
    conversation.say("c", meta={})
    assert_equal(find_ids(new=1), [], "a filter after a commit with other metadata")


@case
def metadata_of_entries_is_read_by_position(harness: Harness) -> None:
    conversation = harness.conversation()
    mail: dict[str, Any] = {"channel": "mail", "é": ["東", None, 1.5, True]}
    conversation.say("a", "b", "c", entry_meta={0: mail, 2: {"n": 2}})
    kept = json_bytes.value(json_bytes.encode(mail))
    mail["changed"] = "later"
    assert_equal(conversation.metas(), {0: kept, 2: {"n": 2}})
    assert_equal(
        conversation.store.conversations(conversation.owner)[0].meta,
        {},
        "the metadata of the conversation",
    )
    conversation.say("d", "e", entry_meta={1: {"n": 4}})
    assert_equal(
        conversation.metas(),
        {0: kept, 2: {"n": 2}, 4: {"n": 4}},
        "positions counted from the first entry of the commit",
    )
    for start, stop in ((0, 1), (1, 2), (1, 3), (2, 4), (3, 5), (4, 4), (5, 9), (4, 2)):
        wanted = {position: meta for position, meta in conversation.metas().items() if start <= position < stop}
        assert_equal(
            conversation.metas(start=start, stop=stop), wanted, f"the metadata of the entries {start} … {stop}"
        )


@case
def metadata_of_entries_is_visible_on_paths_with_them(harness: Harness) -> None:
    conversation = harness.conversation()
    conversation.say("a", "b", "c", entry_meta={0: {"n": 0}, 2: {"n": 2}})
    conversation.say("x", branch="fork", source=(MAIN, 1), entry_meta={0: {"x": 1}})
    assert_equal(conversation.metas("fork"), {0: {"n": 0}, 1: {"x": 1}})
    assert_equal(conversation.metas(), {0: {"n": 0}, 2: {"n": 2}}, "the metadata without that of a fork's entries")
    conversation.say("y", cut=2)
    assert_equal(conversation.metas(), {0: {"n": 0}}, "the metadata after a cut")


@case
def metadata_of_an_entry_can_be_replaced(harness: Harness) -> None:
    store, owner, conversation = harness.store, harness.owner, harness.conversation()
    conversation.say("a", "b", meta={"of": "all"}, entry_meta={0: {"n": 0, "old": 1}})
    conversation.write("fork", source=(MAIN, 2))
    harness.conversation("other").say("c")
    first, second, elsewhere = (
        conversation.entries()[0].id,
        conversation.entries()[1].id,
        harness.conversation("other").entries()[0].id,
    )
    before = conversation.read_all()
    meta: dict[str, Any] = {"new": [1]}
    assert_equal(store.describe(owner, "talk", meta, entry=first), True)
    meta["new"].append("changed later")
    assert_equal(store.describe(owner, "talk", {"n": 1}, entry=second), True, "describing an entry without metadata")
    for missing in (elsewhere, "nowhere-0", "nowhere", "", f"{first}0"):
        assert_equal(
            store.describe(owner, "talk", {"lost": 1}, entry=missing),
            False,
            f"describing the missing entry {missing!r}",
        )
    for branch in (MAIN, "fork"):
        assert_equal(conversation.metas(branch), {0: {"new": [1]}, 1: {"n": 1}})
    after = conversation.read_all()
    for part in before:
        if part != "metas":
            assert_equal(after[part], before[part], f"{part} after `describe` on an entry")
    store.describe(owner, "talk", {"of": "it"})
    assert_equal(
        conversation.metas(),
        {0: {"new": [1]}, 1: {"n": 1}},
        "the metadata of entries after `describe` on the conversation",
    )
    store.describe(owner, "talk", {}, entry=first)
    assert_equal(conversation.metas().get(0, {}), {}, "metadata that was removed")
