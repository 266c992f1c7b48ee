"""Cases about concurrent writers, several owners, and names that could confuse a store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from longtalk.memory.recall.protocol import SearchTerm
from longtalk.stores.base import MAIN, Commit, HeadMoved, KeyedRequest, Lease, RequestKeyTaken, Store
from longtalk.testing.report import assert_equal, assert_true
from longtalk.testing.stores.harness import ME, Case, ConversationDriver, Harness, add_to, make_message
from longtalk.transcript.transcript import link_entries

CONCURRENCY_CASES: list[Case] = []
case = add_to(CONCURRENCY_CASES)

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
"""Names that are special in file systems or databases, and names that are almost equal."""


# Concurrent writers and readers


def _run_together(number: int, work: Callable[[int], None]) -> None:
    """Run `work(i)` in `number` threads at once, with `i` from 0 on. If any of them fails, raise the first error."""
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
def concurrent_writers_lose_duplicate_or_mix_no_turns(harness: Harness) -> None:
    conversation = harness.conversation()
    conversation.say("begin")

    def work(i: int) -> None:
        for n in range(12):
            while True:
                head = conversation.head()
                fields = conversation.make_turn(head.entry, f"{i}/{n} said", f"{i}/{n} answered")
                try:
                    new_head = conversation.write(**fields, expect=head.revision)
                except HeadMoved:
                    continue
                found = (new_head.revision, new_head.size, new_head.entry)
                assert_equal(
                    found, (head.revision + 1, head.size + 2, fields["entries"][-1].id), "the head after a commit"
                )
                break

    _run_together(6, work)
    texts = conversation.texts()[1:]
    said = [text.removesuffix(" said") for text in texts[::2]]
    assert_equal(texts[1::2], [f"{text} answered" for text in said], "the answers in the order of the questions")
    assert_equal(sorted(said), sorted(f"{i}/{n}" for i in range(6) for n in range(12)), "all turns")
    for i in range(6):
        assert_equal(
            [text for text in said if text.startswith(f"{i}/")],
            [f"{i}/{n}" for n in range(12)],
            "the turns of one thread",
        )
    assert_equal(conversation.head().revision, 73, "the revision")


@case
def readers_never_see_half_a_commit(harness: Harness) -> None:
    conversation, done = harness.conversation(), threading.Event()
    conversation.say("said", "answered")

    def work(i: int) -> None:
        if i == 0:
            try:
                for _ in range(60):
                    conversation.write(
                        **conversation.make_turn(conversation.find_parent(), "said", "answered"),
                        records=(conversation.make_record("brief", "x", 0),),
                    )
            finally:
                done.set()
        while not done.is_set():
            head = conversation.head()
            assert_equal(
                (head.size, len(head.records)),
                (2 * head.revision, head.revision - 1),
                "the entries and records of a head",
            )
            turns = harness.store.turns(harness.owner, "talk", MAIN, 0, head.size)
            assert_equal(
                (len(conversation.entries(stop=head.size)), len(turns)),
                (head.size, head.revision),
                "the entries and turns that were read",
            )

    _run_together(4, work)


@case
def of_concurrent_first_commits_one_succeeds(harness: Harness) -> None:
    for number in range(8):
        conversation, won = harness.conversation(f"talk {number}"), list[str]()

        def work(i: int, conversation: ConversationDriver = conversation, won: list[str] = won) -> None:
            try:
                conversation.write(**conversation.make_turn(None, str(i)), expect=0)
                won.append(str(i))
            except HeadMoved:
                pass

        _run_together(4, work)
        assert_equal(conversation.texts(), won, "the texts, compared with the writers that succeeded")
        assert_equal(len(won), 1)


@case
def of_concurrent_turns_with_one_key_one_succeeds(harness: Harness) -> None:
    conversation, won = harness.conversation(), list[int]()
    conversation.say("begin")

    def work(i: int) -> None:
        try:
            conversation.write(
                f"b{i}",
                **conversation.make_turn(conversation.find_parent(), str(i)),
                source=(MAIN, 1),
                request=KeyedRequest("key", "body"),
            )
            won.append(i)
        except RequestKeyTaken:
            pass

    _run_together(5, work)
    assert_equal(len(won), 1, f"{len(won)} turns were made with one key")


# Owners and names


def _list_store_calls(harness: Harness, id: str, turn: str) -> dict[str, Callable[[str], object]]:  # noqa: A002
    """Return, by method name, a function that calls the store method on a conversation as a given owner.

    Methods that only read come first.
    """
    store, entry, added = harness.store, f"{turn}-0", link_entries(None, "t", 0, [make_message("secret")])[0]
    return {
        "head": lambda owner: store.head(owner, id),
        "read": lambda owner: bytes(store.read(owner, id, MAIN, 0, 9).array),
        "turns": lambda owner: store.turns(owner, id, MAIN, 0, 9),
        "manifest": lambda owner: store.manifest(owner, id, turn),
        "manifests": lambda owner: store.manifests(owner, id, MAIN, 0, 9),
        "records": lambda owner: store.records(owner, id, MAIN, "brief"),
        "metas": lambda owner: store.metas(owner, id, MAIN, 0, 9),
        "keyed_turn": lambda owner: store.keyed_turn(owner, id, "key"),
        "keyed_turns": lambda owner: store.keyed_turns(owner, id),
        "branches": lambda owner: store.branches(owner, id),
        "heads": lambda owner: store.heads(owner, [id, "none"], 2),
        "info": lambda owner: store.info(owner, id),
        "conversations": lambda owner: store.conversations(owner, meta={"a": 1}),
        "conversations_with": lambda owner: store.conversations_with(owner, "brief"),
        "candidates": lambda owner: [
            *store.candidates(owner, ["secret"], 9),
            *store.candidates(owner, ["secret"], 9, conversation=id),
        ],
        "pick": lambda owner: store.pick(owner, id, MAIN, [(0, 1), (1, 9)]),
        "matches": lambda owner: store.matches(owner, id, MAIN, [SearchTerm(("secret",))], 9),
        "verify": lambda owner: store.verify(owner, id),
        "renew": lambda owner: store.renew(owner, id, MAIN, 1, 999),
        "describe": lambda owner: [
            store.describe(owner, id, {"b": 2}),
            store.describe(owner, id, {"b": 2}, entry=entry),
        ],
        "redact": lambda owner: store.redact(owner, id, entry, b"{}"),
        "delete": lambda owner: store.delete(owner, id),
        "write": lambda owner: [
            _capture_outcome(lambda: store.write(owner, id, Commit(expect=1, at=5))),
            _capture_outcome(lambda: store.write(owner, id, Commit(expect=0, at=5, branch="b", source=(MAIN, 1)))),
            _capture_outcome(lambda: store.write(owner, id, Commit(expect=0, at=5, entries=(added,)))),
            _capture_outcome(lambda: store.write(owner, id, Commit(expect=1, at=5))),
        ],
    }


def _capture_outcome(call: Callable[..., object], *arguments: object) -> object:
    """Return the result of a call or, if it raises an error, a tuple that describes the error."""
    try:
        return call(*arguments)
    except Exception as problem:
        return type(problem), str(problem), getattr(problem, "head", None)


@case
def another_owners_conversation_seems_not_to_exist(harness: Harness) -> None:
    conversation = harness.conversation("mine-7")
    fields = conversation.make_turn(None, "secret", "answer")
    extra: dict[str, Any] = {"meta": {"a": 1}, "entry_meta": {0: {"secret": 1}}, "manifest": b'{"secret":1}'}
    conversation.write(**fields, **extra, request=KeyedRequest("key", "body"), lease=Lease(ME, 9, 1))
    turn = conversation.entries()[0].turn
    conversation.write("b", source=(MAIN, 1), records=(conversation.make_record("brief", "secret", 0),))
    methods = {name for name in vars(Store) if not name.startswith("_")} - {"close", "owners"}
    calls = _list_store_calls(harness, "mine-7", turn)
    assert_equal(set(calls), methods, f"this case does not try {methods ^ set(calls)}")
    assert_equal(harness.store.conversations(harness.other), [], "the conversations of another owner")
    assert_equal(harness.store.candidates(harness.other, ["secret"], 9), [], "a search by another owner")
    before = conversation.read_all("key")
    nowhere = _list_store_calls(harness, "nowhere-7", turn)
    for name, call in calls.items():
        found, wanted = (
            repr(_capture_outcome(call, harness.other)),
            repr(_capture_outcome(nowhere[name], harness.other)),
        )
        assert_equal(
            found.replace("mine-7", "…"),
            wanted.replace("nowhere-7", "…"),
            f"`{name}` reveals another owner's conversation",
        )
        assert_equal(conversation.read_all("key"), before, f"`{name}` changes another owner's conversation")
    own = harness.conversation("mine-7", owner=harness.other)
    assert_equal(own.texts(), ["secret"], "the conversation of another owner with the same id")
    assert_true(harness.store.delete(harness.other, "mine-7") is not None)
    assert_equal(conversation.read_all("key"), before, "`delete` changes another owner's conversation")
    assert_true(harness.store.delete(harness.owner, "mine-7") is not None)


@case
def names_may_be_any_text(harness: Harness) -> None:
    """Check that ids, owners, branches and keys may be any text, and that similar names are not confused."""
    store = harness.store
    for name in HOSTILE:
        harness.conversation(name).say(f"id {name}", request=KeyedRequest(name, name))
        harness.conversation("branches").say(f"branch {name}", branch=name)
        harness.conversation(owner=f"{harness.owner}{name}").say(f"owner {name}")
    for name in HOSTILE:
        assert_equal(harness.conversation(name).texts(), [f"id {name}"], f"the conversation {name!r}")
        asked = store.keyed_turn(harness.owner, name, name)
        assert_true(asked is not None and asked.request == KeyedRequest(name, name), f"the key {name!r}")
        assert_equal(harness.conversation("branches").texts(name), [f"branch {name}"], f"the branch {name!r}")
        assert_equal(
            harness.conversation(owner=f"{harness.owner}{name}").texts(), [f"owner {name}"], f"the owner {name!r}"
        )
    found = [summary.id for summary in store.conversations(f"{harness.owner}", limit=100)]
    assert_equal(sorted(found), sorted([*HOSTILE, "branches", "talk"]), "the conversations")
    for name in HOSTILE:
        assert_true(store.delete(harness.owner, name) is not None, f"the conversation {name!r}")
    assert_equal(
        [summary.id for summary in store.conversations(harness.owner)],
        ["branches", "talk"],
        "the remaining conversations",
    )
