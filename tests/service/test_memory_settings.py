"""Options of `Memory` as a table of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longtalk.errors import InputError
from longtalk.policies import Memory
from longtalk.service.models import Models
from longtalk.service.settings import load_settings

MODEL = '[models.tutor]\nmodel = "local"\n'


def load(path: Path, text: str) -> Any:
    file = path / "settings.toml"
    file.write_text(MODEL + text)
    return Models(load_settings(file), {}).find("tutor").policy


def test_a_table_has_the_options_of_memory(tmp_path: Path) -> None:
    policy = load(
        tmp_path,
        """
        [models.tutor.memory]
        limit = 8_000
        recall = { budget = 500, gate = false }
        [models.tutor.memory.brief]
        budget = 300
        [[models.tutor.memory.brief.schema.fields]]
        name = "goal"
        kind = "text"
        [[models.tutor.memory.brief.schema.fields]]
        name = "pieces"
        cap = 4
        """,
    )
    assert isinstance(policy, Memory)
    assert (policy.limit, policy.recent, policy.recalls.budget, policy.recalls.gate) == (8_000, 1_500, 500, False)
    fields = [(field.name, field.kind, field.cap) for field in policy.brief.schema.fields]
    assert (policy.brief.budget, fields) == (300, [("goal", "text", 1), ("pieces", "list", 4)])


def test_a_table_has_the_options_of_a_profile_and_of_recall_over_the_owner(tmp_path: Path) -> None:
    policy = load(
        tmp_path,
        """
        [models.tutor.memory]
        recall = { scope = "owner" }
        [models.tutor.memory.profile]
        budget = 100
        [[models.tutor.memory.profile.schema.fields]]
        name = "instrument"
        kind = "text"
        """,
    )
    assert policy.recalls.scope == "owner"
    assert policy.profile.budget == 100
    assert [field.name for field in policy.profile.schema.fields] == ["instrument"]


def test_the_profile_of_a_service_has_the_fields_of_all_its_models(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    memory = "memory.profile]\nbudget = {}\n[[models.{}.memory.profile.schema.fields]]\nname = {}\n"
    for name, budget, field in (("a", 100, '"instrument"'), ("b", 200, '"level"'), ("c", 50, '"level"\nkey = "how"')):
        with file.open("a") as text:
            text.write(f'[models.{name}]\nmodel = "local"\n[models.{name}.{memory.format(budget, name, field)}')
    profile = Models(load_settings(file), {}).profile
    assert profile is not None
    assert (profile.budget, [each.name for each in profile.schema.fields]) == (200, ["instrument", "level"])
    assert Models(load_settings(None), {}).profile is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[models.tutor.memory]\nlimti = 5", "models.tutor.memory: there is no option 'limti'. Did you mean 'limit'?"),
        ("[models.tutor.memory.recall]\nbudgt = 5", "models.tutor.memory.recall: there is no option 'budgt'"),
        ("[models.tutor.memory.profile]\nbudgt = 5", "models.tutor.memory.profile: there is no option 'budgt'"),
        ('[models.tutor.memory.recall]\nscope = "all"', "models.tutor.memory"),
        ("[models.tutor.memory]\nlimit = -1", "models.tutor.memory: `limit` of Memory"),
        ('[models.tutor.memory]\nlimit = "5"', "models.tutor.memory: `limit` must be an integer, not a string."),
        ('[[models.tutor.memory.brief.schema.fields]]\nnme = "x"', "brief.schema.fields: there is no option 'nme'"),
        ('policy = "KeepAll()"\n[models.tutor.memory]\nlimit = 5', "has both `policy` and `memory`"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    assert message in str(caught.value)
