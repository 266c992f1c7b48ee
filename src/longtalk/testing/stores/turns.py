"""Cases about the data that a store keeps with a turn: its lease, request key and manifest."""

from __future__ import annotations

from typing import Any

import msgspec

from longtalk.stores.base import MAIN, Holder, KeyedRequest, Lease, RequestKeyTaken
from longtalk.testing.report import assert_equal, assert_present, assert_raises, assert_true
from longtalk.testing.stores.harness import ME, ODD_JSON, Case, Harness, add_to, make_message
from longtalk.transcript.transcript import link_entries

TURN_CASES: list[Case] = []
case = add_to(TURN_CASES)


@case
def a_lease_is_renewed_only_with_its_token(harness: Harness) -> None:
    conversation, store = harness.conversation(), harness.store
    first = Lease(ME, 100, 1)
    head = conversation.write(lease=first)
    assert_equal((head.lease, head.token), (first, 1))
    assert_equal(store.renew(harness.owner, "talk", MAIN, 1, 200), True)
    assert_equal(
        conversation.head(),
        msgspec.structs.replace(head, lease=Lease(ME, 200, 1)),
        "the head after renewing, where only the time may change",
    )
    assert_equal(store.renew(harness.owner, "talk", MAIN, 2, 300), False, "renewing with a token that was never given")
    assert_equal(store.renew(harness.owner, "talk", MAIN, 0, 300), False)
    second = Lease(Holder("b", "", 1, 2), 400, 2)
    assert_equal(conversation.write(lease=second).lease, second)
    assert_equal(store.renew(harness.owner, "talk", MAIN, 1, 500), False, "renewing with an earlier token")
    assert_equal(conversation.head().lease, second)
    head = conversation.write()
    assert_equal((head.lease, head.token), (None, 2), "the lease and its token after a commit without a lease")
    assert_equal(store.renew(harness.owner, "talk", MAIN, 2, 500), False, "renewing a lease that was released")
    assert_equal(conversation.write("fork", source=(MAIN, 0), lease=Lease(ME, 1, 1)).token, 1)
    assert_equal(conversation.head().lease, None, "the lease of another branch")


@case
def a_request_key_is_used_for_one_turn_only(harness: Harness) -> None:
    conversation, store = harness.conversation(), harness.store
    conversation.say("before", "and")
    request = KeyedRequest("key", "body")
    running = conversation.make_turn(conversation.find_parent(), "hello", status="running")
    conversation.write(**running, request=request)
    keyed = conversation.keyed_turn("key")
    assert_equal((keyed.request, keyed.branch, keyed.turn, keyed.position), (request, MAIN, running["turn"], 2))
    before = conversation.read_all("key")
    assert_raises(RequestKeyTaken, lambda: conversation.say("again", request=request), "the same key again")
    assert_raises(
        RequestKeyTaken,
        lambda: conversation.say("x", branch="b", source=(MAIN, 1), request=request),
        "the same key on another branch",
    )
    assert_equal(conversation.read_all("key"), before, "a refused commit has changed something")
    complete = msgspec.structs.replace(running["turn"], status="complete")
    answer = link_entries(conversation.find_parent(), complete.id, 1, [make_message("hi", role="assistant")])
    conversation.write(entries=answer, turn=complete, request=request)
    assert_equal(conversation.keyed_turn("key").turn, complete, "the newest version of a key's turn")
    assert_true(
        store.keyed_turn(harness.owner, "talk", "KEY") is None and store.keyed_turn(harness.owner, "talk", "") is None
    )
    harness.conversation("elsewhere").say("hello", request=request)
    conversation.say("y", branch="fork", source=(MAIN, 1), request=KeyedRequest("other", ""))
    assert_equal(
        (conversation.keyed_turn("other").branch, conversation.keyed_turn("other").position),
        ("fork", 1),
        "the branch and position of a key's turn",
    )
    assert_equal(
        store.keyed_turns(harness.owner, "talk"),
        [conversation.keyed_turn("key"), conversation.keyed_turn("other")],
        "all keys in creation order",
    )
    conversation.write(cut=0)
    assert_equal(conversation.keyed_turn("key").turn, complete, "the turn of a key after a cut")
    assert_equal(
        store.keyed_turns(harness.owner, "talk"),
        [conversation.keyed_turn("key"), conversation.keyed_turn("other")],
        "all keys, after a cut",
    )


@case
def a_request_key_reports_a_branch_that_has_its_turn(harness: Harness) -> None:
    conversation = harness.conversation()
    conversation.say("before")
    fields = conversation.make_turn(conversation.find_parent(), "hello", "hi")
    conversation.write(**fields, request=KeyedRequest("key", "body"))
    conversation.write("a", source=(MAIN, 3))
    conversation.write("b", source=(MAIN, 2))
    conversation.write("other", source=(MAIN, 1))

    def locate_turn() -> tuple[str, int]:
        found = conversation.keyed_turn("key")
        assert_equal((found.request, found.turn), (KeyedRequest("key", "body"), fields["turn"]))
        return found.branch, found.position

    assert_equal(locate_turn(), (MAIN, 1), "the branch on which the turn was made")
    conversation.write(cut=2)
    assert_equal(locate_turn(), (MAIN, 1), "the same branch, which still has the start of the turn")
    conversation.write(cut=1)
    assert_true(locate_turn() in (("a", 1), ("b", 1)), f"{locate_turn()} instead of a branch that has the turn")
    conversation.say("else", branch="a", cut=0)
    assert_equal(locate_turn(), ("b", 1), "the only branch that has the turn")
    conversation.say("instead")
    assert_equal(locate_turn(), ("b", 1), "the branch, after the first one continued with another turn")


@case
def a_manifest_is_stored_with_its_turn(harness: Harness) -> None:
    conversation, turns = harness.conversation(), list[str]()

    def read_manifest(turn: str, id: str = "talk") -> bytes:  # noqa: A002
        return harness.store.manifest(harness.owner, id, turn)

    for native in ODD_JSON:
        fields = conversation.make_turn(conversation.head().entry if turns else None, "x")
        conversation.write(**fields, manifest=native)
        turns.append(fields["turn"].id)
    for turn, native in zip(turns, ODD_JSON, strict=True):
        assert_equal(read_manifest(turn), native, f"a manifest has changed: {native[:80]!r}")
    conversation.say("without")
    assert_equal(read_manifest(conversation.entries()[-1].turn), b"", "the manifest of a turn without one")
    assert_equal(read_manifest("nowhere"), b"", "the manifest of a missing turn")
    harness.conversation("other").write(entries=link_entries(None, turns[0], 0, [make_message("x")]))
    assert_equal(read_manifest(turns[0], "other"), b"", "the manifest of a turn in another conversation")
    conversation.write(cut=0)
    assert_equal(read_manifest(turns[0]), ODD_JSON[0], "the manifest of a turn that was cut off")


@case
def a_manifest_is_replaced_only_by_another_manifest(harness: Harness) -> None:
    store, conversation = harness.store, harness.conversation()
    fields = conversation.make_turn(None, "hello", status="running")
    turn = fields["turn"]
    conversation.write(**fields, manifest=b'{"first":1}')
    answer = link_entries(conversation.find_parent(), turn.id, 1, [make_message("hi", role="assistant")])
    conversation.write(entries=answer, turn=msgspec.structs.replace(turn, status="complete"))
    assert_equal(
        store.manifest(harness.owner, "talk", turn.id), b'{"first":1}', "the manifest after a commit without one"
    )
    conversation.say("another turn", manifest=b"{}")
    assert_equal(store.manifest(harness.owner, "talk", turn.id), b'{"first":1}', "the manifest after another turn")
    conversation.write(turn=msgspec.structs.replace(turn, status="failed"), manifest=b'{"second":2}')
    assert_equal(store.manifest(harness.owner, "talk", turn.id), b'{"second":2}', "the newest manifest")


@case
def manifests_are_read_by_the_position_of_their_turn(harness: Harness) -> None:
    store, conversation, turn_ids = harness.store, harness.conversation(), list[str]()

    def add(*texts: str, branch: str = MAIN, **fields: Any) -> None:
        turn_ids.append(assert_present(conversation.say(*texts, branch=branch, **fields).turn, "the new turn").id)

    def read_manifests(branch: str = MAIN, start: int = 0, stop: int = 10_000) -> dict[int, bytes]:
        manifests = store.manifests(harness.owner, "talk", branch, start, stop)
        return {turn_ids.index(turn): manifest for turn, manifest in manifests.items()}

    add("a", "b", manifest=ODD_JSON[1])
    add("c", "d")
    add("e", "f", manifest=ODD_JSON[2])
    conversation.write(
        entries=link_entries(conversation.find_parent(), turn_ids[0], 2, [make_message("of the first turn")])
    )
    add("g", manifest=ODD_JSON[5])
    assert_equal(
        read_manifests(), {0: ODD_JSON[1], 2: ODD_JSON[2], 3: ODD_JSON[5]}, "the manifests of all turns that have one"
    )
    for start, stop, turns in (
        (0, 1, [0]),
        (1, 4, []),
        (4, 5, [2]),
        (5, 7, []),
        (6, 7, []),
        (3, 9, [2, 3]),
        (5, 2, []),
    ):
        assert_equal(
            sorted(read_manifests(start=start, stop=stop)),
            turns,
            f"the manifests of turns that begin at {start} … {stop}",
        )
    add("x", branch="fork", source=(MAIN, 5), manifest=b"{}")
    assert_equal(
        read_manifests("fork"),
        {0: ODD_JSON[1], 2: ODD_JSON[2], 4: b"{}"},
        "the manifests on a fork's path",
    )
    assert_equal(sorted(read_manifests("fork", 4, 6)), [2, 4], "the manifests in a range of a fork")
    assert_equal(sorted(read_manifests()), [0, 2, 3], "the manifests of the other branch")
    store.redact(harness.owner, "talk", conversation.entries()[4].id, b'{"role":"user","content":"redacted"}')
    assert_equal(read_manifests(), {0: ODD_JSON[1], 2: ODD_JSON[2], 3: ODD_JSON[5]}, "the manifests after a redaction")
    conversation.write(cut=4)
    assert_equal(
        (sorted(read_manifests()), sorted(read_manifests("fork"))),
        ([0], [0, 2, 4]),
        "the manifests after a cut on one branch",
    )
    ending = msgspec.structs.replace(conversation.make_turn(None, "z")["turn"], id=turn_ids[1])
    conversation.write(turn=ending, manifest=ODD_JSON[0])
    assert_equal(read_manifests(), {0: ODD_JSON[1], 1: ODD_JSON[0]}, "a manifest that was added after its turn")
