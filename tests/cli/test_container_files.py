"""The container files: their settings exist, and the command that they run works outside a container too."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import yaml

from longtalk.service.settings import ENVIRONMENT, Settings
from tests.cli.helpers import longtalk

ROOT = Path(__file__).parents[2]
CONTAINERFILE = (ROOT / "Containerfile").read_text().replace("\\\n", " ")
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())


def read_instruction(name: str) -> str:
    """Return the last instruction of this name."""
    return re.findall(rf"^{name} (.*)$", CONTAINERFILE, re.MULTILINE)[-1]


def read_variables() -> dict[str, str]:
    return dict(word.split("=", 1) for word in shlex.split(read_instruction("ENV")))


def test_each_variable_is_a_setting() -> None:
    known = {ENVIRONMENT + name.upper() for name in Settings.__struct_fields__}
    named = {*read_variables(), *COMPOSE["services"]["longtalk"]["environment"]}
    assert {name for name in named if name.startswith(ENVIRONMENT)} <= known


def test_what_is_copied_exists_and_is_part_of_the_build() -> None:
    included = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {name for line in re.findall(r"^COPY (?!--from)(.*)$", CONTAINERFILE, re.M) for name in line.split()[:-1]}
    assert copied == included
    assert all((ROOT / name).exists() for name in copied)


def test_the_compose_file_builds_this_image_and_has_the_volumes_that_it_uses() -> None:
    services = COMPOSE["services"]
    assert services["longtalk"]["build"]["dockerfile"] == "Containerfile"
    used = {volume.partition(":")[0] for service in services.values() for volume in service["volumes"]}
    assert used == set(COMPOSE["volumes"])
    password = "${POSTGRES_PASSWORD:?set it in .env}"
    assert services["postgres"]["environment"]["POSTGRES_PASSWORD"] == password
    assert password in services["longtalk"]["environment"]["LONGTALK_STORE"]


def test_the_command_of_the_image_starts_once_there_is_a_key(environment: dict[str, str], tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    variables = {name: value.replace("/data", data) for name, value in read_variables().items() if name != "PATH"}
    home = {**environment, **variables, "LONGTALK_DEFAULT_MODEL": "ollama:x"}
    assert read_instruction("ENTRYPOINT") == '["longtalk"]'
    assert read_instruction("CMD") == '["serve"]'
    refused = longtalk("serve", "--check", environment=home)
    assert (refused.returncode, "Make a key" in refused.stderr) == (1, True)
    assert longtalk("keys", "add", "laptop", environment=home).returncode == 0
    assert longtalk("serve", "--check", environment=home).returncode == 0
