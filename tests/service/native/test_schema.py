"""Every route behaves as the OpenAPI document says, whatever it is sent: no 5xx, no status or body beyond the document.

Schemathesis makes the requests from the document, those that match it and those that don't.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from longtalk.service.app import OPENAI_ENDPOINTS, SOCKETS, create_app
from longtalk.service.native.openapi import make_document
from longtalk.service.native.table import ROUTES
from longtalk.service.settings import Settings
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Served
from tests.service.native.conftest import Api

pytestmark = pytest.mark.slow
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
DOCUMENT = make_document(ROUTES, OPENAI_ENDPOINTS, SOCKETS)
EXAMPLES = 12
PYTHON = re.compile(
    r"\b(None|True|False|NoneType|dict|tuple|bytes|str|int|msgspec|Traceback|[A-Z]\w+Error|ToolOutput)\b|\$\.|0x[0-9a-f]{6}"
)
"""Words that say something to programmers of the service only."""


def list_operations() -> Iterator[tuple[GenerationMode, str, str]]:
    """Yield each operation with valid requests, and with invalid ones if it has anything that can be invalid."""
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield GenerationMode.POSITIVE, method, path
            if "requestBody" in operation or any(each["in"] == "query" for each in operation["parameters"]):
                yield GenerationMode.NEGATIVE, method, path


class Endless(AsyncScripted):
    """A provider that gives the same answer to everything."""

    async def send(self, body: bytes) -> Any:
        return says("Yes.").body

    async def stream(self, body: bytes) -> Any:
        for event in says("Yes.").events:
            yield event


class Target:
    """A service with a conversation, whose ids half of the requests use."""

    def __init__(self) -> None:
        settings = Settings(default_model="m", any_model=False)
        self.served = Served(create_app(settings, store=InMemory(), providers={"m": Endless()}))
        self.api = Api(self.served)
        self.api.new(id="talk")
        turn = self.api("POST", "/conversations/talk/turns", json={"message": "Hi.", "policy": "Memory()"})
        brief = self.api("POST", "/conversations/talk/brief", json={"field": "facts", "text": "One."})
        profile = self.api("POST", "/profile", json={"field": "preferences", "text": "Short answers."})
        self.profile_line = profile["lines"][0]["id"]
        self.ids = {
            "conversation": "talk",
            "turn": turn["id"],
            "entry": turn["entries"][0]["id"],
            "branch": "main",
            "line": brief["lines"][0]["id"],
            "provider": "groq",
        }


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with pytest.MonkeyPatch.context() as patch:
        # Requests may store API keys of providers.
        patch.setenv("LONGTALK_SETTINGS", str(tmp_path_factory.mktemp("config") / "settings.toml"))
        made = Target()
        yield made
        made.api.http.close()
        made.served.stop()


@pytest.mark.parametrize(("mode", "method", "path"), list(list_operations()))
def test_a_route_keeps_to_the_document(target: Target, mode: GenerationMode, method: str, path: str) -> None:
    operation = schemathesis.openapi.from_dict(DOCUMENT)[path][method]
    is_ours = path.startswith("/longtalk/v1/")
    is_last = (method, path) == ("delete", "/longtalk/v1/conversations/{conversation}")

    @settings(
        max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy(generation_mode=mode), uses_ids=st.booleans())
    def check(case: Any, uses_ids: bool) -> None:
        if uses_ids and not is_last and case.path_parameters:
            ids = {**target.ids, **({"line": target.profile_line} if "/profile/" in path else {})}
            case.path_parameters |= {name: each for name, each in ids.items() if name in case.path_parameters}
        if isinstance(case.body, dict) and mode == GenerationMode.POSITIVE:
            case.body.pop("model", None)
        response = case.call(base_url=target.served.url)
        if response.status_code >= 400 and response.headers["content-type"] == "application/json":
            message = response.json()["error"]["message"]
            assert not PYTHON.search(message), message
        case.validate_response(response, checks=[*CHECKS, negative_data_rejection] if is_ours else CHECKS)

    check()
