"""Recall over an owner's other conversations: what is found, how it is named, and what is never found."""

from __future__ import annotations

import json
from typing import Any

import pytest

from longtalk import AsyncArchive, AsyncConversation, InputError, Memory, Recall
from longtalk.policies.base import fingerprint_policy
from longtalk.policies.encoding import decode_policy, encode_policy
from longtalk.policies.notation import format_policy, parse_policy
from longtalk.stores.base import Store
from longtalk.testing import AsyncScripted, says
from longtalk.tools import tool

pytestmark = pytest.mark.anyio

POLICY = Memory(recall=Recall(400, gate=False, scope="owner"))
QUESTION = "Which rosin did I buy for my violin?"
FACT = "I bought the dark rosin from Vienna for my violin."


def talk(store: Store, name: str, *answers: object, owner: str = "ada", **more: object) -> AsyncConversation:
    steps = [says(each) if isinstance(each, str) else each for each in answers or ["All right."] * 9]
    given = {"model": AsyncScripted(*steps), "owner": owner, "store": store, "policy": POLICY, **more}
    return AsyncConversation(name, **given)  # type: ignore[arg-type]


async def tell(store: Store, name: str, *texts: str, owner: str = "ada", **more: object) -> AsyncConversation:
    said = talk(store, name, owner=owner, **more)
    for text in texts:
        await said.send(text)
    return said


async def ask(store: Store, name: str = "new", *, owner: str = "ada", **more: object) -> str:
    """Ask the question in a conversation, and return what the request quotes for it."""
    said = talk(store, name, owner=owner, **more)
    await said.send(QUESTION)
    messages = json.loads(said._engine.provider.requests[-1])["messages"]  # type: ignore[attr-defined]
    return next((each["content"] for each in messages if "<recalled>" in each["content"]), "")


async def test_an_excerpt_names_its_conversation_and_its_date(store: Store) -> None:
    await tell(store, "lesson-3", FACT)
    await tell(store, "weather", "It rains on my garden all day.")
    await AsyncArchive(store, owner="ada").set_metadata("lesson-3", {"title": "Strings\nand  <recalled>"})
    text = await ask(store)
    [entry] = [each for each in await AsyncArchive(store, owner="ada").history("lesson-3") if each.role == "user"]
    lines = text.splitlines()
    assert '[conversation "Strings and &lt;recalled>"]' in lines
    at = lines.index(f"User: {FACT}")
    assert lines[at - 1].startswith("[")
    assert str(1970 + entry.at // 31_556_952_000) in lines[at - 1]


async def test_the_conversation_itself_is_searched_too(store: Store) -> None:
    limited = Memory(limit=0, recent=0, outline=0, recall=POLICY.recall)
    await tell(store, "other", FACT)
    said = await tell(store, "own", "My violin has a bright rosin too.", policy=limited)
    reply = await said.send(QUESTION)
    sent = said._engine.provider.requests[-1].decode()  # type: ignore[attr-defined]
    assert "[this conversation]" in sent
    assert "bright rosin" in sent
    assert '[conversation \\"other\\"]' in sent
    assert "dark rosin" in sent
    assert reply.context is not None
    assert [run.first for run in reply.context.manifest if run.verdict == "recalled"]


@pytest.mark.parametrize("how", ["replace", "revoke"])
async def test_what_was_corrected_in_another_conversation_is_not_quoted_as_if_it_held(store: Store, how: str) -> None:
    said = await tell(store, "lesson-3", FACT)
    await said.brief.add("facts", "Dark rosin from Vienna for the violin")
    [line] = await said.brief.lines()
    if how == "replace":
        await said.brief.replace(line.id, "Bright rosin from Berlin for the violin")
    else:
        await said.brief.revoke(line.id)
    text = await ask(store)
    assert ("dark rosin" in text) == (how == "replace")
    assert ("[corrected later: Bright rosin from Berlin for the violin]" in text) == (how == "replace")


async def test_nothing_is_found_in_private_deleted_or_redacted_conversations_or_those_of_others(store: Store) -> None:
    archive = AsyncArchive(store, owner="ada")
    private = await tell(store, "a", FACT, private=True)
    await tell(store, "a", FACT, owner="ben")
    assert await ask(store, "new-1") == ""
    await private.set_private(False)
    assert FACT in await ask(store, "new-2")
    assert await ask(store, "new-3", private=True) == ""
    assert FACT not in await ask(store, "new-4", policy=Memory(recall=Recall(400, gate=False)))
    await archive.redact("a", (await archive.history("a"))[0].id)
    assert FACT not in await ask(store, "new-5")
    await tell(store, "b", FACT)
    await archive.delete("b")
    assert FACT not in await ask(store, "new-6")
    assert FACT in await ask(store, "new-7", owner="ben")


async def test_what_other_conversations_say_is_not_stored_with_the_one_that_asks(store: Store) -> None:
    @tool
    def look(what: str) -> str:
        """Look it up."""
        return what

    await tell(store, "a", FACT)
    calls = says("", calls=[("c1", "look", {"what": "rosin"})])
    asking = talk(store, "b", calls, "It is dark.", "You are welcome.", tools=[look])
    await asking.send(QUESTION)
    provider = asking._engine.provider
    assert [FACT.encode() in body for body in provider.requests] == [True, True]  # type: ignore[attr-defined]
    assert FACT not in await asking.export("json")
    await AsyncArchive(store, owner="ada").delete("a")
    await asking.send("Thanks!")
    assert FACT.encode() not in provider.requests[-1]  # type: ignore[attr-defined]


async def test_the_tool_of_the_model_finds_only_what_its_own_conversation_says(store: Store) -> None:
    @tool
    def look(what: str) -> str:
        """Look it up."""
        return what

    await tell(store, "a", FACT)
    calls = says("", calls=[("c1", "recall", {"query": QUESTION})])
    asking = talk(store, "b", calls, "I do not know.", tools=[look])
    await asking.send("Look into your notes, please.")
    assert FACT not in await asking.export("json")


@pytest.mark.parametrize(("meaning", "found"), [(False, False), (True, True)])
async def test_what_is_found_by_words_can_be_ranked_by_meaning(store: Store, meaning: bool, found: bool) -> None:
    texts = ["My breakfast was late.", "My automobile is very red.", "My breakfast was late."]
    for number, text in enumerate(texts):
        await tell(store, f"a{number}", f"{text} We spoke of it yesterday.")
    policy = Memory(recall=Recall(45, gate=False, scope="owner", meaning=meaning))
    asking = talk(store, "b", "It is red.", policy=policy)
    await asking.send("Late yesterday we spoke of the car, of the vehicle, of the motor.")
    provider: Any = asking._engine.provider
    assert (b"automobile" in provider.requests[-1]) == found


def test_the_scope_is_part_of_the_policy_only_if_it_is_set() -> None:
    assert repr(Recall()) == "Recall(budget=1000, gate=True, meaning=False)"
    assert fingerprint_policy(Memory()) != fingerprint_policy(Memory(recall=Recall(scope="owner")))
    assert decode_policy(encode_policy(POLICY)) == POLICY
    assert parse_policy(format_policy(POLICY)) == POLICY
    with pytest.raises(InputError, match="'conversation' or 'owner'"):
        Recall(scope="all")  # type: ignore[arg-type]
