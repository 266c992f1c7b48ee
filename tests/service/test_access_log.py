"""The access log: one line for each request, with its id, and without content or secrets."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx2
import pytest

from longtalk.service.settings import Settings
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve, Served


def read(caplog: pytest.LogCaptureFixture, served: Served) -> list[dict[str, Any]]:
    """Return the lines of the log, after the service has stopped."""
    served.stop()
    return [json.loads(each.getMessage()) for each in caplog.records if each.name == "longtalk.access"]


@pytest.fixture(autouse=True)
def _level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "longtalk.access")


def test_a_request_is_a_line_with_its_id(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    served = serve(m=AsyncScripted(says("Hi.")))
    secret, key = served.service.keys.add("laptop", "ada")
    headers = {"authorization": f"Bearer {secret}", "x-request-id": "mine-7"}
    body = {"model": "m", "input": "swordfish", "stream": True}
    answer = httpx2.post(f"{served.url}/v1/responses?q=swordfish", json=body, headers=headers)
    assert answer.headers.get_list("x-request-id") == ["mine-7"]
    (line,) = read(caplog, served)
    assert (line["request"], line["owner"], line["key"]) == ("mine-7", "ada", key.id)
    assert (line["method"], line["path"], line["status"]) == ("POST", "/v1/responses", 200)
    assert line["seconds"] > 0
    assert "swordfish" not in caplog.text
    assert secret not in caplog.text


def test_every_answer_has_an_id_also_an_error(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    served = serve()
    paths = ("/healthz", "/nothing", "/v1/models/none", "/v1/chat/completions")
    ids = [httpx2.get(served.url + path).headers["x-request-id"] for path in paths]
    assert len(set(ids)) == 4
    lines = read(caplog, served)
    assert [line["request"] for line in lines] == ids
    assert [line["status"] for line in lines] == [200, 404, 404, 405]


@pytest.mark.parametrize("given", ["", "x" * 201, "a\tb", "é"])
def test_an_id_that_could_forge_a_line_is_replaced(serve: Serve, given: str) -> None:
    answer = httpx2.get(f"{serve().url}/healthz", headers={"x-request-id": given.encode()})
    assert answer.headers["x-request-id"].startswith("req_")


def test_only_listed_origins_may_read_answers(serve: Serve) -> None:
    url = serve(settings=Settings(cors_origins=["https://app.example"])).url
    asked = {"access-control-request-method": "POST"}
    good = httpx2.options(f"{url}/v1/models", headers={"origin": "https://app.example", **asked})
    assert (good.status_code, good.headers["access-control-allow-origin"]) == (200, "https://app.example")
    bad = httpx2.options(f"{url}/v1/models", headers={"origin": "https://evil.example", **asked})
    assert "access-control-allow-origin" not in bad.headers
    read_by_page = httpx2.get(
        f"{url}/v1/models", headers={"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    )
    assert read_by_page.status_code == 403
