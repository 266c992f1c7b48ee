"""The licences of the parts from npm: fetched, in the wheel, and served."""

from __future__ import annotations

from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from longtalk.service.page.routes import STATIC
from longtalk.testing import AsyncScripted
from tests.service.conftest import Serve
from tests.service.page.test_routes import get

ROOT = Path(__file__).parents[3]
LISTED = [line.split("\t") for line in (STATIC / "vendor/licences.txt").read_text().splitlines()]
TEXTS = [(part.partition("@")[0], text) for part, _, *texts in LISTED for text in texts]


def test_every_vendored_part_is_listed_with_a_licence() -> None:
    folders = {path.name for path in (STATIC / "vendor").iterdir() if path.is_dir()}
    assert folders == {name for name, _ in TEXTS}
    assert {"htm", "preact", "marked", "dompurify"} <= folders


def test_the_wheel_has_every_part_and_its_licence() -> None:
    found = {each.distribution_path for each in WheelBuilder(str(ROOT)).recurse_included_files()}
    vendor = "longtalk/service/page/static/vendor/"
    files = {path.relative_to(STATIC / "vendor").as_posix() for path in (STATIC / "vendor").rglob("*.*s")}
    assert {vendor + name for name in ("licences.txt", *files, *(text for _, text in TEXTS))} <= found


@pytest.mark.parametrize(("name", "text"), TEXTS)
def test_a_licence_is_served_as_text(serve: Serve, name: str, text: str) -> None:
    answer = get(serve(m=AsyncScripted()), "/page/vendor/" + text)
    assert answer.headers["content-type"].startswith("text/plain")
    words = {"preact": "Jason Miller", "marked": "MarkedJS"}
    assert words.get(name, "License") in answer.text
