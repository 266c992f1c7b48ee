"""Turns that nothing is stored of: the client keeps a sealed state."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from longtalk.errors import InputError
from longtalk.service.access import AccessKeys
from longtalk.service.seals import load_seal
from longtalk.service.settings import Settings
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.state.sealing import Seal, peek_sealed
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve
from tests.service.native.conftest import MakeApi


def write_keys(path: Path, *names: str) -> str:
    path.write_text("".join(f'{name} = "{Seal.new_key().hex()}"\n' for name in names))
    return str(path)


def test_a_conversation_goes_on_from_the_state_of_the_client(serve: Serve, api: MakeApi, tmp_path: Path) -> None:
    provider = AsyncScripted(says("Hello, Ada."), says("Ada."), says("Ada!"))
    served = serve(m=provider, settings=Settings(seal_file=write_keys(tmp_path / "keys", "new", "old")))
    call = api(served)
    first = call("POST", "/turns", json={"message": "I'm Ada.", "model": "m"})
    assert (first["text"], first["conversation"], first["branch"]) == ("Hello, Ada.", "", "")
    state = base64.b64decode(first["state"])
    assert (peek_sealed(state).key, b"Ada" in state) == ("new", False)
    body = {"message": "Who am I?", "model": "m", "state": first["state"]}
    second = call("POST", "/turns", json=body)
    assert second["text"] == "Ada."
    assert b"Hello, Ada." in provider.requests[1]
    events = call.events("POST", "/turns", json={**body, "state": second["state"], "stream": True})
    assert events[-1][1]["turn"]["state"]
    assert call("GET", "/conversations")["conversations"] == []
    assert served.service.storage.list_documents("seal_key") == []


def test_a_state_that_was_forged_cut_or_made_for_another_owner_is_refused(serve: Serve, api: MakeApi) -> None:
    storage = InMemoryStorage()
    keys = AccessKeys(storage)
    served = serve(storage=storage, m=AsyncScripted(says("Hello.")))
    ada, bob = (api(served, keys.add(name, name)[0]) for name in ("ada", "bob"))
    state = ada("POST", "/turns", json={"message": "Hi.", "model": "m"})["state"]
    raw = base64.b64decode(state)
    forged = raw[:-1] + bytes([raw[-1] ^ 1])
    for wrong in (forged, raw[:-5], raw[:10], b"nonsense", Seal({"1": Seal.new_key()}).close(b"")):
        body = {"message": "Hi.", "model": "m", "state": base64.b64encode(wrong).decode()}
        assert ada("POST", "/turns", 400, json=body)["error"]["code"] == "invalid_state"
    for text in ("%%%", "é"):
        assert ada("POST", "/turns", 400, json={"message": "Hi.", "model": "m", "state": text})
    refused = bob("POST", "/turns", 400, json={"message": "Hi.", "model": "m", "state": state})
    assert refused["error"]["code"] == "invalid_state"


def test_a_repeated_request_gets_the_same_state(serve: Serve, api: MakeApi) -> None:
    provider = AsyncScripted(says("Once."))
    call = api(serve(m=provider))
    more = {"json": {"message": "Hi.", "model": "m"}, "headers": {"Idempotency-Key": "k"}}
    assert call("POST", "/turns", **more) == call("POST", "/turns", **more)
    assert len(provider.requests) == 1


def test_a_seal_file_that_is_wrong_is_refused_without_showing_a_key(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    for text in ('a = "abc"', "a = 1", "secret", ""):
        path.write_text(text)
        with pytest.raises(InputError) as caught:
            load_seal(str(path))
        assert "secret" not in str(caught.value)
    with pytest.raises(InputError, match="can't be read"):
        load_seal(str(tmp_path / "none"))
