"""An exam for the local models that are in the cache: what they remember, and whether they call tools.

`python -m bench.local` examines each model whose weights were downloaded; `--models 1.5b` names some of them, and
`--limit 5` takes only the first facts of each set. The exam has three parts:

- Facts: two sets of 20 facts. The user tells each in a conversation of its own, says something else in every second
  one, and asks. An answer is right if it has the fact, and in the right person if it also says "you" and not "I" or
  "my".
- Tools: five questions that need a tool. An answer is right if it has the result of the tool, which depends on the
  arguments of the call.
- Memory: ten facts among thirty messages under `Memory(limit=1_000)`, all asked afterwards. Counted are the facts in
  the brief after the thirty messages, the facts in it or in the exchanges that are still sent as they were, and the
  right answers. The brief gets the facts of an exchange when it replaces it, so those of the last ones are not in it.

The models answer at temperature 0, so a run can be repeated. With two threads a model of 1.5B takes about 20 minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Sequence
from typing import Any

from longtalk import Chat, Memory, Reply
from longtalk.errors import LongtalkError
from longtalk.providers.local.catalog import MODELS
from longtalk.providers.local.weights import find_missing

FACTS = (
    (
        ("My name is Ada.", "What is my name?", "Ada"),
        ("I live in Bergen.", "Where do I live?", "Bergen"),
        ("I play the violin.", "Which instrument do I play?", "violin"),
        ("My dog is called Rufus.", "What is my dog called?", "Rufus"),
        ("I work as a carpenter.", "What do I work as?", "carpenter"),
        ("My favourite colour is green.", "What is my favourite colour?", "green"),
        ("I am allergic to nuts.", "What am I allergic to?", "nut"),
        ("My sister is called Maria.", "What is my sister called?", "Maria"),
        ("My exam is on Friday.", "On which day is my exam?", "Friday"),
        ("I am learning Italian.", "Which language am I learning?", "Italian"),
        ("I have three children.", "How many children do I have?", "three|3"),
        ("My car is a red Volvo.", "Which car do I have?", "Volvo"),
        ("I was born in 1987.", "In which year was I born?", "1987"),
        ("I grow tomatoes on my balcony.", "What do I grow on my balcony?", "tomato"),
        ("My teacher is Mr Lindqvist.", "Who is my teacher?", "Lindqvist"),
        ("I am training for a marathon.", "What am I training for?", "marathon"),
        ("I drink only tea.", "What do I drink?", "tea"),
        ("My flight goes to Lisbon.", "Where does my flight go?", "Lisbon"),
        ("I read a book about whales.", "What is the book about that I read?", "whale"),
        ("My bicycle was stolen.", "What was stolen from me?", "bicycle|bike"),
    ),
    (
        ("I'm called Tomás.", "Who am I?", "Tom[aá]s"),
        ("I moved to Nairobi last year.", "In which city do I live now?", "Nairobi"),
        ("I play the cello in an orchestra.", "What do I play in the orchestra?", "cello"),
        ("My cat Luna is ill.", "Which animal of mine is ill?", "cat|Luna"),
        ("I'm a nurse at a hospital.", "What is my profession?", "nurse"),
        ("I'm a vegetarian.", "Which diet do I follow?", "vegetarian"),
        ("I can't eat gluten.", "What can't I eat?", "gluten"),
        ("My brother Paul is a pilot.", "What is the name of my brother?", "Paul"),
        ("My wedding is in September.", "In which month is my wedding?", "September"),
        ("I speak Finnish with my parents.", "Which language do I speak with my parents?", "Finnish"),
        ("I have two cats and a parrot.", "Which bird do I have?", "parrot"),
        ("My budget is 800 euros.", "How large is my budget?", "800"),
        ("I'm 34 years old.", "How old am I?", "34|thirty-four"),
        ("I collect old maps.", "What do I collect?", "map"),
        ("My boss is called Ms Okafor.", "What is my boss called?", "Okafor"),
        ("I want to climb Mont Blanc.", "Which mountain do I want to climb?", "Mont Blanc"),
        ("I take my coffee without sugar.", "How do I take my coffee?", "without|no sugar|black"),
        ("My train leaves at 7:40.", "When does my train leave?", "7:40"),
        ("I'm writing a novel about Venice.", "What is my novel about?", "Venice"),
        ("I broke my left arm.", "What did I break?", "arm"),
    ),
)
BETWEEN = "Please wish me a nice day."
SMALL_TALK = tuple(
    f"Tell me about {topic}, in five sentences."
    for topic in (
        "rivers in France",
        "cats",
        "a good breakfast, with a recipe",
        "two planets",
        "how bees make honey",
        "what to see in Rome in one day",
        "how a bicycle stays upright",
        "why the sky is blue",
        "how to sleep better",
        "the life of a sailor",
        "crocodiles and alligators",
        "how cheese is made",
        "a fairy tale",
        "what a conductor of an orchestra does",
        "how to remove a coffee stain",
        "Marie Curie",
        "jazz",
        "the depth of the ocean",
        "a thunderstorm",
        "what people eat in Japan",
    )
)
GOALS = {
    "1.5b": {"facts": 38, "right person": 32, "tools": 5, "facts in the brief": 8, "answers with Memory": 8},
    "0.5b": {"facts": 34, "right person": 30, "tools": 4},
}


def get_weather(city: str) -> str:
    """Get the current weather of a city."""
    return "4 degrees, rain" if "oslo" in city.lower() else "unknown"


def multiply(a: float, b: float) -> str:
    """Multiply two numbers."""
    return f"{a * b:.0f}"


def find_departure(train: int) -> str:
    """Get the departure time of a train."""
    return "14:35" if train == 17 else "unknown"


def convert_currency(amount: float, source: str, target: str) -> str:
    """Convert an amount from one currency to another."""
    return "92.5" if amount == 100 and source and target else "unknown"


def find_books(author: str) -> str:
    """Find the books of an author in our library."""
    return "The Dispossessed" if "guin" in author.lower() else "none"


TOOLS: tuple[tuple[str, Any, str], ...] = (
    ("What is the weather in Oslo?", get_weather, r"\b4\b|rain"),
    ("What is 1234 times 5678?", multiply, "7,?006,?652"),
    ("When does train 17 leave?", find_departure, "14:35"),
    ("How many euros are 100 dollars?", convert_currency, r"92\.5"),
    ("Which books by Le Guin do we have?", find_books, "Dispossessed"),
)


def is_right(answer: str, expected: str) -> bool:
    """Return True if an answer has what is expected."""
    return re.search(expected, answer, re.I) is not None


def is_in_right_person(answer: str) -> bool:
    """Return True if an answer speaks of the user as "you"."""
    return bool(re.search(r"\byour?\b|\byou're\b", answer, re.I)) and not re.search(r"\b(I|[Mm]y|me)\b", answer)


def examine_facts(model: str, limit: int | None) -> tuple[int, int, int]:
    """Return how many facts were asked, answered right, and answered right and in the right person."""
    asked = right = in_person = 0
    with Chat(f"local:{model}") as chat:
        for number, (fact, question, expected) in enumerate(each for facts in FACTS for each in facts[:limit]):
            told = [fact, BETWEEN, question] if number % 2 else [fact, question]
            answer, state = "", None
            for message in told:
                reply = chat.send(message, state=state)
                answer, state = reply.text, reply.state
            asked += 1
            found = is_right(answer, expected)
            right += found
            in_person += found and is_in_right_person(answer)
            if not found or not is_in_right_person(answer):
                print(f"  {question} {answer!r}", flush=True)
    return asked, right, in_person


def examine_tools(model: str) -> int:
    """Return how many questions were answered right with a tool."""
    right = 0
    for question, tool, expected in TOOLS:
        answer = ""
        with Chat(f"local:{model}", tools=[tool]) as chat:
            try:
                answer = chat.send(question).text
            except LongtalkError as problem:
                answer = str(problem)
        right += is_right(answer, expected)
        if not is_right(answer, expected):
            print(f"  {question} {answer!r}", flush=True)
    return right


def examine_memory(model: str) -> tuple[int, int, int]:
    """Return how many of ten facts are in the brief after thirty messages, in it or in exchanges sent, and answered."""
    facts = FACTS[0][:10]
    right, state, sent = 0, None, set[int]()
    with Chat(f"local:{model}", policy=Memory(limit=1_000), options={"max_tokens": 150}) as chat:
        talk = iter(SMALL_TALK)
        for number in range(30):
            message = facts[number // 3][0] if number % 3 == 0 else next(talk)
            state = chat.send(message, state=state).state
        brief = chat.brief.text(state=state)
        noted = {number for number, (_, _, expected) in enumerate(facts) if is_right(brief, expected)}
        for _, question, expected in facts:
            reply = chat.send(question, state=state)
            right += is_right(reply.text, expected)
            sent = sent or _list_sent(reply, len(facts))
    return len(noted), len(noted | sent), right


def _list_sent(reply: Reply, count: int) -> set[int]:
    """Return the facts whose messages a request carried as they were. Each third exchange began with a fact."""
    runs = reply.context.manifest if reply.context is not None else ()
    places = {place for run in runs if run.verdict == "sent" for place in range(run.first, run.last + 1)}
    return {number for number in range(count) if 6 * number in places}


def main(arguments: Sequence[str] | None = None) -> None:
    """Examine the models and print the results beside the goals."""
    parser = argparse.ArgumentParser(description="An exam for the local models that are in the cache.")
    parser.add_argument("--models", nargs="*", choices=list(MODELS), help="the models to examine; default: 1.5b, 0.5b")
    parser.add_argument("--limit", type=int, help="the number of facts of each set; default: all 20")
    parser.add_argument("--parts", nargs="*", default=["facts", "tools", "memory"], help="facts, tools, memory")
    given = parser.parse_args(arguments)
    goals: list[dict[str, Any]] = []
    there = [name for name in given.models or GOALS if find_missing(name) is None]
    if not there:
        print("No weights. `longtalk ask -m local:1.5b Hello` downloads them.")
    for model in there:
        print(f"{MODELS[model].title}:", flush=True)
        begun = time.monotonic()
        results: dict[str, tuple[int, int]] = {}
        if "facts" in given.parts:
            asked, right, in_person = examine_facts(model, given.limit)
            results.update({"facts": (right, asked), "right person": (in_person, asked)})
        if "tools" in given.parts and MODELS[model].tools:
            results["tools"] = (examine_tools(model), len(TOOLS))
        if "memory" in given.parts and "facts in the brief" in GOALS.get(model, {}):
            noted, carried, right = examine_memory(model)
            results.update({"facts in the brief": (noted, 10), "in brief or last sent": (carried, 10)})
            results["answers with Memory"] = (right, 10)
        for name, (value, count) in results.items():
            goal = GOALS.get(model, {}).get(name)
            if goal is not None and count < 40 and name in ("facts", "right person"):
                goal = math.ceil(goal * count / 40)
            print(f"  {name:22}{value:4} of {count:3}" + (f"   goal {goal}" if goal is not None else ""))
            if goal is not None:
                goals.append({"name": f"{model}, {name}", "value": value, "goal": goal, "met": value >= goal})
        print(f"  {time.monotonic() - begun:,.0f} seconds\n", flush=True)
    print(json.dumps({"bench": "local", "goals": goals}))


if __name__ == "__main__":
    main()
