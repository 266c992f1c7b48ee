"""Steps on stored conversations that need no model: redact, export, import, copy, delete, search."""

from __future__ import annotations

import re
from itertools import zip_longest

from longtalk import Archive
from longtalk.errors import NotFound
from tests.soak.checks import check_is_strange, compare, list_secrets
from tests.soak.talk_steps import get_turn, pick_entry
from tests.soak.world import MARK, OWNERS, Broken, Talk, World

_TIME = re.compile(r'"updated":\d+')


def redact(world: World, talk: Talk, branch: str) -> None:
    """Redact a message: it is gone, and nothing else has changed."""
    picked = pick_entry(world, talk, branch, "user")
    if picked is None:
        return
    position, entry = picked
    text = entry.native.decode(errors="replace")
    world.tell(f"{talk.label} {branch}: redact {position}")
    world.get_archive(talk).redact(talk.name, entry.id)
    rest = ""
    for name, known in talk.paths.items():
        found = world.read(talk, name)
        if [each[:2] for each in found] != [each[:2] for each in known]:
            raise Broken(f"A redaction changed the entries of {talk.label} on {name!r}.")
        for one, other in zip(known, found, strict=True):
            quotes = b"MEMORY_CARD" in one.native or b"recalled" in one.native
            if one != other and one.id != entry.id and not quotes:
                raise Broken(f"The redaction of {entry.id} changed {one} to {other}.")
        talk.paths[name] = found
        rest += "".join(each.words for each in found)
    talk.gone |= {word for word in [*MARK.findall(text), *list_secrets(text)] if word not in rest}
    exported = world.get_archive(talk).export(talk.name, "jsonl")
    for word in sorted(talk.gone):
        if word in exported:
            raise Broken(f"The export has {word}, which was redacted.")


def transfer(world: World, talk: Talk, branch: str) -> None:
    """Export a conversation and import it with another id, for any owner and in any store."""
    if len(world.talks) > 7 or not talk.paths:
        return
    rng = world.rng
    kind = rng.choice(["json", "jsonl"])
    place, owner, name = rng.choice("ab"), rng.choice(OWNERS), f"import {world.next_number()}"
    world.tell(f"{talk.label}: export as {kind} to {owner}/{name} in {place}")
    data = world.get_archive(talk).export(talk.name, kind)
    target = Archive(world.stores[place], owner=owner)
    if target.load(data.encode(), id=name) != [name]:
        raise Broken("An import has another id.")
    made = Talk(world.next_number(), owner, name, place, talk.setting, marks=talk.marks | set())
    made.gone = set(talk.gone)
    for each, known in talk.paths.items():
        found = world.read(made, each)
        compare(known, found, f"the import of {talk.label} on {each!r}")
        made.paths[each] = found
    made.waiting = dict(talk.waiting)
    world.talks.append(made)


def copy(world: World, talk: Talk, branch: str) -> None:
    """Copy a conversation to the other store, compare, and remove the copy."""
    other = "b" if talk.store == "a" else "a"
    if any((each.store, each.owner, each.name) == (other, talk.owner, talk.name) for each in world.talks):
        return
    world.tell(f"{talk.label}: copy to {other}")
    done = world.get_archive(talk).copy_to(world.stores[other], [talk.name])
    if done.left or done.count("new") != 1:
        raise Broken(f"A copy was not made: {done}")
    there = Talk(0, talk.owner, talk.name, other, talk.setting)
    for each, known in talk.paths.items():
        compare(known, world.read(there, each), f"the copy of {talk.label} on {each!r}")
    archive = Archive(world.stores[other], owner=talk.owner)
    archive.verify(talk.name)
    compare_exports(world.get_archive(talk).export(talk.name, "jsonl"), archive.export(talk.name, "jsonl"))
    archive.delete(talk.name)


def compare_exports(one: str, other: str) -> None:
    # The time of the last change differs if it changed no branch.
    for before, after in zip_longest(_TIME.sub("", one, 1).splitlines(), _TIME.sub("", other, 1).splitlines()):
        if before != after:
            raise Broken(f"The export of a copy differs: {str(before)[:400]} is {str(after)[:400]}")


def delete(world: World, talk: Talk, branch: str) -> None:
    if len(world.talks) < 3:
        return
    world.tell(f"{talk.label}: delete")
    archive = world.get_archive(talk)
    archive.delete(talk.name)
    world.talks.remove(talk)
    if archive.search(f'"{talk.label}"', conversation=talk.name):
        raise Broken("A search finds what was deleted.")
    try:
        archive.history(talk.name)
    except NotFound:
        return
    raise Broken(f"{talk.label} was deleted and is there.")


def look_around(world: World, talk: Talk, branch: str) -> None:
    """Search, describe, and try to reach the conversation as another owner."""
    archive, number = world.get_archive(talk), world.next_number()
    world.tell(f"{talk.label}: look around")
    archive.set_metadata(talk.name, {"n": number})
    if archive.meta(talk.name) != {"n": number}:
        raise Broken("Metadata is not as it was set.")
    picked = pick_entry(world, talk, branch, "user")
    for word in MARK.findall(picked[1].native.decode(errors="replace"))[:1] if picked else ():
        hits = archive.search(word, conversation=talk.name)
        if not any(word in hit.text for hit in hits):
            raise Broken(f"A search for {word} does not find it: {hits}")
    archive.metrics(talk.name, branch=branch)
    archive.stats(talk.name)
    archive.export(talk.name, "md", branch=branch)
    for turn in {get_turn(entry) for entry in talk.paths[branch][-4:]}:
        archive.manifest(talk.name, turn, branch=branch)
    for owner in {"eve", *OWNERS} - {each.owner for each in world.talks if each.name == talk.name}:
        own = {each.name for each in world.talks if each.owner == owner}
        check_is_strange(Archive(world.get_store(talk), owner=owner), talk.name, own)
