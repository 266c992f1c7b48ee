"""Two owners of one service, and requests whose answers can be compared: what is foreign against what is unknown."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2

from longtalk.service.access import AccessKeys
from longtalk.service.app import ENDPOINTS, OPENAI_ENDPOINTS, SOCKETS, create_app
from longtalk.service.native.openapi import make_document
from longtalk.service.native.table import ROUTES as NATIVE
from longtalk.service.settings import Settings
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted
from tests.service.conftest import Served

DOCUMENT = make_document(NATIVE, OPENAI_ENDPOINTS, SOCKETS)
ROUTES = [(method, path) for method, path, _ in ENDPOINTS]
API = "/longtalk/v1"
TALK = API + "/conversations/{conversation}"
SAID = {"role": "user", "content": "Hi."}
UNKNOWN = {
    "{response}": "resp_aaaaaaaaaaaahAAAAAAAAAAAAAAAAAAAAAA",
    "{conversation}": "conv_AAAAAAAAAAAAAAAAAAAAAA",
    "{item}": "msg_aaaaaaaaaaaa_0_cAAAAAAAAAAAAAAAAAAAAAA",
    "{turn}": "aaaaaaaaaaac",
    "{entry}": "aaaaaaaaaaaa-0",
    "{branch}": "aaaaaaaaaaaa",
    "{provider}": "nothing",
    "{line}": "aaaaaaaaaa",
    "{key}": "aaaaaaaaaaab",
    "{state}": "AAAAAAAAAAAA",
    "{compaction}": "AAAAAAAAAAAAA",
}


class Owners:
    """A service on which Ada has a conversation. All tests share it, because Bob must not change anything of hers."""

    def __init__(self, http: httpx2.Client, provider: AsyncScripted, **others: AsyncScripted) -> None:
        storage = InMemoryStorage()
        keys = AccessKeys(storage)
        self.ada, own = keys.add("laptop of ada", "ada")
        self.bob = keys.add("bob", "bob")[0]
        self.app = keys.add("app", "", act_as=True)[0]
        app = create_app(Settings(), store=InMemory(), storage=storage, providers={"m": provider, **others})
        self.served = Served(app)
        self.store = self.served.service.store
        self.http = http
        client: Any = self.served.client(self.ada)
        talk = client.conversations.create()
        made = client.responses.create(model="m", input="I'm Ada.", conversation=talk.id)
        path = f"{API}/conversations/{talk.id}"
        turn = self.post(f"{path}/turns", {"message": "Hi.", "model": "m", "policy": "Memory()"})
        brief = self.post(f"{path}/brief", {"field": "facts", "text": "Ada."})
        profile = self.post(f"{API}/profile", {"field": "about_user", "text": "Ada keeps bees."})
        self.profile_line = profile["lines"][0]["id"]
        self.ids = {
            "{response}": made.id,
            "{conversation}": talk.id,
            "{item}": client.conversations.items.list(talk.id).data[0].id,
            "{turn}": turn["id"],
            "{entry}": turn["entries"][0]["id"],
            "{branch}": self.post(f"{path}/branches", {})["name"],
            "{provider}": "openai",
            "{line}": brief["lines"][0]["id"],
            "{key}": own.id,
            "{state}": self.post(f"{API}/turns", {"message": "Hi.", "model": "m"})["state"],
            "{compaction}": client.responses.compact(model="m", previous_response_id=made.id)
            .output[-1]
            .encrypted_content,
        }

    def post(self, path: str, body: Any) -> Any:
        """Send a request of Ada's."""
        url, headers = self.served.url + path, {"Authorization": f"Bearer {self.ada}"}
        return self.http.post(url, json=body, headers=headers).json()

    def read_head(self) -> Any:
        """Return the head of Ada's conversation."""
        return self.store.head("ada", self.ids["{conversation}"])


def fill(text: str, ids: dict[str, str]) -> str:
    for name, value in ids.items():
        text = text.replace(name, value)
    return text


def fill_body(body: Any, ids: dict[str, str]) -> Any:
    return json.loads(fill(json.dumps(body or {}), ids))


def request(
    owners: Owners, key: str, method: str, path: str, body: Any, ids: dict[str, str], headers: Any = None
) -> tuple[int, str]:
    named = path.replace("{id}", "{conversation}" if "conversations" in path else "{response}")
    url = owners.served.url + fill(named, ids)
    assert "{" not in url, "the path has a parameter that is not covered"
    answer = owners.http.request(
        method,
        url,
        headers={"Authorization": f"Bearer {key}", **(headers or {})},
        json=fill_body(body, ids) if method in ("POST", "PATCH", "PUT") else None,
    )
    return answer.status_code, re.sub(r"req_\w+", "", hide(answer.text, ids))


def hide(text: str, ids: dict[str, str]) -> str:
    """Return a text with the names of ids in their places. Some ids contain others."""
    for name, value in sorted(ids.items(), key=lambda pair: -len(pair[1])):
        text = text.replace(value, name)
    return text
