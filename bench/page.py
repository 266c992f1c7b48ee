"""The page in a real Chromium: opening and scrolling a long conversation, streams, first load, memory of a tab.

`python -m bench.page [--turns N] [--events N] [--rounds N] [--parts open,stream,blocks,tab]`

A scripted provider answers, so that only the page and the service work. CPU time is that of Chromium's processes, as it
reports it itself. The length of a task is its CPU time on the page's main thread, from a trace: programs beside the
bench hardly change it. The median of some rounds counts for the CPU time, and the longest task of the median round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from playwright.sync_api import Browser, CDPSession, Page

from longtalk._sync.archive.archive import Archive
from longtalk.service.app import create_app
from longtalk.service.settings import Settings
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Served
from tests.service.page.browser import start_chromium

GOALS = {"open": 1.0, "scroll": 50.0, "stream": 50.0, "blocks": 50.0, "load": 150.0, "nodes": 1.25, "heap": 1.5}
BLOCK_SIZE = 100_000
TAB_TURNS = (60, 240)
_SCROLL_STEPS = 120
_DONE = """document.querySelector('.live') === null && document.querySelector('article.assistant') !== null
  && [...document.querySelectorAll('.composer button')].at(-1).textContent === 'Send'"""
_SEND = """text => {
  const field = document.getElementById('message');
  field.value = text;
  field.dispatchEvent(new Event('input', { bubbles: true }));
  requestAnimationFrame(() => setTimeout(() => field.form.requestSubmit()));
}"""
_SETTLED = "() => new Promise((done) => setTimeout(() => requestIdleCallback(() => done(), { timeout: 2000 }), 300))"


class Tasks(NamedTuple):
    """The tasks of a page's main thread in some time."""

    longest: float
    """CPU milliseconds of the longest."""
    over: int
    """How many took more than 50 ms of CPU time."""
    total: float
    """CPU milliseconds of all."""


def make_answer(number: int) -> str:
    """Return an answer of some hundred characters, with Markdown of several kinds."""
    sentences = f"On day {number} the *bow* kept its line, and the left hand found **third position** by ear. " * 3
    kinds = (
        sentences,
        f"{sentences}\n\n- scales for {number % 9 + 3} minutes\n- one étude, slowly\n- the piece, from memory",
        f"## Plan {number}\n\n{sentences}\n\n1. Tune\n2. Warm up\n3. Play",
        f"{sentences}\n\n```python\nfor bar in range({number % 16}):\n    play(bar, tempo=60)\n```\n\nThen faster.",
        f"{sentences}\n\n| day | minutes |\n|---|---|\n| {number} | 25 |\n| {number + 1} | 30 |",
    )
    return kinds[number % len(kinds)]


def make_story(events: int) -> str:
    """Return a long answer with every kind of block, to be sent in this many pieces of about a token each."""
    parts: list[str] = []
    number = 0
    while sum(map(len, parts)) < 5 * events:
        parts.append(make_answer(number) + "\n\n")
        number += 1
    return "".join(parts)[: 5 * events]


def make_block(kind: str, size: int) -> str:
    """Return an answer that is one list, table or code block of this many characters."""
    numbers = range(size // 20)
    lines = {
        "list": (f"- **Bar {n}** with `up-bow` and a *light* hand" for n in numbers),
        "table": (f"| {n} | **bar** `{n % 64}` | a light hand, {n % 40} minutes |" for n in numbers),
        "code": (f"    play(bar={n}, tempo=60)  # <a & b>" for n in numbers),
    }[kind]
    begin = {"list": "", "table": "| day | bar | how |\n|---:|---|---|\n", "code": "```python\ndef practise():\n"}[kind]
    text = (begin + "\n".join(lines))[:size].rpartition("\n")[0]
    return text + ("\n```" if kind == "code" else "")


def fill(path: str, turns: int) -> str:
    """Import a conversation of this many turns into a new database, and return its id."""
    messages = [
        message
        for number in range(turns)
        for message in (
            {"role": "user", "content": f"What shall I practise on day {number}? I have {number % 50} minutes."},
            {"role": "assistant", "content": make_answer(number)},
        )
    ]

    store = SQLite(path)
    try:
        return Archive(store).load(json.dumps(messages))[0]
    finally:
        store.close()


@contextmanager
def serve(path: str, provider: Any = None) -> Iterator[Served]:
    """Run the service on a database."""
    store = SQLite(path)
    served = Served(create_app(Settings(), store=store, providers={"local": provider or AsyncScripted()}))
    try:
        yield served
    finally:
        served.stop()
        store.close()


def read_cpu(browser: Browser) -> float:
    """Return the CPU seconds of all of Chromium's processes so far."""
    session = browser.new_browser_cdp_session()
    found = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return sum(float(each["cpuTime"]) for each in found)


def trace(browser: Browser, page: Page, work: Callable[[], object]) -> Tasks:
    """Do something, and return the tasks of the page's main thread meanwhile."""
    session = browser.new_browser_cdp_session()
    events: list[dict[str, Any]] = []
    ended: list[bool] = []
    session.on("Tracing.dataCollected", lambda data: events.extend(data["value"]))
    session.on("Tracing.tracingComplete", lambda _: ended.append(True))
    config = {"includedCategories": ["toplevel", "blink.user_timing", "__metadata"]}
    session.send("Tracing.start", {"transferMode": "ReportEvents", "traceConfig": config})
    page.evaluate("performance.mark('bench')")
    work()
    session.send("Tracing.end")
    while not ended:
        page.wait_for_timeout(20)
    session.detach()
    (thread,) = [(each["pid"], each["tid"]) for each in events if each.get("name") == "bench"][:1]
    return sum_tasks([each for each in events if (each.get("pid"), each.get("tid")) == thread and each["ph"] == "X"])


def sum_tasks(events: Sequence[dict[str, Any]]) -> Tasks:
    """Return the tasks among the events of a thread. The microtasks that follow a task count as its part."""
    spent: list[float] = []
    end = 0.0
    for each in sorted(events, key=lambda each: float(each["ts"])):
        is_task = each["name"].endswith("RunTask")
        if not (is_task or each["name"].endswith("PerformMicrotaskCheckpoint")) or each["ts"] < end:
            continue
        end = each["ts"] + each.get("dur", 0)
        if is_task or not spent:
            spent.append(0.0)
        spent[-1] += each.get("tdur", 0) / 1000
    return Tasks(max(spent), sum(each > 50 for each in spent), sum(spent))


def _scroll(page: Page, wanted: str) -> None:
    """Turn the wheel from the end of the conversation upwards, drag to its middle, and go back to the end."""
    page.mouse.move(640, 400)
    for _ in range(_SCROLL_STEPS):
        page.mouse.wheel(0, -900)
        page.wait_for_timeout(16)
    page.evaluate(wanted, 0.5)
    page.wait_for_timeout(500)
    for step in (-900, 900):
        for _ in range(_SCROLL_STEPS // 2):
            page.mouse.wheel(0, step)
            page.wait_for_timeout(16)
    page.evaluate(wanted, 0)
    page.wait_for_timeout(500)
    page.evaluate(wanted, 1)
    page.wait_for_timeout(500)


_DRAG = "share => { const box = document.querySelector('.messages'); box.scrollTop = share * box.scrollHeight; }"


def measure_open(browser: Browser, turns: int, rounds: int) -> tuple[float, Tasks, Tasks, float]:
    """Return CPU seconds to open a long conversation, its tasks, those of scrolling, and the kilobytes of the load."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/long.db"
        talk = fill(path, turns)
        found: list[tuple[float, Tasks, Tasks, float]] = []
        with serve(path) as served:
            for _ in range(rounds):
                context = browser.new_context(viewport={"width": 1200, "height": 850})
                page = context.new_page()
                page.goto("about:blank")
                sizes = _count_bytes(context.new_cdp_session(page))
                before = read_cpu(browser)

                def visit(page: Page = page) -> None:
                    page.goto(f"{served.url}/#/c/{talk}")
                    page.get_by_role("article").last.wait_for()
                    page.evaluate(_SETTLED)

                visit()
                spent = read_cpu(browser) - before
                size = sum(sizes) / 1000
                opened = trace(browser, page, lambda page=page: (page.reload(), page.evaluate(_SETTLED)))
                scrolled = trace(browser, page, lambda page=page: _scroll(page, _DRAG))
                found.append((spent, opened, scrolled, size))
                context.close()
    return (
        statistics.median(each[0] for each in found),
        sorted(each[1] for each in found)[len(found) // 2],
        sorted(each[2] for each in found)[len(found) // 2],
        found[0][3],
    )


def _count_bytes(session: CDPSession) -> list[float]:
    """Return a list that gets the size of each file of the page as it is transferred."""
    files: set[str] = set()
    sizes: list[float] = []

    def note(event: dict[str, Any]) -> None:
        if "/longtalk/v1" not in event["response"]["url"]:
            files.add(event["requestId"])

    session.on("Network.responseReceived", note)
    session.on(
        "Network.loadingFinished",
        lambda event: sizes.append(event["encodedDataLength"]) if event["requestId"] in files else None,
    )
    session.send("Network.enable")
    return sizes


def _begin(page: Page, url: str) -> None:
    page.goto(url)
    page.get_by_role("button", name="New chat").first.click()
    page.wait_for_url("**#/c/*")
    page.get_by_label("Message", exact=True).wait_for()


def wait_until(page: Page, condition: str) -> None:
    """Wait for a condition in the page, whose policy forbids the driver's own way."""
    while not page.evaluate(condition):
        page.wait_for_timeout(50)


class Paced(AsyncScripted):
    """A provider that sends its events as fast as a fast model writes."""

    async def stream(self, body: bytes) -> AsyncGenerator[bytes, None]:
        """Yield the events of an answer, 200 a second."""
        async for data in super().stream(body):
            yield data
            await asyncio.sleep(0.005)


def measure_stream(
    browser: Browser, make: Callable[..., AsyncScripted], events: int, rounds: int, text: str = ""
) -> Tasks:
    """Return the tasks while an answer of this many events arrives."""
    found: list[Tasks] = []
    for _ in range(rounds):
        provider = make(says(text or make_story(events), pieces=events))
        with tempfile.TemporaryDirectory() as folder, serve(f"{folder}/stream.db", provider) as served:
            context = browser.new_context(viewport={"width": 1200, "height": 850})
            page = context.new_page()
            _begin(page, served.url)

            def ask(page: Page = page) -> None:
                page.evaluate(_SEND, "Tell me all.")
                wait_until(page, _DONE)
                page.evaluate(_SETTLED)

            found.append(trace(browser, page, ask))
            context.close()
    return sorted(found)[len(found) // 2]


def measure_tab(browser: Browser, stops: Sequence[int]) -> dict[int, dict[str, float]]:
    """Return DOM nodes and kilobytes of the heap after some turns in one tab, after garbage was collected.

    The driver holds no element: all is done by scripts of the page that return nothing.
    """
    found: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        provider = AsyncScripted(*[says(make_answer(number)) for number in range(max(stops))])
        with serve(f"{folder}/tab.db", provider) as served:
            context = browser.new_context(viewport={"width": 1200, "height": 850})
            page = context.new_page()
            _begin(page, served.url)
            session = context.new_cdp_session(page)
            for number in range(max(stops)):
                page.evaluate(_SEND, f"What shall I practise on day {number}?")
                said = f"[...document.querySelectorAll('article.user')].at(-1)?.textContent.includes('day {number}?')"
                wait_until(page, f"{said} && {_DONE}")
                if number + 1 in stops:
                    page.wait_for_timeout(1_500)
                    for _ in range(2):
                        session.send("HeapProfiler.collectGarbage")
                    heap = session.send("Runtime.getHeapUsage")["usedSize"]
                    counters = session.send("Memory.getDOMCounters")
                    attached = page.evaluate("document.querySelectorAll('*').length")
                    found[number + 1] = {"heap": heap / 1000, "attached": attached, **counters}
            context.close()
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its figures and goals."""
    parser = argparse.ArgumentParser(description="The page in a real Chromium.")
    parser.add_argument("--turns", type=int, default=5_000)
    parser.add_argument("--events", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", default="open,stream,blocks,tab", help="what to measure (default: all)")
    given = parser.parse_args(arguments)
    parts = given.parts.split(",")
    figures: list[tuple[str, float, str]] = []
    with start_chromium() as browser:
        if "open" in parts:
            cpu, opened, scrolled, size = measure_open(browser, given.turns, given.rounds)
            print(f"A conversation of {given.turns:,} turns:")
            print(f"  opened in {cpu:.2f} s of CPU, longest task {opened.longest:.0f} ms, {opened.over} over 50 ms")
            print(f"  scrolled: longest task {scrolled.longest:.0f} ms, {scrolled.over} over 50 ms")
            print(f"  first load: {size:.0f} kB compressed\n")
            figures += [
                (f"CPU seconds to open {given.turns:,} turns", cpu, "open"),
                ("longest task while scrolling, ms", scrolled.longest, "scroll"),
                ("first load compressed, kB", size, "load"),
            ]
        if "stream" in parts:
            burst = measure_stream(browser, AsyncScripted, given.events, given.rounds)
            paced = measure_stream(browser, Paced, given.events, 1)
            print(f"{given.events:,} events of a stream:")
            for name, each in (("at once", burst), ("200 a second", paced)):
                longest = f"longest task {each.longest:.0f} ms, {each.over} over 50 ms"
                print(f"  {name}: {each.total / 1000:.2f} s of CPU, {longest}")
            print()
            figures.append(
                (f"longest task while {given.events:,} events arrive, ms", max(burst, paced).longest, "stream")
            )
        if "blocks" in parts:
            print(f"One block of {BLOCK_SIZE / 1000:.0f} kB, 200 events a second:")
            longest = 0.0
            for kind in ("list", "table", "code"):
                block = measure_stream(browser, Paced, given.events // 4, 1, make_block(kind, BLOCK_SIZE))
                tasks = f"longest task {block.longest:.0f} ms, {block.over} over 50 ms"
                print(f"  {kind}: {block.total / 1000:.2f} s of CPU, {tasks}")
                longest = max(longest, block.longest)
            print()
            figures.append((f"longest task while a block of {BLOCK_SIZE / 1000:.0f} kB arrives, ms", longest, "blocks"))
        if "tab" in parts:
            tab = measure_tab(browser, TAB_TURNS)
            print(f"{'turns in a tab':20}{'heap, MB':>10}{'nodes':>10}{'attached':>10}{'listeners':>11}")
            for turns, counted in tab.items():
                print(
                    f"{turns:<20}{counted['heap'] / 1000:10.1f}{counted['nodes']:10,.0f}{counted['attached']:10,.0f}"
                    f"{counted['jsEventListeners']:11,.0f}"
                )
            few, many = tab[TAB_TURNS[0]], tab[TAB_TURNS[1]]
            figures += [
                ("DOM nodes after 240 turns, relative to 60", many["nodes"] / few["nodes"], "nodes"),
                ("JS heap after 240 turns, relative to 60", many["heap"] / few["heap"], "heap"),
            ]
    goals = [
        {"name": name, "value": round(value, 2), "goal": GOALS[key], "met": value <= GOALS[key]}
        for name, value, key in figures
    ]
    print(json.dumps({"bench": "page", "goals": goals}))


if __name__ == "__main__":
    main()
