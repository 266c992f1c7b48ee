"""Cases about listing conversations in pages, and about finding entries by their words."""

from __future__ import annotations

import msgspec

from longtalk._util import json_bytes
from longtalk.memory.recall.protocol import SearchTerm
from longtalk.stores.base import MAIN, ConversationInfo, SearchHit
from longtalk.testing.report import assert_equal, assert_present, assert_true
from longtalk.testing.stores.harness import Case, ConversationDriver, Harness, add_to, make_message
from longtalk.transcript.pack import Entry
from longtalk.transcript.transcript import link_entries

SEARCH_CASES: list[Case] = []
case = add_to(SEARCH_CASES)


@case
def conversations_are_listed_newest_first(harness: Harness) -> None:
    store = harness.store
    for i, at in enumerate((30, 10, 50, 20, 40)):
        harness.conversation(f"c{i}").say("a", "b", at=at)
    listed = store.conversations(harness.owner)
    assert_equal([found.id for found in listed], ["c2", "c4", "c0", "c3", "c1"], "the order")
    assert_equal(
        [(found.created, found.updated, found.entries, found.branches) for found in listed[:1]], [(50, 50, 2, (MAIN,))]
    )
    assert_equal([found.id for found in store.conversations(harness.owner, limit=2)], ["c2", "c4"], "the first page")
    listed = store.conversations(harness.owner, limit=2, after=(40, "c4"))
    assert_equal([found.id for found in listed], ["c0", "c3"], "the next page")
    assert_equal(store.conversations(harness.owner, after=(10, "c9")), [], "the page after the last")
    harness.conversation("c1").say("c", branch="fork", source=(MAIN, 1), at=60)
    first = store.conversations(harness.owner)[0]
    assert_equal(
        (first.id, first.created, first.updated, first.entries),
        ("c1", 10, 60, 3),
        "a conversation after a commit on a branch",
    )


@case
def owners_are_listed_while_they_have_a_conversation(harness: Harness) -> None:
    store, mine = harness.store, f"{harness.owner} \x01é/" + "x" * 200
    names = sorted([harness.owner, harness.other, mine])

    def list_owners() -> list[str]:
        # A store may have conversations of other owners, too.
        return [name for name in store.owners() if name in names]

    assert_equal(list_owners(), [], "the owners of no conversation")
    for owner in names:
        harness.conversation("a", owner=owner).say("a")
        harness.conversation("b", owner=owner).say("b")
    assert_equal(list_owners(), names, "the owners")
    assert_equal(store.owners(), sorted(set(store.owners())), "the order")
    store.delete(mine, "a")
    assert_equal(list_owners(), names, "the owners after one of two conversations was deleted")
    store.delete(mine, "b")
    assert_equal(list_owners(), [name for name in names if name != mine], "the owners after a deletion")
    harness.conversation("c", owner=mine).say("c")
    assert_equal(list_owners(), names, "the owners after another conversation was made")


@case
def info_matches_the_list(harness: Harness) -> None:
    conversation = harness.conversation()
    harness.conversation("other").say("x", meta={"b": 2})
    conversation.say("a", "b", at=10, meta={"a": [1, "é"]})
    conversation.say("c", branch="fork", source=(MAIN, 1), at=20)
    found = assert_present(harness.store.info(harness.owner, "talk"), "the info of a conversation")
    assert_equal(
        found,
        ConversationInfo(id="talk", created=10, updated=20, entries=3, branches=("fork", MAIN), meta={"a": [1, "é"]}),
        "the info of a conversation",
    )
    assert_equal([each for each in harness.store.conversations(harness.owner) if each.id == "talk"], [found], "a list")
    harness.store.delete(harness.owner, "talk")
    assert_equal(harness.store.info(harness.owner, "talk"), None, "the info of a deleted conversation")


@case
def pages_skip_and_repeat_no_conversation(harness: Harness) -> None:
    """Check the pages of a list in which several conversations have the same time of last change."""
    store = harness.store
    updated = {name: 20 if name in "bdfh" else 10 if name == "g" else 30 for name in "hgfedcba"}
    updated |= {"é": 20, "Z": 20, "\U0001f600": 20, "\uffee": 20}
    for name, at in updated.items():
        harness.conversation(name).say("x", at=at, meta={"odd": ord(name) % 2})
    wanted = sorted(updated, key=lambda name: (-updated[name], name))
    for meta in (None, {"odd": 1}):
        matching = [name for name in wanted if meta is None or ord(name) % 2]
        for limit in (1, 2, 3, 5, 50):
            listed: list[str] = []
            after: tuple[int, str] | None = None
            while page := store.conversations(harness.owner, limit=limit, after=after, meta=meta):
                assert_equal(len(page), min(limit, len(matching) - len(listed)), f"a page of {limit}")
                listed += [found.id for found in page]
                after = (page[-1].updated, page[-1].id)
            assert_equal(listed, matching, f"pages of {limit}")
    store.delete(harness.owner, "d")
    page_after = [found.id for found in store.conversations(harness.owner, after=(20, "d"))]
    assert_equal(page_after, wanted[wanted.index("d") + 1 :], "the page after a deleted conversation")
    assert_equal(store.conversations(harness.owner, limit=0), [], "a page of size 0")


@case
def search_finds_words(harness: Harness) -> None:
    store, conversation = harness.store, harness.conversation()
    conversation.say("My Sister lives in Lisbon.", "How nice for your sister!")
    conversation.say("私は東京に住んでいます", "도쿄에서 만나요")
    harness.conversation("second").say("The lighthouse keeper", "Nothing at all")
    harness.conversation(owner=harness.other).say("My sister lives in Lisbon, 東京, lighthouse")

    def search(*terms: str, limit: int = 9, conversation: str | None = None) -> list[SearchHit]:
        hits = store.candidates(harness.owner, terms, limit, conversation=conversation)
        for hit in hits:
            entry = ConversationDriver(store, harness.owner, hit.conversation).entries(
                hit.branch, hit.position, hit.position + 1
            )[0]
            assert_equal((entry.id, entry.role, entry.at), (hit.entry, hit.role, hit.at), f"the entry of {hit}")
            assert_equal(hit.text, json_bytes.value(entry.native)["content"], "the text of a hit")
        return hits

    hits = search("sister")
    assert_equal(sorted(hit.position for hit in hits), [0, 1], "the entries with a word, in upper or lower case")
    assert_equal([hit.position for hit in search("sister", "lisbon")], [0, 1], "entries with more of the words first")
    assert_equal(
        [hit.position for hit in search("sister", "lisbon", limit=1)], [0], "at most as many entries as the limit"
    )
    for term, position in (("東京", 2), ("住", 2), ("京に住", 2), ("도쿄", 3), ("나요", 3)):
        assert_equal([hit.position for hit in search(term)], [position], f"{term} inside a text without spaces")
    assert_equal(
        [(hit.conversation, hit.text) for hit in search("lighthouse")],
        [("second", "The lighthouse keeper")],
        "a word in another conversation",
    )
    assert_equal(search("lighthouse", conversation="talk"), [], "a word that only another conversation has")
    assert_equal(search("京東"), [], "the same characters in another order")
    for nothing in ("light", "", "…", '"', "*", "NOT", "%"):
        assert_equal(search(nothing), [], f"the term {nothing!r}")
    assert_equal(search(), [], "no terms")
    for odd in ("sister OR lisbon", "sis*", 'a"b', "a NEAR(b", "(", "-sister", "col:sister", "\0"):
        search(odd)
    conversation.say("x", branch="fork", source=(MAIN, 2))
    assert_equal(len(search("lisbon")), 1, "hits for an entry on two branches")
    conversation.write(cut=0)
    assert_equal(
        [(hit.branch, hit.position) for hit in search("lisbon")], [("fork", 0)], "an entry that was cut off one branch"
    )
    assert_equal(search("東京"), [], "an entry that is on no branch")


@case
def search_finds_words_by_their_beginning(harness: Harness) -> None:
    conversation = harness.conversation()
    conversation.say("Ada plays the violin.", "VIOLAS are larger.", "An ultraviolet café", "東京に住んでいます")

    def search(*terms: str) -> list[int]:
        return sorted(hit.position for hit in harness.store.candidates(harness.owner, terms, 9))

    assert_equal(search("viol*"), [0, 1], "words that begin with a term, in upper or lower case")
    assert_equal(search("violin*"), [0], "the whole word")
    assert_equal(search("viol"), [], "a beginning without the asterisk")
    assert_equal(search("plays the vio*"), [0], "a phrase whose last word is a beginning")
    assert_equal(search("play the vio*"), [], "a phrase whose first word is a beginning")
    assert_equal(search("cafe*", "larg*"), [1, 2], "two beginnings, one without its accent")
    assert_equal(search("東*"), [3], "a character of a text without spaces")
    for nothing in ("*", "**", "…*", '"*', "*lin", "v*n"):
        assert_equal(search(nothing), [], f"the term {nothing!r}")


@case
def matches_are_returned_by_position(harness: Harness) -> None:
    store, conversation = harness.store, harness.conversation()
    conversation.say("Which CITIES are worth a visit?", "The city of Porto, with its cafés.")
    conversation.say("私は東京に住んでいます", "Running a citadel is not hard in Tokyo.")
    harness.conversation("second").say("Another city")

    def find(*words: str, beginnings: tuple[str, ...] = (), most: int = 9, branch: str = MAIN) -> tuple[list[int], int]:
        term = SearchTerm(words, beginnings)
        (found,) = store.matches(harness.owner, "talk", branch, [term], most)
        return list(found.positions), found.count

    assert_equal(find("city"), ([1], 1), "a whole word")
    assert_equal(find("city", "cities"), ([0, 1], 2), "either of two words")
    assert_equal(find(beginnings=("cit",)), ([0, 1, 3], 3), "the start of a word")
    assert_equal(find("porto", beginnings=("runn", "tok")), ([1, 3], 2), "words and beginnings")
    assert_equal(find("東京"), ([2], 1), "a part of a text without spaces")
    assert_equal(find("cafes"), ([1], 1), "a word without its accents")
    for nothing in ("cit", "", "…", '"', "*", "cit*", "NEAR", "\0"):
        assert_equal(find(nothing), ([], 0), f"the word {nothing!r}")
    for nothing in ("", " ", "…", '"', "*", "ities"):
        assert_equal(find(beginnings=(nothing,)), ([], 0), f"the beginning {nothing!r}")
    assert_equal(find(), ([], 0), "an empty term")
    assert_equal(store.matches(harness.owner, "talk", MAIN, [], 9), [], "no terms")
    assert_equal(find("city", branch="none"), ([], 0), "a missing branch")
    terms = [SearchTerm((word,)) for word in ("hard", "nowhere", "visit")]
    many = store.matches(harness.owner, "talk", MAIN, terms, 9)
    assert_equal([each.positions for each in many], [(3,), (), (0,)], "several terms")
    positions, count = find(beginnings=("cit",), most=2)
    assert_equal(positions, [1, 3], "the newest positions")
    assert_true(count > 2, "the count does not show that there are more matches than positions")
    positions, count = find(beginnings=("cit",), most=0)
    assert_true(not positions and count > 0, "with most=0: positions are returned, or the count is 0")


@case
def matches_are_limited_to_one_path(harness: Harness) -> None:
    store, conversation = harness.store, harness.conversation()
    conversation.say("one violin", "two violins", "three violins", "four")
    conversation.say("a fork with a violin", branch="fork", source=(MAIN, 1))
    conversation.say("x", branch="late", source=("fork", 2))
    conversation.say("five violins", cut=2)

    def find_positions(branch: str) -> tuple[int, ...]:
        return store.matches(harness.owner, "talk", branch, [SearchTerm((), ("violin",))], 9)[0].positions

    assert_equal(find_positions(MAIN), (0, 1, 2), "the path of the main branch")
    assert_equal(conversation.texts()[2], "five violins")
    assert_equal(find_positions("fork"), (0, 1), "the path of a fork")
    assert_equal(find_positions("late"), (0, 1), "the path of a fork of a fork")
    assert_true(store.redact(harness.owner, "talk", conversation.entries()[0].id, b'{"role":"user","content":"-"}'))
    assert_equal(find_positions(MAIN), (1, 2), "the main branch after a redaction")
    assert_equal(find_positions("fork"), (1,), "a fork after the same redaction")


@case
def matches_include_memory_cards_but_not_tool_results(harness: Harness) -> None:
    store, conversation = harness.store, harness.conversation()
    asked = make_message("What is the plan?")
    called = make_message("Looking.", role="assistant")
    native = json_bytes.encode({"role": "tool", "tool_call_id": "c", "content": "a plan of the harbour"})
    answer = make_message('Here it is.<MEMORY_CARD>{"+facts": ["a plan for Lisbon"]}</MEMORY_CARD>', role="assistant")
    result = Entry(role="tool", wire="openai-chat", native=native, at=0)
    conversation.write(entries=link_entries(None, "t", 0, [asked, called, result, answer]))

    def find_positions(word: str) -> tuple[int, ...]:
        return store.matches(harness.owner, "talk", MAIN, [SearchTerm((word,))], 9)[0].positions

    assert_equal(find_positions("plan"), (0, 3), "a word that a tool result has too")
    assert_equal(find_positions("lisbon"), (3,), "a word on a card")
    assert_equal(find_positions("facts"), (), "the name of a card's field")
    hits = store.candidates(harness.owner, ["lisbon"], 9)
    assert_equal([(hit.position, hit.text) for hit in hits], [(3, "Here it is.")], "a hit, without the card")
    assert_equal(
        [hit.position for hit in store.candidates(harness.owner, ["harbour"], 9)],
        [2],
        "a search for a word in a tool result",
    )


@case
def hits_show_the_whole_text_of_a_verbatim_answer(harness: Harness) -> None:
    conversation = harness.conversation()
    text = 'A card is <MEMORY_CARD>{"+facts": ["a plan for Lisbon"]}</MEMORY_CARD>'
    answer = msgspec.structs.replace(make_message(text, role="assistant"), mark="verbatim")
    conversation.write(entries=link_entries(None, "t", 0, [make_message("What is a card?"), answer]))
    hits = harness.store.candidates(harness.owner, ["lisbon"], 10)
    assert_equal([(hit.position, hit.text) for hit in hits], [(1, text)], "a hit in an answer that is all text")
