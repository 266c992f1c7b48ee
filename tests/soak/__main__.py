"""Play worlds until the time or the steps are over. See the package's docstring."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

from tests.soak import archive_steps, checks, process_steps, races, state_steps, talk_steps
from tests.soak.settings import change
from tests.soak.world import STORES, World

STEPS = 60
"""The number of steps of a world."""

ON_TALKS: dict[Any, int] = {
    talk_steps.send: 22,
    talk_steps.resume: 4,
    talk_steps.give_results: 4,
    talk_steps.repeat_key: 3,
    talk_steps.note: 4,
    talk_steps.append: 3,
    talk_steps.mark_exchange: 7,
    talk_steps.change_brief: 4,
    talk_steps.fork: 3,
    talk_steps.rewind: 3,
    talk_steps.answer_again: 5,
    archive_steps.redact: 3,
    archive_steps.transfer: 2,
    archive_steps.copy: 2,
    archive_steps.delete: 1,
    archive_steps.look_around: 3,
    talk_steps.collide: 3,
    process_steps.kill: 5,
    process_steps.fill_disk: 3,
}
ON_STATES: dict[Any, int] = {
    state_steps.send: 12,
    state_steps.resume: 2,
    state_steps.give_results: 3,
    state_steps.crash: 4,
    state_steps.note: 2,
    state_steps.append: 2,
    state_steps.mark_exchange: 4,
    state_steps.damage: 3,
}


def play(world: World, steps: int) -> Counter[str]:
    """Play a world. Return how often each step was played."""
    rng, played = world.rng, Counter[str]()
    for number in range(steps):
        world.tell(f"[{number}]")
        name = step(world, rng)
        checks.check_nothing_refused(world)
        checks.check_tool_runs(world)
        if number % 10 == 9 or number == steps - 1:
            checks.check_all(world)
        played[name] += 1
    return played


def step(world: World, rng: Random) -> str:
    """Play one step on a conversation, a state or the world, and check what it has changed."""
    chance = rng.random()
    if chance < 0.03 or not world.talks:
        if len(world.talks) < 6:
            talk_steps.begin(world)
        checks.check_all(world)
        return "begin"
    if chance < 0.05 or not world.held:
        if len(world.held) < 4:
            state_steps.begin(world)
        return "begin a state"
    if chance < 0.09:
        jump(world)
        return "jump"
    if chance < 0.11:
        place = rng.choice("ab")
        world.tell(f"reopen {place}")
        world.reopen(place)
        return "reopen"
    if chance < 0.13:
        return races.play(world)
    if chance < 0.4:
        held = rng.choice(world.held)
        if rng.random() < 0.25:
            held.setting = change(rng, held.setting)
            world.tell(f"state {held.number}: {held.setting}")
        weights = {**ON_STATES, state_steps.give_results: 30} if held.waiting else ON_STATES
        [action] = rng.choices(list(weights), list(weights.values()))
        action(world, held)
        checks.check_held(world, held)
        return f"state: {action.__name__}"
    talk = rng.choice(world.talks)
    if rng.random() < 0.25:
        talk.setting = change(rng, talk.setting)
    branch = rng.choice([*talk.paths] or ["main"])
    weights = {**ON_TALKS, talk_steps.give_results: 60} if talk.waiting.get(branch) else ON_TALKS
    [action] = rng.choices(list(weights), list(weights.values()))
    if not talk.paths:
        action = talk_steps.send
    action(world, talk, branch)
    if talk in world.talks:
        checks.check_talk(world, talk)
    return action.__name__


def jump(world: World) -> None:
    """Set the clock forward or back, perhaps to before 1970."""
    by = world.rng.choice([1_000, 60_000, 86_400_000, 400 * 86_400_000]) * world.rng.choice([1, -1])
    world.clock.at = -1_000_000_000 if world.rng.random() < 0.05 else max(world.clock.at, 0) + by
    world.tell(f"jump to {world.clock.at}")


def run_world(seed: int, kinds: Sequence[str], steps: int) -> Counter[str]:
    """Play the world of a seed. Its stores are drawn from `kinds`."""
    rng = Random(f"stores {seed}")
    chosen = (rng.choice(kinds), rng.choice(kinds))
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, ExitStack() as stack:
        world = World(seed, chosen, Path(folder), stack)
        try:
            return play(world, steps)
        except BaseException:
            print(f"\nThe world of seed {seed}, with {' and '.join(chosen)}:", *world.story, sep="\n  ")
            raise


def main(arguments: Sequence[str] | None = None) -> int:
    """Play worlds. Return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=None, help="stop after this time")
    parser.add_argument("--steps", type=int, default=None, help="stop after this many steps")
    parser.add_argument("--seed", type=int, default=None, help="the seed of the first world; the next has the next one")
    parser.add_argument("--worlds", type=int, default=None, help="how many worlds to play")
    parser.add_argument("--stores", default=",".join(STORES), help="the kinds of stores to use")
    given = parser.parse_args(arguments)
    if given.minutes is None and given.steps is None:
        given.worlds = given.worlds or 1
    seed: int = given.seed if given.seed is not None else secrets.randbelow(10**9)
    print(f"seed {seed}", flush=True)
    end = time.monotonic() + 60 * (given.minutes if given.minutes is not None else 1e6)
    total, worlds, shown = Counter[str](), 0, time.monotonic()
    # The strict servers and some drivers warn about connections that were reset.
    warnings.simplefilter("ignore", ResourceWarning)
    while time.monotonic() < end and total.total() < (given.steps or 1e9) and worlds < (given.worlds or 1e9):
        try:
            total += run_world(seed + worlds, given.stores.split(","), STEPS)
        except Exception:
            traceback.print_exc()
            again = f"python -m tests.soak --seed {seed + worlds}"
            options = "" if given.stores == ",".join(STORES) else f" --stores {given.stores}"
            print(f"\nA promise was broken. To play it again: {again}{options}", flush=True)
            return 1
        worlds += 1
        if time.monotonic() > shown + 30:
            shown = time.monotonic()
            print(f"{total.total()} steps in {worlds} worlds", flush=True)
    print(f"{total.total()} steps in {worlds} worlds, and every promise was kept:")
    print(", ".join(f"{name} {times}" for name, times in total.most_common()))
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # Threads of servers and stores may still wait for connections that were cut.
    os._exit(status) if status else sys.exit(status)
