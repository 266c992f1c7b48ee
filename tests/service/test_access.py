"""Who may use the service: keys, owners, and the single user of this machine."""

from __future__ import annotations

from typing import Any

import httpx2
import openai
import pytest

from longtalk.service.access import AccessKeys
from longtalk.service.app import create_app
from longtalk.service.settings import Settings
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted, says
from longtalk.transcript.transcript import now
from tests.service.conftest import Serve, Served


@pytest.fixture
def storage() -> InMemoryStorage:
    return InMemoryStorage()


def test_a_key_names_its_owner_and_another_owner_sees_nothing(serve: Serve, storage: InMemoryStorage) -> None:
    keys = AccessKeys(storage)
    ada, _ = keys.add("ada's", "ada")
    bob, _ = keys.add("bob's", "bob")
    served = serve(storage=storage, m=AsyncScripted(says("Hello."), says("Hello.")))
    made = served.client(ada).responses.create(model="m", input="Hi.")
    for call in ("retrieve", "delete", "cancel"):
        with pytest.raises(openai.NotFoundError) as foreign:
            getattr(served.client(bob).responses, call)(made.id)
        unknown = made.id.replace(made.id[5:17], "a" * 12)
        with pytest.raises(openai.NotFoundError) as missing:
            getattr(served.client(bob).responses, call)(unknown)
        assert str(foreign.value).replace(made.id, unknown) == str(missing.value)
    with pytest.raises(openai.BadRequestError):
        served.client(bob).responses.create(model="m", input="Hi.", previous_response_id=made.id)


@pytest.mark.parametrize("key", ["none", "lt_wrong", "sk-other"])
def test_without_a_valid_key_nothing_is_served_once_there_are_keys(
    serve: Serve, storage: InMemoryStorage, key: str
) -> None:
    AccessKeys(storage).add("a", "ada")
    url = serve(storage=storage).url
    for path in ("/v1/models", "/v1/responses/resp_1", "/v1/conversations/c"):
        answer = httpx2.get(url + path, headers={"Authorization": f"Bearer {key}"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


def test_a_revoked_and_an_expired_key_are_refused(serve: Serve, storage: InMemoryStorage) -> None:
    keys = AccessKeys(storage)
    revoked, info = keys.add("a", "ada")
    expired, _ = keys.add("b", "ada", expires=now() - 1)
    served = serve(storage=storage)
    assert served.client(revoked).models.list()
    assert keys.revoke(info.id)
    assert not keys.revoke(info.id)
    for key in (revoked, expired):
        with pytest.raises(openai.AuthenticationError):
            served.client(key).models.list()


def test_revoking_the_last_key_does_not_open_the_service(serve: Serve, storage: InMemoryStorage) -> None:
    keys = AccessKeys(storage)
    _, info = keys.add("a", "ada")
    url = serve(storage=storage).url
    assert keys.revoke(info.id)
    assert httpx2.get(f"{url}/v1/models").status_code == 401


@pytest.mark.parametrize("model", ["local:/etc/passwd", "local:weights.gguf", "codex-cli:x", "claude-cli:sonnet"])
def test_files_and_programs_of_the_machine_are_models_only_if_the_settings_name_them(serve: Serve, model: str) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist or is not for you"):
        serve().client().responses.create(model=model, input="Hi.")


def test_a_key_can_be_limited_to_models_and_paths(serve: Serve, storage: InMemoryStorage) -> None:
    key, _ = AccessKeys(storage).add("a", "ada", models=("m",), routes=("/v1/responses", "/v1/models"))
    client: Any = serve(storage=storage, m=AsyncScripted(says("Hi.")), other=AsyncScripted()).client(key)
    assert client.responses.create(model="m", input="Hi.").output_text == "Hi."
    assert [model.id for model in client.models.list()] == ["m"]
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="other", input="Hi.")
    with pytest.raises(openai.PermissionDeniedError):
        client.conversations.create()


def test_the_paths_of_a_key_do_not_depend_on_the_prefix_of_a_proxy(storage: InMemoryStorage) -> None:
    key, _ = AccessKeys(storage).add("a", "ada", routes=("/v1/models",))
    app = create_app(Settings(), store=InMemory(), storage=storage)

    class Prefixed:
        """Passes requests on as uvicorn does with a root path."""

        state = app.state

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                scope |= {"root_path": "/llm", "path": "/llm" + scope["path"]}
            await app(scope, receive, send)

    served = Served(Prefixed())
    try:
        assert served.client(key).models.list()
        with pytest.raises(openai.PermissionDeniedError):
            served.client(key).conversations.create()
    finally:
        served.stop()


def test_the_key_of_an_app_acts_for_the_owner_that_it_names(serve: Serve, storage: InMemoryStorage) -> None:
    keys = AccessKeys(storage)
    app, _ = keys.add("app", "", act_as=True)
    plain, _ = keys.add("plain", "ada")
    served = serve(storage=storage, m=AsyncScripted(says("Hi.")))
    as_ada = {"Longtalk-Owner": "ada"}
    made = served.client(app).responses.create(model="m", input="Hi.", extra_headers=as_ada)
    assert served.client(plain).responses.retrieve(made.id).output_text == "Hi."
    with pytest.raises(openai.PermissionDeniedError):
        served.client(plain).models.list(extra_headers={"Longtalk-Owner": "bob"})
    with pytest.raises(openai.BadRequestError, match="name the owner in the header"):
        served.client(app).models.list()


def test_a_key_is_stored_as_a_digest_only(storage: InMemoryStorage) -> None:
    keys = AccessKeys(storage)
    secret, info = keys.add("a", "ada")
    assert keys.list() == [info]
    assert secret not in str(storage.list_documents("access_key"))


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_a_web_page_of_another_origin_can_not_reach_the_service_of_this_machine(
    serve: Serve, headers: dict[str, str]
) -> None:
    url = serve().url
    answer = httpx2.post(f"{url}/v1/conversations", headers=headers, json={})
    assert (answer.status_code, answer.headers["content-type"]) == (403, "application/json")


def test_the_page_of_the_service_itself_and_allowed_origins_can(serve: Serve) -> None:
    served = serve(settings=Settings(cors_origins=["https://app.example"]))
    for origin in (served.url, "https://app.example"):
        answer = httpx2.post(f"{served.url}/v1/conversations", headers={"Origin": origin}, json={})
        assert answer.status_code == 200


def test_beyond_this_machine_nothing_is_served_without_keys(serve: Serve) -> None:
    served = serve(settings=Settings(host="0.0.0.0"))
    assert httpx2.get(f"{served.url}/v1/models").status_code == 401
    assert httpx2.get(f"{served.url}/healthz").json() == {"status": "ok"}
    assert httpx2.get(f"{served.url}/readyz").json() == {"status": "ok"}
