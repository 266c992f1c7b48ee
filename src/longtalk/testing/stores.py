"""A store conformance suite: run it on a store of your own, and know that Longtalk can rely on it.

```python
report = check_store(lambda: MyStore(":memory:"))
report.raise_for_failures()
```

`make` gives an empty store, a fresh one for each case. `reopen` closes a store and opens it again; without it the cases
that ask what is there afterwards are left out. With pytest: `@pytest.mark.parametrize("case", CASES, ids=str)`, and
`case.run(make, reopen=reopen)`.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from longtalk import _json
from longtalk.stores.base import MAIN, Commit, Hit, Lease, Moved, Placed, Request, Store
from longtalk.testing.store_cases import ME, TREE, Case, Desk, Reopen, Talk, holds, message, same, there
from longtalk.transcript import Record, chain, new_id

__all__ = ["CASES", "Case", "Failure", "Report", "check_store"]

CASES: list[Case] = list(TREE)
"""All cases, in the order in which they are run."""

HOSTILE = (
    *("", ".", "..", "../../x", "/etc/passwd", "a/b", "a\\b", "CON", "con", "nul.txt", "Twin", "twin", "TWIN"),
    *(
        "x" * 300,
        "x" * 300 + "y",
        "é",
        "e\u0301",
        "東京",
        "😀",
        " ",
        "a ",
        "a.",
        "%",
        "_",
        "a%",
        "*",
        "'; --",
        '"',
        "a\nb",
        "-",
    ),
)
"""Names that mean something to a file system or to a database, and twins."""


@dataclass(frozen=True)
class Failure:
    """A case that a store failed."""

    name: str
    error: Exception

    def __str__(self) -> str:
        frames = traceback.extract_tb(self.error.__traceback__)
        where = [frame for frame in frames if frame.name not in ("holds", "same", "there", "raises")][-1]
        return f"{self.name}: {self.error or type(self.error).__name__} ({where.filename}:{where.lineno})"


@dataclass(frozen=True)
class Report:
    """What became of each case."""

    passed: tuple[str, ...]
    failed: tuple[Failure, ...]
    skipped: tuple[str, ...]
    """Those that need `reopen`."""

    def raise_for_failures(self) -> None:
        """Raise `AssertionError` that names every case that failed."""
        if self.failed:
            lines = [f"the store fails {len(self.failed)} of {len(self.failed) + len(self.passed)} cases:"]
            raise AssertionError("\n- ".join([*lines, *map(str, self.failed)])) from self.failed[0].error


def check_store(make: Callable[[], Store], *, reopen: Reopen | None = None) -> Report:
    """Run all cases, each on a fresh store."""
    passed: list[str] = []
    failed: list[Failure] = []
    skipped: list[str] = []
    for case in CASES:
        if case.reopens and reopen is None:
            skipped.append(case.name)
            continue
        try:
            case.run(make, reopen=reopen)
        except Exception as problem:
            failed.append(Failure(case.name, problem))
        else:
            passed.append(case.name)
    return Report(tuple(passed), tuple(failed), tuple(skipped))


def _case(check: Callable[[Desk], None]) -> Callable[[Desk], None]:
    CASES.append(Case(check.__name__, check))
    return check


# Many at once


def _together(number: int, work: Callable[[int], None]) -> None:
    """Do something in so many threads, and raise what one of them raised."""
    problems: list[BaseException] = []
    start = threading.Barrier(number)

    def run(i: int) -> None:
        try:
            start.wait(30)
            work(i)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


@_case
def of_many_writers_none_is_lost_doubled_or_mixed(desk: Desk) -> None:
    talk = desk.talk()
    talk.say("begin")

    def work(i: int) -> None:
        for n in range(12):
            while True:
                head = talk.head()
                fields = talk.turn(head.entry, f"{i}/{n} said", f"{i}/{n} answered")
                try:
                    made = talk.write(**fields, expect=head.revision)
                except Moved:
                    continue
                where = (made.revision, made.size, made.entry)
                same(where, (head.revision + 1, head.size + 2, fields["entries"][-1].id), "somebody was between")
                break

    _together(6, work)
    texts = talk.texts()[1:]
    said = [text.removesuffix(" said") for text in texts[::2]]
    same(texts[1::2], [f"{text} answered" for text in said], "turns are mixed")
    same(sorted(said), sorted(f"{i}/{n}" for i in range(6) for n in range(12)), "turns are lost or doubled")
    for i in range(6):
        same(
            [text for text in said if text.startswith(f"{i}/")], [f"{i}/{n}" for n in range(12)], "turns are disordered"
        )
    same(talk.head().revision, 73, "a revision was given twice or left out")


@_case
def nobody_sees_half_a_commit(desk: Desk) -> None:
    talk, done = desk.talk(), threading.Event()
    talk.say("said", "answered")

    def work(i: int) -> None:
        if i == 0:
            try:
                for _ in range(60):
                    talk.write(**talk.turn(talk.tip(), "said", "answered"), records=(talk.note("brief", "x", 0),))
            finally:
                done.set()
        while not done.is_set():
            head = talk.head()
            same((head.size, len(head.records)), (2 * head.revision, head.revision - 1), "half a commit is seen")
            turns = desk.store.turns(desk.owner, "talk", MAIN, 0, head.size)
            same((len(talk.entries(stop=head.size)), len(turns)), (head.size, head.revision), "half a commit is read")

    _together(4, work)


@_case
def of_many_first_commits_one_wins(desk: Desk) -> None:
    for number in range(8):
        talk, won = desk.talk(f"talk {number}"), list[str]()

        def work(i: int, talk: Talk = talk, won: list[str] = won) -> None:
            try:
                talk.write(**talk.turn(None, str(i)), expect=0)
                won.append(str(i))
            except Moved:
                pass

        _together(4, work)
        same(talk.texts(), won, "who was told that it won, and who did")
        same(len(won), 1)


@_case
def of_many_turns_with_one_key_one_is_made(desk: Desk) -> None:
    from longtalk.stores.base import KeyTaken

    talk, won = desk.talk(), list[int]()
    talk.say("begin")

    def work(i: int) -> None:
        try:
            talk.write(f"b{i}", **talk.turn(talk.tip(), str(i)), source=(MAIN, 1), request=Request("key", "body"))
            won.append(i)
        except KeyTaken:
            pass

    _together(5, work)
    same(len(won), 1, f"{len(won)} turns were made with one key")


# Owners and names


def _calls(desk: Desk, id: str) -> dict[str, Callable[[str], object]]:  # noqa: A002
    """Every method of a store, on what somebody else may have: owner → what comes of it. Those that read come first."""
    store, entry = desk.store, chain(None, "t", 0, [message("secret")])[0]
    return {
        "head": lambda owner: store.head(owner, id),
        "read": lambda owner: bytes(store.read(owner, id, MAIN, 0, 9).array),
        "turns": lambda owner: store.turns(owner, id, MAIN, 0, 9),
        "asked": lambda owner: store.asked(owner, id, "key"),
        "branches": lambda owner: store.branches(owner, id),
        "conversations": lambda owner: store.conversations(owner, meta={"a": 1}),
        "candidates": lambda owner: [
            *store.candidates(owner, ["secret"], 9),
            *store.candidates(owner, ["secret"], 9, conversation=id),
        ],
        "renew": lambda owner: store.renew(owner, id, MAIN, 1, 999),
        "describe": lambda owner: store.describe(owner, id, {"b": 2}),
        "redact": lambda owner: store.redact(owner, id, "t-0", b"{}"),
        "delete": lambda owner: store.delete(owner, id),
        "write": lambda owner: [
            _outcome(lambda: store.write(owner, id, Commit(expect=1, at=5))),
            _outcome(lambda: store.write(owner, id, Commit(expect=0, at=5, branch="b", source=(MAIN, 1)))),
            _outcome(lambda: store.write(owner, id, Commit(expect=0, at=5, entries=(entry,)))),
            _outcome(lambda: store.write(owner, id, Commit(expect=1, at=5))),
        ],
    }


def _outcome(call: Callable[..., object], *arguments: object) -> object:
    """What comes of a call, or what it raises."""
    try:
        return call(*arguments)
    except Exception as problem:
        return type(problem), str(problem), getattr(problem, "head", None)


@_case
def what_others_own_is_as_if_it_did_not_exist(desk: Desk) -> None:
    talk = desk.talk("mine-7")
    fields = talk.turn(None, "secret", "answer")
    talk.write(**fields, request=Request("key", "body"), meta={"a": 1}, lease=Lease(ME, 9, 1))
    entry = talk.entries()[0].id
    talk.write("b", source=(MAIN, 1), records=(talk.note("brief", "secret", 0),))
    methods = {name for name in vars(Store) if not name.startswith("_")} - {"close"}
    calls = _calls(desk, "mine-7")
    same(set(calls), methods, f"this case does not try {methods ^ set(calls)}")
    before = talk.all("key")
    nowhere = _calls(desk, "nowhere-7")
    for name, call in calls.items():
        found, wanted = repr(_outcome(call, desk.other)), repr(_outcome(nowhere[name], desk.other))
        same(
            found.replace("mine-7", "…"),
            wanted.replace("nowhere-7", "…"),
            f"`{name}` tells what somebody else owns from what is not there",
        )
        same(talk.all("key"), before, f"`{name}` changes what somebody else owns")
    same(desk.store.redact(desk.other, "mine-7", entry, b"{}"), False)
    own = desk.talk("mine-7", owner=desk.other)
    same(own.texts(), ["secret"], "the same id of another owner is another conversation")
    holds(desk.store.delete(desk.other, "mine-7") is not None)
    same(talk.all("key"), before, "`delete` takes what somebody else owns")
    holds(desk.store.delete(desk.owner, "mine-7") is not None)


@_case
def names_mean_nothing(desk: Desk) -> None:
    """Ids, owners, branches and keys are any text, and twins are two."""
    store = desk.store
    for name in HOSTILE:
        desk.talk(name).say(f"id {name}", request=Request(name, name))
        desk.talk("branches").say(f"branch {name}", branch=name)
        desk.talk(owner=f"{desk.owner}{name}").say(f"owner {name}")
    for name in HOSTILE:
        same(desk.talk(name).texts(), [f"id {name}"], f"the conversation {name!r}")
        asked = store.asked(desk.owner, name, name)
        holds(asked is not None and asked.request == Request(name, name), f"the key {name!r}")
        same(desk.talk("branches").texts(name), [f"branch {name}"], f"the branch {name!r}")
        same(desk.talk(owner=f"{desk.owner}{name}").texts(), [f"owner {name}"], f"the owner {name!r}")
    found = [summary.id for summary in store.conversations(f"{desk.owner}", limit=100)]
    same(sorted(found), sorted([*HOSTILE, "branches", "talk"]), "the conversations")
    for name in HOSTILE:
        holds(store.delete(desk.owner, name) is not None, f"the conversation {name!r}")
    same([summary.id for summary in store.conversations(desk.owner)], ["branches", "talk"], "what is left")


# Lists and search


@_case
def the_newest_conversation_comes_first(desk: Desk) -> None:
    store = desk.store
    for i, at in enumerate((30, 10, 50, 20, 40)):
        desk.talk(f"c{i}").say("a", "b", at=at)
    listed = store.conversations(desk.owner)
    same([found.id for found in listed], ["c2", "c4", "c0", "c3", "c1"], "the order")
    same(
        [(found.created, found.updated, found.entries, found.branches) for found in listed[:1]], [(50, 50, 2, (MAIN,))]
    )
    same([found.id for found in store.conversations(desk.owner, limit=2)], ["c2", "c4"], "the first page")
    same([found.id for found in store.conversations(desk.owner, limit=2, before=40)], ["c0", "c3"], "the next page")
    same(store.conversations(desk.owner, before=10), [], "nothing is older")
    desk.talk("c1").say("c", branch="fork", source=(MAIN, 1), at=60)
    first = store.conversations(desk.owner)[0]
    same((first.id, first.created, first.updated, first.entries), ("c1", 10, 60, 3), "a branch was changed")


@_case
def the_apps_own_data_is_kept_and_filtered(desk: Desk) -> None:
    store = desk.store
    data: dict[str, Any] = {"lesson": 3, "tags": ["a", {"b": None}], "é": "東", "f": 1.5, "t": True, "n": None}
    talk = desk.talk("one")
    talk.say("a", meta=data, entry_meta={"channel": "mail"})
    kept = _json.value(_json.encode(data))
    data["tags"].append("changed later")
    desk.talk("two").say("a", meta={"lesson": 4, "t": 1})
    desk.talk("three").say("a")

    def listed(**meta: Any) -> list[str]:
        return sorted(found.id for found in store.conversations(desk.owner, meta=meta))

    found = {found.id: found.meta for found in store.conversations(desk.owner)}
    same(found, {"one": kept, "two": {"lesson": 4, "t": 1}, "three": {}}, f"the data is {found}")
    same(found["one"]["t"], True, "true has become a number")
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
        same(listed(**meta), wanted, f"the filter {meta}")
    before = talk.head()
    talk.store.describe(desk.owner, "one", {"new": 1})
    same(talk.head(), before, "`describe` moves the branch")
    same(listed(lesson=3), [], "data that was replaced")
    same(listed(new=1), ["one"], "data that was replaced")
    talk.say("b")
    same(listed(new=1), ["one"], "a commit without data leaves it")
    talk.say("c", meta={})
    same(listed(new=1), [], "a commit with data replaces it")


@_case
def words_are_found(desk: Desk) -> None:
    store, talk = desk.store, desk.talk()
    talk.say("My Sister lives in Lisbon.", "How nice for your sister!")
    talk.say("私は東京に住んでいます", "도쿄에서 만나요")
    desk.talk("second").say("The lighthouse keeper", "Nothing at all")
    desk.talk(owner=desk.other).say("My sister lives in Lisbon, 東京, lighthouse")

    def found(*terms: str, limit: int = 9, conversation: str | None = None) -> list[Hit]:
        hits = store.candidates(desk.owner, terms, limit, conversation=conversation)
        for hit in hits:
            entry = Talk(store, desk.owner, hit.conversation).entries(hit.branch, hit.place, hit.place + 1)[0]
            same((entry.id, entry.role, entry.at), (hit.entry, hit.role, hit.at), f"a hit is elsewhere: {hit}")
            same(hit.text, _json.value(entry.native)["content"], f"the text of a hit is {hit.text!r}")
        return hits

    hits = found("sister")
    same(sorted(hit.place for hit in hits), [0, 1], "the entries with that word, in any case")
    same([hit.place for hit in found("sister", "lisbon")], [0, 1], "what has more of the words comes first")
    same([hit.place for hit in found("sister", "lisbon", limit=1)], [0], "no more than were wanted")
    for term, place in (("東京", 2), ("住", 2), ("京に住", 2), ("도쿄", 3), ("나요", 3)):
        same([hit.place for hit in found(term)], [place], f"{term} in the middle of a text")
    same([(hit.conversation, hit.text) for hit in found("lighthouse")], [("second", "The lighthouse keeper")], "a word")
    same(found("lighthouse", conversation="talk"), [], "what is in another conversation")
    same(found("京東"), [], "the same characters in another order")
    for nothing in ("light", "", "…", '"', "*", "NOT", "%"):
        same(found(nothing), [], f"the term {nothing!r}")
    same(found(), [], "no terms")
    for odd in ("sister OR lisbon", "sis*", 'a"b', "a NEAR(b", "(", "-sister", "col:sister", "\0"):
        found(odd)
    talk.say("x", branch="fork", source=(MAIN, 2))
    same(len(found("lisbon")), 1, "an entry on two branches is found twice")
    talk.write(cut=0)
    same([(hit.branch, hit.place) for hit in found("lisbon")], [("fork", 0)], "an entry that one branch has lost")
    same(found("東京"), [], "an entry that is on no branch")


# Removing


@_case
def what_is_deleted_is_gone(desk: Desk) -> None:
    store, talk, kept = desk.store, desk.talk(), desk.talk("kept")
    for each in (talk, kept):
        each.say("lisbon", "b", request=Request("key", "body"), meta={"a": 1})
        each.say("c", branch="fork", source=(MAIN, 1))
        each.write(records=(each.note("brief", "x", 1), each.note("pins", "y", 0)))
    before = kept.all("key")
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


@_case
def what_is_redacted_is_gone(desk: Desk) -> None:
    store, talk = desk.store, desk.talk()
    for i in range(10):
        talk.say(f"question {i}", f"answer {i}")
    talk.write(records=(talk.note("brief", "before", 3), talk.note("brief", "at", 4), talk.note("pins", "after", 9)))
    talk.write("fork", source=(MAIN, 8))
    talk.say("other", branch="early", source=(MAIN, 2))
    talk.write("early", records=(talk.note("brief", "sibling", 2, branch="early"),))
    before, turns = talk.entries(), store.turns(desk.owner, "talk", MAIN, 0, 20)
    native = b'{ "role":"user","content":"redacted" }'
    same(store.redact(desk.owner, "talk", "nowhere-0", native), False)
    same(talk.entries(), before)
    revision = talk.head().revision
    same(store.redact(desk.owner, "talk", before[4].id, native), True)
    holds(talk.head().revision > revision, "who remembers the branch is not told that it has changed")
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


# Opening again


def all_is_there_when_it_is_opened_again(desk: Desk) -> None:
    reopen, talk = there(desk.reopen, "a way to open it again"), desk.talk()
    talk.say("lisbon", "b", request=Request("key", "body"), meta={"a": [1, None, "é"]})
    for native in (b'{"half":"\\ud800"}', b'{"bad":"\xff"}', b'{\n"a" : 1}'):
        turn = talk.turn(talk.tip(), "x")
        entry = msgspec.structs.replace(turn["entries"][0], native=native, mark="length", bound="b", tokens=5)
        talk.write(entries=(entry,), turn=msgspec.structs.replace(turn["turn"], usage=(native, b"{}"), error="e"))
    talk.write(records=(talk.note("brief", "x", 1), Placed(Record("pins", "", 1, b"\xff"), -1)))
    talk.say("c", branch="fork", source=(MAIN, 1))
    talk.say("d", cut=4)
    talk.write(lease=Lease(ME, 50, 3))
    desk.store.renew(desk.owner, "talk", MAIN, 3, 77)
    desk.talk("gone").say("x")
    desk.store.delete(desk.owner, "gone")
    desk.talk("redacted").say("secret", "b")
    desk.store.redact(desk.owner, "redacted", desk.talk("redacted").entries()[0].id, b'{"content":"-"}')
    desk.talk("described").say("x")
    desk.store.describe(desk.owner, "described", {"b": 2})
    ids = ("talk", "gone", "redacted", "described")
    before = [desk.talk(id).all("key") for id in ids]  # noqa: A001
    store = reopen(desk.store)
    try:
        after = [Talk(store, desk.owner, id).all("key") for id in ids]  # noqa: A001
        for id, was, now in zip(ids, before, after, strict=True):  # noqa: A001
            for part in was:
                same(was[part], now[part], f"{part} of {id!r} differ: {now[part]} instead of {was[part]}")
        holds(not store.candidates(desk.owner, ["secret"], 9), "what is gone is found")
        head = Talk(store, desk.owner, "talk").say("goes on")
        same(head.revision, before[0]["heads"][1].revision + 1, "it does not go on where it was")
        same(store.write(desk.owner, new_id(), Commit(expect=0, at=1)).revision, 1)
    finally:
        store.close()


CASES.append(Case(all_is_there_when_it_is_opened_again.__name__, all_is_there_when_it_is_opened_again, reopens=True))
