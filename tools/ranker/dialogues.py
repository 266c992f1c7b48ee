"""Generated dialogues of two people, in many dated sessions."""

from __future__ import annotations

import random
import re
from collections import defaultdict

import msgspec

from tools.ranker.writer import DAY, PHRASES, SLOT, Fact, Talk, Writer

__all__ = ["Dialogue"]

_PEOPLE = (
    *("Anna", "Bruno", "Carla", "Dario", "Edith", "Fatima", "Gregor", "Hanna", "Ivan", "Jasmin", "Kurt", "Linda"),
    *("Mateo", "Nils", "Olga", "Pablo", "Quentin", "Ruth", "Simon", "Tessa", "Ulla", "Victor", "Wanda", "Zoe"),
)


class Told(msgspec.Struct):
    """A fact that was told: who told it, the values of its phrases, and the positions where it stands."""

    fact: Fact
    person: str
    values: dict[str, str]
    positions: list[int]


class Dialogue(Writer):
    """A dialogue of two people in many sessions."""

    def __init__(self, random: random.Random) -> None:
        super().__init__(random)
        self.people = random.sample(_PEOPLE, 2)
        self.facts = random.sample(PHRASES.facts, random.randint(10, len(PHRASES.facts)))
        self.told: list[Told] = []
        self.later: list[tuple[str, list[int]]] = []
        self.chatty = random.uniform(0.5, 3.0)  # sentences of chatter in a turn
        self.echo = random.uniform(0.2, 0.9)  # share of reactions that repeat words
        self.asked = random.uniform(0.15, 0.6)  # share of facts that answer a question
        self.timed = random.uniform(0.3, 0.9)
        self.greets = random.uniform(0.2, 0.9)
        self.mentions = random.uniform(0.0, 0.6)  # share of turns that name a fact and tell nothing new
        self.detailed = random.uniform(0.1, 0.6)  # share of facts with a detail that is asked for
        self.repeats = random.uniform(0.1, 0.6)  # share of facts that are told again
        self.keys: list[str] = []

    def make(self) -> Talk:
        """Return the dialogue."""
        for _ in range(self.random.randint(8, 32)):
            self.at += self.random.randint(1, 25) * DAY + self.random.randrange(DAY // 3)
            self.write_session()
        self.ask_questions()
        return Talk(self.units, self.questions)

    def write_session(self) -> None:
        """Write a session: some facts, with reactions and chatter around them."""
        speaker = self.random.choice(self.people)
        topic = self.random.choice(self.facts).topic
        if self.chance(self.greets):
            for person in (speaker, self.other(speaker)):
                self.turn(person, [self.open(person), self.gossip(topic)])
        for _ in range(self.random.randint(1, 5)):
            fact = self.random.choice(self.facts)
            topic = fact.topic
            self.tell(fact, speaker)
            for _ in range(self.random.choice((0, 1, 1, 2, 3, 5))):
                speaker = self.other(speaker)
                self.react(speaker, topic)
            speaker = self.other(speaker) if self.chance(0.7) else speaker
        if self.chance(0.6):
            self.turn(speaker, [self.cheer(speaker), self.pick("closer")])

    def tell(self, fact: Fact, speaker: str) -> None:
        """Let a person tell a fact, unasked or as the answer to a question."""
        values = self.make_values(speaker)
        before = [told for told in self.told if told.fact is fact and told.person == speaker]
        fixed = dict(self.random.choice(before).values) if before and self.chance(self.repeats) else values
        positions = []
        if self.chance(self.asked):
            lead = [self.cheer(self.other(speaker))] if self.chance(0.5) else []
            self.turn(self.other(speaker), [*lead, self.fill(self.random.choice(fact.phrases["a"]), values)])
            said = [self.fill(self.random.choice(fact.phrases["r"]), fixed) + "."]
        else:
            said = [self.fill(self.random.choice(fact.phrases["s"]), fixed) + "."]
            if self.chance(self.timed):
                said[0] = self.add_time(said[0])
        if self.chance(0.4):
            said.insert(0, self.open(speaker))
        said += [self.gossip(fact.topic) for _ in range(self.count(self.chatty / 2))]
        if self.chance(0.3):
            said.append(self.pick("closer"))
        positions.append(self.turn(speaker, said))
        if self.chance(0.12):  # the second half of the fact follows in a later turn
            self.turn(self.other(speaker), [self.cheer(self.other(speaker)), self.ask_back(fact.topic)])
            positions.append(self.turn(speaker, [self.fill(self.random.choice(fact.phrases["s"]), fixed) + "."]))
        key = [
            value
            for name, value in fixed.items()
            if name in PHRASES.pools and name not in ("name", "feeling", "number")
        ]
        self.told.append(Told(fact, speaker, fixed, positions))
        if key:
            self.keys.append(key[0])
            if self.chance(self.detailed):
                self.tell_detail(fact, speaker, key[0])
            if self.chance(0.1):  # the other says it first, or again
                values["v"] = key[0]
                text = self.fill(self.pick("other"), {**values, "O": speaker})
                positions.append(self.turn(self.other(speaker), [text, self.gossip(fact.topic)]))

    def tell_detail(self, fact: Fact, speaker: str, key: str) -> None:
        """Let the other person ask for a detail of what was just told, and ask for it later."""
        asked, answer, *questions = self.random.choice(PHRASES.details)
        values = {**self.make_values(speaker), "v": key}
        for _ in range(self.random.choice((0, 0, 1, 2))):
            self.react(self.other(speaker), fact.topic)
            self.react(speaker, fact.topic)
        lead = [self.cheer(self.other(speaker))] if self.chance(0.6) else []
        before = self.turn(self.other(speaker), [*lead, self.fill(asked, values)])
        said = [self.fill(answer, values)] + [self.gossip(fact.topic) for _ in range(self.count(self.chatty / 2))]
        if self.chance(0.3):
            said.insert(0, self.open(speaker))
        evidence = [self.turn(speaker, said)]
        self.later.append((self.fill(self.random.choice(questions), values), evidence + [before] * self.chance(0.05)))

    def react(self, speaker: str, topic: str) -> None:
        """Write a turn that tells nothing but may repeat words of the previous one."""
        said = [self.cheer(speaker)]
        if self.chance(self.echo):
            words = re.findall(r"[a-zA-Z]{4,}", self.units[-1].text)
            if words:
                self.random.shuffle(words)
                echoed = " and ".join(words[: self.random.randint(1, 3)]).lower()
                said.append(self.random.choice((f"{echoed}, really?", f"I like {echoed} too.", f"So much {echoed}!")))
        said += [self.gossip(topic) for _ in range(self.count(self.chatty))]
        if self.keys and self.chance(self.mentions):
            said.append(self.fill(self.pick("mention"), {"v": self.random.choice(self.keys)}))
        if self.chance(0.35):
            said.append(self.ask_back(topic))
        self.turn(speaker, said)

    def turn(self, speaker: str, said: list[str]) -> int:
        """Add a turn of these sentences."""
        self.at += 60
        return self.say("user", " ".join(said), speaker)

    def gossip(self, topic: str) -> str:
        """Return a sentence without a fact."""
        topic = topic if self.chance(0.8) else self.random.choice(list(PHRASES.words))
        words = self.random.sample(PHRASES.words[topic], 2)
        return self.fill(self.pick("sentence"), {"c": words[0], "c2": words[1]})

    def ask_back(self, topic: str) -> str:
        """Return a question that is not about a fact."""
        words = self.random.sample(PHRASES.words[topic], 2)
        return self.fill(self.pick("askback"), {"c": words[0], "c2": words[1]})

    def open(self, speaker: str) -> str:
        """Return the first words of a turn."""
        return self.fill(self.pick("opener"), {"O": self.other(speaker)})

    def cheer(self, speaker: str) -> str:
        """Return a reaction to what the other person said."""
        return self.fill(self.pick("reaction"), {"O": self.other(speaker)})

    def add_time(self, said: str) -> str:
        """Return a sentence with a time added at its beginning or end."""
        when = self.pick("time")
        return f"{said[:-1]} {when}." if self.chance(0.6) else f"{when.capitalize()} {said}"

    def make_values(self, person: str) -> dict[str, str]:
        """Return the words that stand for a person in questions."""
        return {"P": person, "P's": f"{person}'s", "has": "has", "is": "is", "does": "does", "O": self.other(person)}

    def other(self, person: str) -> str:
        """Return the other person."""
        return self.people[1 - self.people.index(person)]

    def count(self, mean: float) -> int:
        """Return a random number with about this mean."""
        return min(6, int(self.random.expovariate(1 / mean))) if mean else 0

    def ask_questions(self) -> None:
        """Ask about some of the facts: about one, about when, about all of a kind, and about a day."""
        for question, evidence in self.random.sample(self.later, min(20, len(self.later))):
            self.ask(question, evidence)
        grouped: defaultdict[tuple[str, str], list[Told]] = defaultdict(list)
        for told in self.told:
            grouped[told.person, told.fact.name].append(told)
        for group in grouped.values():
            told = self.random.choice(group)
            same = [each for each in group if each.values == told.values]
            evidence = [at for each in same for at in each.positions]
            everything = [at for each in group for at in each.positions]
            kind = self.random.choice("qqwwm" if len(group) > 1 else "qqww")
            if kind == "w" and "w" in told.fact.phrases:
                self.ask(self.fill(self.random.choice(told.fact.phrases["w"]), told.values), evidence)
            elif kind == "m" and "m" in told.fact.phrases:
                text = self.random.choice(told.fact.phrases["m"])
                count = re.sub(r"^(What|Which) ", "How many ", text) if self.chance(0.15) else text
                self.ask(self.fill(count, told.values), everything)
            else:
                question = self.random.choice(told.fact.phrases["q"])
                named = {name for name in SLOT.findall(question) if name in PHRASES.pools}
                self.ask(self.fill(question, told.values), evidence if named else everything)
            if self.chance(0.06):
                at = self.units[told.positions[0]].at
                day = [each for each in self.told if self.units[each.positions[0]].at // DAY == at // DAY]
                mine = [p for each in day if each.person == told.person for p in each.positions]
                self.ask(f"What did {told.person} do on {self.phrase_date(at)}?", mine)
