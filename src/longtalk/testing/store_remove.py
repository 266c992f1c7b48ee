"""What a store has to remove for good, and what it says of how it keeps the rest."""

from __future__ import annotations

import msgspec

from longtalk.stores.base import BARE, MAIN, Moved, Request
from longtalk.testing.report import holds, raises, same, there
from longtalk.testing.store_cases import KINDS, Case, Desk, into, message
from longtalk.transcript import chain

REMOVED: list[Case] = []
case = into(REMOVED)


@case
def what_is_deleted_is_gone(desk: Desk) -> None:
    store, talk, kept = desk.store, desk.talk(), desk.talk("kept")
    for each in (talk, kept):
        each.say("lisbon", "b", request=Request("key", "body"), meta={"a": 1}, manifest=b"{}", entry_meta={1: {"b": 2}})
        each.say("c", branch="fork", source=(MAIN, 1))
        each.write(records=(each.note("brief", "x", 1), each.note("pins", "y", 0)))
    before, turn = kept.all("key"), talk.entries()[0].turn
    receipt = there(store.delete(desk.owner, "talk"), "a receipt")
    counts = (receipt.conversation, receipt.entries, receipt.turns, receipt.records, receipt.branches)
    same(counts, ("talk", 3, 2, 2, 2), f"the receipt says {receipt}")
    holds(receipt.at > 0)
    same(store.delete(desk.owner, "talk"), None, "it was deleted twice")
    same(talk.all("key"), desk.talk("nowhere").all("key"), "something is left")
    same([hit.conversation for hit in store.candidates(desk.owner, ["lisbon"], 9)], ["kept"], "found")
    same(kept.all("key"), before, "another conversation has changed")
    head = talk.say("anew", request=Request("key", "body"))
    same((head.revision, head.size, head.token, head.records), (1, 1, 0, ()), "a new one begins with what was there")
    holds(talk.texts() == ["anew"] and len(store.branches(desk.owner, "talk")) == 1)
    same(store.conversations(desk.owner)[0].meta, {})
    talk.write(entries=chain(talk.tip(), turn, 0, [message("x")]))
    same((store.manifest(desk.owner, "talk", turn), talk.metas()), (b"", {}), "what was kept of the old one")


@case
def what_is_redacted_is_gone(desk: Desk) -> None:
    store, talk = desk.store, desk.talk()
    for i in range(10):
        talk.say(f"question {i}", f"answer {i}")
    talk.write(records=(talk.note("brief", "before", 3), talk.note("brief", "at", 4), talk.note("epoch", "after", 9)))
    talk.write("fork", source=(MAIN, 8))
    talk.say("other", branch="early", source=(MAIN, 2))
    talk.write("early", records=(talk.note("brief", "sibling", 2, branch="early"),))
    before, turns = talk.entries(), store.turns(desk.owner, "talk", MAIN, 0, 20)
    native = b'{ "role":"user","content":"redacted" }'
    same(store.redact(desk.owner, "talk", "nowhere-0", native), False)
    same(talk.entries(), before)
    same(store.redact(desk.owner, "talk", before[4].id, native), True)
    after = talk.entries()
    same(after[4].native, native, "the old JSON is still there")
    clean = [msgspec.structs.replace(entry, native=b"", tokens=0) for entry in before]
    same([msgspec.structs.replace(entry, native=b"", tokens=0) for entry in after], clean, "what is not JSON changed")
    same(after[:4] + after[5:], before[:4] + before[5:], "other entries changed")
    same(talk.entries("fork"), after[:8], "another branch has something else")
    same(store.turns(desk.owner, "talk", MAIN, 0, 20), turns)
    same(talk.records(), [("before", 3)], "records that may quote it are left, or others are gone")
    same(talk.records("early"), [("sibling", 2)], "records of a branch that does not have it are gone")
    same(
        store.candidates(desk.owner, ["2"], 9, conversation="talk"),
        [h for h in store.candidates(desk.owner, ["2"], 9) if h.place != 4],
        "found",
    )
    holds(all(hit.place != 4 for hit in store.candidates(desk.owner, ["question"], 99)), "what is gone is found")
    same([hit.place for hit in store.candidates(desk.owner, ["redacted"], 9)], [4], "what is there now is not found")
    talk.say("goes on")
    same(len(talk.entries()), 21)
    for odd in (b'{"half":"\\ud800"}', b'{"bad":"\xff"}', b'{\n"content":"x"}'):
        same(store.redact(desk.owner, "talk", before[0].id, odd), True)
        same(talk.entries()[0].native, odd, "the new JSON is changed")


@case
def what_the_app_has_kept_on_a_redacted_entry_is_gone(desk: Desk) -> None:
    store, owner, talk = desk.store, desk.owner, desk.talk()
    talk.say("a", "b", "c", meta={"of": "all"}, entry_meta={0: {"n": 0}, 1: {"n": 1}})
    talk.write("fork", source=(MAIN, 3))
    entries = talk.entries()
    store.describe(owner, "talk", {"later": 2}, entry=entries[2].id)
    for place, left in ((1, {0: {"n": 0}, 2: {"later": 2}}), (2, {0: {"n": 0}})):
        same(store.redact(owner, "talk", entries[place].id, b"{}"), True)
        for branch in (MAIN, "fork"):
            same(talk.metas(branch), left, "the data on it is left, or that on others is gone")
    same(store.conversations(owner)[0].meta, {"of": "all"})
    store.describe(owner, "talk", {"anew": 1}, entry=entries[1].id)
    same(talk.metas(), {0: {"n": 0}, 1: {"anew": 1}}, "data that comes after a redaction")


@case
def a_redaction_keeps_records_that_quote_nothing(desk: Desk) -> None:
    store, talk = desk.store, desk.talk()
    talk.say("a", "b", "c", "d")
    for place in (0, 1, 3):
        talk.write(records=tuple(talk.note(kind, f"{kind} {place}", place) for kind in KINDS))
    talk.write("fork", source=(MAIN, 4))
    same(store.redact(desk.owner, "talk", talk.entries()[1].id, b"{}"), True)
    for branch in (MAIN, "fork"):
        for kind in KINDS:
            left = [(f"{kind} {place}", place) for place in ((0, 1, 3) if kind in BARE else (0,))]
            same(talk.kept(kind, branch), left, f"records of the kind {kind!r}")
            shown = [each for each in talk.records(branch) if each[0].startswith(kind)]
            same(shown, left[-1:], "the newest of those that are left counts")


@case
def who_remembers_what_is_redacted_is_told(desk: Desk) -> None:
    talk = desk.talk()
    talk.say("a", "b")
    talk.write("fork", source=(MAIN, 2))
    heads = talk.head(), talk.head("fork")
    desk.store.redact(desk.owner, "talk", talk.entries()[0].id, b"{}")
    for head in heads:
        fields = talk.turn(head.entry, "c") | {"expect": head.revision, "branch": head.branch}
        raises(Moved, lambda fields=fields: talk.write(**fields), f"{head.branch!r} is another one since then")  # type: ignore[misc]


@case
def nothing_is_wrong_with_what_was_just_written(desk: Desk) -> None:
    store, owner, talk = desk.store, desk.owner, desk.talk()
    for i in range(12):
        talk.say(f"{i} " + "x" * 30_000, "y", manifest=b"{}", entry_meta={0: {"i": i}})
        same(store.verify(owner, "talk"), [], "a conversation that grows")
    talk.say("z", branch="fork", source=(MAIN, 11))
    talk.write("empty", source=(MAIN, 0))
    talk.say("again", cut=5)
    talk.write(cut=0)
    same(store.verify(owner, "talk"), [], "after forks and cuts")
    for entry in [talk.entries("fork")[place].id for place in (0, 7, 11)]:
        store.redact(owner, "talk", entry, b'{"content":"-"}')
        store.describe(owner, "talk", {"a": 1}, entry=entry)
    same(store.verify(owner, "talk"), [], "after redactions")
    store.delete(owner, "talk")
    same(store.verify(owner, "talk"), [], "what is gone")
