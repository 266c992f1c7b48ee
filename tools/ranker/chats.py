"""Generated chats of a user with an assistant, about a project."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable

from tools.ranker.writer import DAY, FOLDER, PHRASES, Talk, Writer

__all__ = ["Chat"]

_MAX_SENTENCES = 8  # around what the user tells


class Chat(Writer):
    """A chat of a user with an assistant about a project."""

    def __init__(self, random: random.Random) -> None:
        super().__init__(random)
        self.project = random.choice(PROJECTS)
        self.reply_size = random.choice((3, 6, 10, 14))  # items of an answer
        self.context = random.uniform(0.5, 6.0)  # sentences around what the user tells
        self.code = random.uniform(0, 0.4)
        self.steps: list[tuple[float, Callable[[], object]]] = []
        """What happens in the chat, and where in it, from 0 to 1."""
        self.later: list[tuple[str, list[int]]] = []
        """Questions, with the positions that answer them, which are known after the steps."""
        self.parts_told: list[int] = []
        self.dates_told: defaultdict[str, list[int]] = defaultdict(list)

    def make(self) -> Talk:
        """Return the chat."""
        plans = (self.plan_metric, self.plan_deadline, self.plan_part, self.plan_tool, self.plan_wish, self.plan_person)
        for _ in range(self.random.randint(10, 45)):
            self.random.choice(plans)()
        for _ in range(int(len(self.steps) * self.random.uniform(0.2, 2.0))):
            self.steps.append((self.random.random(), lambda: self.exchange("")))
        for _, step in sorted(self.steps, key=lambda each: each[0]):
            if self.chance(0.12):
                self.at += self.random.randint(1, 12) * DAY
            step()
        for question, evidence in self.later:
            self.ask(question, evidence)
        self.ask_across()
        return Talk(self.units, self.questions)

    def write(self, phrases: str, /, **values: str) -> str:
        """Return one of the phrases of a list, filled with these values and with words of the project."""
        words = self.random.sample(self.project["words"], 4)
        drawn = {f"w{i}": word for i, word in enumerate(words, 1)}
        drawn |= {"part": self.draw("parts"), "part2": self.draw("parts"), "tool": self.draw("tools")}
        return self.fill(self.pick(phrases), drawn | values)

    def draw(self, key: str) -> str:
        """Return one of the project's words of a kind."""
        return self.random.choice(self.project[key])

    def tell(self, told: str, evidence: list[int]) -> None:
        """Plan a message that tells a fact. Its position will be added to the evidence."""
        self.steps.append((self.random.random(), lambda: evidence.append(self.exchange(told)[0])))

    def exchange(self, told: str, hint: str = "") -> tuple[int, int]:
        """Write a message that tells a fact among other things, and the answer; return their positions."""
        count = min(_MAX_SENTENCES, int(self.random.expovariate(1 / self.context)))
        said = [self.write("chat_sentence") for _ in range(count)]
        if told:
            said.insert(self.random.randint(0, len(said)), told)
        text = " ".join([*said, self.write("chat_request")])
        if self.chance(self.code):
            size = self.random.randint(3, 25)
            rows = [f"    {self.draw('words')}_{i} = {self.random.randrange(99)}\n" for i in range(size)]
            text += f"\n```\n{''.join(rows)}```"
        self.at += 300
        return self.say("user", text), self.answer(text, hint)

    def answer(self, message: str, hint: str) -> int:
        """Write an answer that repeats words of the message, with `hint` among its advice; return its position."""
        words: list[str] = re.findall(r"[a-zA-Z]{4,}", message)
        opening = " ".join([self.write("chat_opening"), *self.random.sample(words, min(6, len(words)))])
        advice = []
        for i in range(1, self.random.randint(1, self.reply_size) + 1):
            mixed = self.random.sample(self.project["words"], 3) + self.random.sample(words, min(5, len(words)))
            self.random.shuffle(mixed)
            title = self.draw("parts").title()
            head = f"### {i}. {title}" if self.chance(0.5) else f"{i}. **{mixed[0].title()}**"
            first = f"- {' '.join(mixed[:5])}: check the {mixed[-1]} first."
            second = f"- Then adjust {mixed[1]} and {mixed[2]}, and test with {self.draw('tools')}."
            advice.append(f"{head}\n{first}\n{second}")
        if hint:
            advice.insert(self.random.randint(0, len(advice)), hint)
        return self.say("assistant", "\n\n".join([f"{opening}.", *advice, self.write("chat_closing")]))

    # Facts

    def plan_metric(self) -> None:
        """Tell a number, later often another one, and ask for it."""
        name, _, unit = self.draw("metrics").partition(" in ")
        evidence: list[int] = []
        for _ in range(self.random.choice((1, 2, 2))):
            self.tell(
                self.write("metric_told", name=name, value=f"{self.random.randint(2, 900)} {unit}".strip()), evidence
            )
        self.later.append((self.write("metric_asked", name=name), evidence))

    def plan_deadline(self) -> None:
        """Tell a date, and ask for it."""
        name = self.draw("milestones")
        day = self.phrase_date(self.at + self.random.randint(20, 200) * DAY)
        self.tell(self.write("deadline_told", name=name, day=day), self.dates_told[name])
        self.later.append((self.write("deadline_asked", name=name), self.dates_told[name]))

    def plan_part(self) -> None:
        """Tell what becomes of a part, get advice for it, and ask for one of them."""
        part, tool = self.draw("parts"), self.draw("tools")
        told, hint = self.write("part_told", part=part, tool=tool), self.write("part_hint", part=part, tool=tool)
        about_hint, evidence = self.chance(0.5), list[int]()

        def tell() -> None:
            asked, answered = self.exchange(told, hint)
            self.parts_told.append(asked)
            evidence.append(answered if about_hint else asked)

        self.steps.append((self.random.random(), tell))
        self.later.append((self.write("hint_asked" if about_hint else "part_asked", part=part), evidence))

    def plan_tool(self) -> None:
        """Tell contradictory things about a tool, and ask for them."""
        tool, evidence = self.draw("tools"), list[int]()
        for name in ("tool_never", "tool_used"):
            self.tell(self.write(name, tool=tool), evidence)
        self.later.append((self.write("tool_asked", tool=tool), evidence))

    def plan_wish(self) -> None:
        """State a standing wish, and ask for something that it applies to."""
        topic, detail, detail2 = self.random.choice(self.project["topics"]).split(": ")
        evidence: list[int] = []
        self.tell(self.write("wish", topic=topic, detail=detail, detail2=detail2), evidence)
        self.later.append((self.write("wish_asked", topic=topic), evidence))

    def plan_person(self) -> None:
        """Tell about a person, and ask what they said or who they are."""
        name, job = (self.random.choice(PHRASES.pools[pool]) for pool in ("name", "job"))
        tool, evidence = self.draw("tools"), list[int]()
        self.tell(self.write("person_told", name=name, job=job, tool=tool), evidence)
        self.later.append((self.write("person_asked", name=name, tool=tool), evidence))

    def ask_across(self) -> None:
        """Ask questions whose answers are in several places."""
        if len(self.parts_told) > 1:
            self.ask(self.write("parts_asked"), self.parts_told[:8])
        if len(self.dates_told) > 1:
            first, second = self.random.sample(list(self.dates_told), 2)
            evidence = self.dates_told[first] + self.dates_told[second]
            self.ask(self.write("dates_asked", name=first, name2=second), evidence)


def read_projects() -> list[dict[str, list[str]]]:
    """Return the projects of `projects.txt`: their lists of words by kind."""
    projects: list[dict[str, list[str]]] = []
    for line in (FOLDER / "projects.txt").read_text("utf-8").splitlines():
        key, _, rest = line.partition(": ")
        if line.startswith("project "):
            projects.append({})
        elif rest and not line.startswith("#"):
            projects[-1][key] = rest.split({"topics": "; ", "words": " "}.get(key, ", "))
    return projects


PROJECTS = read_projects()
