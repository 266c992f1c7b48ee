"""What a store has to keep apart: many writers at once, many owners, and names that look like something else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from longtalk.stores.base import MAIN, Commit, KeyTaken, Lease, Moved, Request, Sought, Store
from longtalk.testing.report import holds, same
from longtalk.testing.store_cases import ME, Case, Desk, Talk, into, message
from longtalk.transcript import chain

APART: list[Case] = []
case = into(APART)

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


@case
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


@case
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


@case
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


@case
def of_many_turns_with_one_key_one_is_made(desk: Desk) -> None:
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


def _calls(desk: Desk, id: str, turn: str) -> dict[str, Callable[[str], object]]:  # noqa: A002
    """Every method of a store, on what somebody else may have: owner → what comes of it. Those that read come first."""
    store, entry, added = desk.store, f"{turn}-0", chain(None, "t", 0, [message("secret")])[0]
    return {
        "head": lambda owner: store.head(owner, id),
        "read": lambda owner: bytes(store.read(owner, id, MAIN, 0, 9).array),
        "turns": lambda owner: store.turns(owner, id, MAIN, 0, 9),
        "manifest": lambda owner: store.manifest(owner, id, turn),
        "manifests": lambda owner: store.manifests(owner, id, MAIN, 0, 9),
        "records": lambda owner: store.records(owner, id, MAIN, "brief"),
        "metas": lambda owner: store.metas(owner, id, MAIN, 0, 9),
        "asked": lambda owner: store.asked(owner, id, "key"),
        "requests": lambda owner: store.requests(owner, id),
        "branches": lambda owner: store.branches(owner, id),
        "summary": lambda owner: store.summary(owner, id),
        "conversations": lambda owner: store.conversations(owner, meta={"a": 1}),
        "candidates": lambda owner: [
            *store.candidates(owner, ["secret"], 9),
            *store.candidates(owner, ["secret"], 9, conversation=id),
        ],
        "pick": lambda owner: store.pick(owner, id, MAIN, [(0, 1), (1, 9)]),
        "holding": lambda owner: store.holding(owner, id, MAIN, [Sought(("secret",))], 9),
        "verify": lambda owner: store.verify(owner, id),
        "renew": lambda owner: store.renew(owner, id, MAIN, 1, 999),
        "describe": lambda owner: [
            store.describe(owner, id, {"b": 2}),
            store.describe(owner, id, {"b": 2}, entry=entry),
        ],
        "redact": lambda owner: store.redact(owner, id, entry, b"{}"),
        "delete": lambda owner: store.delete(owner, id),
        "write": lambda owner: [
            _outcome(lambda: store.write(owner, id, Commit(expect=1, at=5))),
            _outcome(lambda: store.write(owner, id, Commit(expect=0, at=5, branch="b", source=(MAIN, 1)))),
            _outcome(lambda: store.write(owner, id, Commit(expect=0, at=5, entries=(added,)))),
            _outcome(lambda: store.write(owner, id, Commit(expect=1, at=5))),
        ],
    }


def _outcome(call: Callable[..., object], *arguments: object) -> object:
    """What comes of a call, or what it raises."""
    try:
        return call(*arguments)
    except Exception as problem:
        return type(problem), str(problem), getattr(problem, "head", None)


@case
def what_others_own_is_as_if_it_did_not_exist(desk: Desk) -> None:
    talk = desk.talk("mine-7")
    fields = talk.turn(None, "secret", "answer")
    kept: dict[str, Any] = {"meta": {"a": 1}, "entry_meta": {0: {"secret": 1}}, "manifest": b'{"secret":1}'}
    talk.write(**fields, **kept, request=Request("key", "body"), lease=Lease(ME, 9, 1))
    turn = talk.entries()[0].turn
    talk.write("b", source=(MAIN, 1), records=(talk.note("brief", "secret", 0),))
    methods = {name for name in vars(Store) if not name.startswith("_")} - {"close"}
    calls = _calls(desk, "mine-7", turn)
    same(set(calls), methods, f"this case does not try {methods ^ set(calls)}")
    same(desk.store.conversations(desk.other), [], "a list of what somebody else owns")
    same(desk.store.candidates(desk.other, ["secret"], 9), [], "what somebody else said")
    before = talk.all("key")
    nowhere = _calls(desk, "nowhere-7", turn)
    for name, call in calls.items():
        found, wanted = repr(_outcome(call, desk.other)), repr(_outcome(nowhere[name], desk.other))
        same(
            found.replace("mine-7", "…"),
            wanted.replace("nowhere-7", "…"),
            f"`{name}` tells what somebody else owns from what is not there",
        )
        same(talk.all("key"), before, f"`{name}` changes what somebody else owns")
    own = desk.talk("mine-7", owner=desk.other)
    same(own.texts(), ["secret"], "the same id of another owner is another conversation")
    holds(desk.store.delete(desk.other, "mine-7") is not None)
    same(talk.all("key"), before, "`delete` takes what somebody else owns")
    holds(desk.store.delete(desk.owner, "mine-7") is not None)


@case
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
