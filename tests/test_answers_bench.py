"""The bench of answers: which questions are asked, how answers are scored, and that no question is asked twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import answers
from longtalk.testing import Scripted, says

LINES = (("D1:1", "Ada", "I play the violin."), ("D1:2", "Bo", "Since when?"), ("D1:3", "Ada", "Since school."))
QUESTION = "Since when does Ada play the violin?"


def make_talk(questions: int = 1) -> answers.Talk:
    said = {
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [{"dia_id": name, "speaker": who, "text": text} for name, who, text in LINES],
    }
    asked = [
        {"question": QUESTION, "answer": f"since school {i}", "evidence": ["D1:3; D:1:1"], "category": i % 4 + 1}
        for i in range(questions)
    ]
    unanswerable = {"question": "Where?", "adversarial_answer": "Rome", "evidence": ["D1:3"], "category": 5}
    return answers.parse_talk({"conversation": said, "qa": [*asked, unanswerable]})


def measure(tmp_path: Path, model: Scripted) -> dict[str, answers.Result]:
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    return answers.measure([make_talk()], folder, answers.Answers(model, tmp_path / "kept.jsonl"), answers.WAYS)


@pytest.mark.parametrize(
    ("category", "expected", "answer", "score"),
    [
        (4, "the violin", "Violin!", 1.0),
        (4, "adopting two dogs", "She adopted dogs", 2 * 2 / 6),
        (4, "Rome", "Paris", 0.0),
        (3, "Yes; she said so", "Yes", 1.0),
        (1, "Rome, Paris", "Paris, Oslo", 0.5),
        (1, "Rome, Paris", "Paris, Rome", 1.0),
        (2, "7 May, 2023", "7 May 2023", 1.0),
    ],
)
def test_an_answer_is_scored_by_its_words(category: int, expected: str, answer: str, score: float) -> None:
    question = answers.Question(category, "?", expected, ())
    assert answers.score(question, answer) == pytest.approx(score)


def test_the_same_questions_are_drawn_each_time_and_equally_many_of_each_category() -> None:
    talks = [make_talk(40)] * 5
    drawn = answers.draw_questions(talks, 40)
    assert drawn == answers.draw_questions(talks, 40)
    assert [len(talk.questions) for talk in drawn] == [8] * 5
    assert sorted(question.category for talk in drawn for question in talk.questions) == sorted([1, 2, 3, 4] * 10)


def test_few_questions_are_drawn_of_several_categories() -> None:
    drawn = answers.draw_questions([make_talk(40)] * 4, 4)
    assert sorted(question.category for talk in drawn for question in talk.questions) == [1, 2, 3, 4]


def test_nothing_all_messages_or_the_evidence_is_sent_and_speakers_are_named(tmp_path: Path) -> None:
    model = Scripted(*[says("Since school.")] * 3)
    assert list(measure(tmp_path, model)) == list(answers.WAYS)
    nothing, whole, evidence = (request.decode() for request in model.requests)
    assert all(QUESTION in request and '"name"' not in request for request in (nothing, whole, evidence))
    assert "violin." not in nothing
    assert "Ada: I play the violin." in whole
    assert "[Mon 8 May 2023]\\nAda: I play the violin.\\n[Mon 8 May 2023]\\nAda: Since school." in evidence
    assert "Since when?" not in evidence


def test_what_was_answered_is_not_asked_again_even_if_the_last_answer_was_cut_off(tmp_path: Path) -> None:
    first = measure(tmp_path, Scripted(*[says("Since school.")] * 3))
    kept = tmp_path / "kept.jsonl"
    kept.write_text(kept.read_text()[:-30])
    model = Scripted(says("Since school."))
    again = measure(tmp_path, model)
    assert len(model.requests) == 1
    assert [each.scores for each in again.values()] == [each.scores for each in first.values()]
    measure(tmp_path, Scripted())


def test_the_results_are_printed_beside_tokens_and_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = measure(tmp_path, Scripted(*[says("Since school.")] * 3))
    answers.print_results(results)
    printed = capsys.readouterr().out
    assert "dollars" in printed
    assert all(f"\n{way} " in printed for way in answers.WAYS)
    assert answers.make_goals(results)[0]["met"]


@pytest.mark.parametrize("arguments", [[], ["talks.json", "--model", "135m"]])
def test_without_data_or_weights_the_bench_says_so(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_missing(name: str) -> Any:
        return name

    monkeypatch.setattr(answers, "find_missing", find_missing)
    answers.main(arguments)
    printed = capsys.readouterr().out
    assert printed.startswith("No data" if not arguments else "No weights")
    assert json.loads(printed.splitlines()[-1]) == {"bench": "answers", "goals": []}
