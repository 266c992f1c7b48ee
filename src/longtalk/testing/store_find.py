"""What a store has to find: an owner's conversations, page by page, and the entries that hold some words."""

from __future__ import annotations

from longtalk import _json
from longtalk.pack import Entry
from longtalk.stores.base import MAIN, Hit, Sought, Summary
from longtalk.testing.report import holds, same, there
from longtalk.testing.store_cases import Case, Desk, Talk, into, message
from longtalk.transcript import chain

FOUND: list[Case] = []
case = into(FOUND)


@case
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
    listed = store.conversations(desk.owner, limit=2, after=(40, "c4"))
    same([found.id for found in listed], ["c0", "c3"], "the next page")
    same(store.conversations(desk.owner, after=(10, "c9")), [], "nothing is older")
    desk.talk("c1").say("c", branch="fork", source=(MAIN, 1), at=60)
    first = store.conversations(desk.owner)[0]
    same((first.id, first.created, first.updated, first.entries), ("c1", 10, 60, 3), "a branch was changed")


@case
def a_summary_is_what_a_list_says(desk: Desk) -> None:
    talk = desk.talk()
    desk.talk("other").say("x", meta={"b": 2})
    talk.say("a", "b", at=10, meta={"a": [1, "é"]})
    talk.say("c", branch="fork", source=(MAIN, 1), at=20)
    found = there(desk.store.summary(desk.owner, "talk"), "a summary")
    same(
        found,
        Summary(id="talk", created=10, updated=20, entries=3, branches=("fork", MAIN), meta={"a": [1, "é"]}),
        "a summary",
    )
    same([each for each in desk.store.conversations(desk.owner) if each.id == "talk"], [found], "a list")
    desk.store.delete(desk.owner, "talk")
    same(desk.store.summary(desk.owner, "talk"), None, "that of what is gone")


@case
def pages_skip_and_repeat_no_conversation(desk: Desk) -> None:
    """Also where many were changed at the same time."""
    store = desk.store
    made = {name: 20 if name in "bdfh" else 10 if name == "g" else 30 for name in "hgfedcba"}
    made |= {"é": 20, "Z": 20, "\U0001f600": 20, "\uffee": 20}
    for name, at in made.items():
        desk.talk(name).say("x", at=at, meta={"odd": ord(name) % 2})
    wanted = sorted(made, key=lambda name: (-made[name], name))
    for meta in (None, {"odd": 1}):
        some = [name for name in wanted if meta is None or ord(name) % 2]
        for limit in (1, 2, 3, 5, 50):
            listed: list[str] = []
            after: tuple[int, str] | None = None
            while page := store.conversations(desk.owner, limit=limit, after=after, meta=meta):
                same(len(page), min(limit, len(some) - len(listed)), f"a page of {limit}")
                listed += [found.id for found in page]
                after = (page[-1].updated, page[-1].id)
            same(listed, some, f"pages of {limit}")
    store.delete(desk.owner, "d")
    behind = [found.id for found in store.conversations(desk.owner, after=(20, "d"))]
    same(behind, wanted[wanted.index("d") + 1 :], "behind one that is not there any more")
    same(store.conversations(desk.owner, limit=0), [], "a page of none")


@case
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


@case
def what_is_sought_is_told_by_its_places(desk: Desk) -> None:
    store, talk = desk.store, desk.talk()
    talk.say("Which CITIES are worth a visit?", "The city of Porto, with its cafés.")
    talk.say("私は東京に住んでいます", "Running a citadel is not hard in Tokyo.")
    desk.talk("second").say("Another city")

    def held(*words: str, beginnings: tuple[str, ...] = (), most: int = 9, branch: str = MAIN) -> tuple[list[int], int]:
        sought = Sought(words, beginnings)
        (found,) = store.holding(desk.owner, "talk", branch, [sought], most)
        return list(found.places), found.count

    same(held("city"), ([1], 1), "a whole word")
    same(held("city", "cities"), ([0, 1], 2), "either of two words")
    same(held(beginnings=("cit",)), ([0, 1, 3], 3), "how a word begins")
    same(held("porto", beginnings=("runn", "tok")), ([1, 3], 2), "words and beginnings")
    same(held("東京"), ([2], 1), "a part of a text without spaces")
    same(held("cafes"), ([1], 1), "a word without its accents")
    for nothing in ("cit", "", "…", '"', "*", "cit*", "NEAR", "\0"):
        same(held(nothing), ([], 0), f"the word {nothing!r}")
    for nothing in ("", " ", "…", '"', "*", "ities"):
        same(held(beginnings=(nothing,)), ([], 0), f"the beginning {nothing!r}")
    same(held(), ([], 0), "nothing sought")
    same(store.holding(desk.owner, "talk", MAIN, [], 9), [], "nothing sought at all")
    same(held("city", branch="none"), ([], 0), "a branch that is not there")
    many = store.holding(desk.owner, "talk", MAIN, [Sought(("hard",)), Sought(("nowhere",)), Sought(("visit",))], 9)
    same([each.places for each in many], [(3,), (), (0,)], "several things")
    places, count = held(beginnings=("cit",), most=2)
    same(places, [1, 3], "the newest places")
    holds(count > 2, "that there are more than the newest places is not said")
    places, count = held(beginnings=("cit",), most=0)
    holds(not places and count > 0, "no places were asked for, and there are some")


@case
def what_is_sought_is_on_one_path(desk: Desk) -> None:
    store, talk = desk.store, desk.talk()
    talk.say("one violin", "two violins", "three violins", "four")
    talk.say("a fork with a violin", branch="fork", source=(MAIN, 1))
    talk.say("x", branch="late", source=("fork", 2))
    talk.say("five violins", cut=2)

    def places(branch: str) -> tuple[int, ...]:
        return store.holding(desk.owner, "talk", branch, [Sought((), ("violin",))], 9)[0].places

    same(places(MAIN), (0, 1, 2), "the path of the main branch")
    same(talk.texts()[2], "five violins")
    same(places("fork"), (0, 1), "the path of a fork")
    same(places("late"), (0, 1), "the path of a fork of a fork")
    holds(store.redact(desk.owner, "talk", talk.entries()[0].id, b'{"role":"user","content":"-"}'))
    same(places(MAIN), (1, 2), "after a redaction")
    same(places("fork"), (1,), "after a redaction on another branch")


@case
def cards_are_found_and_results_of_tools_are_not(desk: Desk) -> None:
    store, talk = desk.store, desk.talk()
    asked = message("What is the plan?")
    called = message("Looking.", role="assistant")
    native = _json.encode({"role": "tool", "tool_call_id": "c", "content": "a plan of the harbour"})
    answer = message('Here it is.<MEMORY_CARD>{"+facts": ["a plan for Lisbon"]}</MEMORY_CARD>', role="assistant")
    result = Entry(role="tool", wire="openai-chat", native=native, at=0)
    talk.write(entries=chain(None, "t", 0, [asked, called, result, answer]))

    def places(word: str) -> tuple[int, ...]:
        return store.holding(desk.owner, "talk", MAIN, [Sought((word,))], 9)[0].places

    same(places("plan"), (0, 3), "without the result of a tool")
    same(places("lisbon"), (3,), "what a card says")
    same(places("facts"), (), "the field of a card")
    hits = store.candidates(desk.owner, ["lisbon"], 9)
    same([(hit.place, hit.text) for hit in hits], [(3, "Here it is.")], "a hit does not show the card")
    same([hit.place for hit in store.candidates(desk.owner, ["harbour"], 9)], [2], "a search finds results of tools")
