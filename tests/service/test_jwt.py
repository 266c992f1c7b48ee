"""Signed tokens of another system in place of access keys, and forged ones."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import httpx2
import jwt
import openai
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from longtalk.errors import InputError
from longtalk.service.access import AccessKeys
from longtalk.service.settings import JwtSettings, Settings
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve, Served

MAKERS: dict[str, Any] = {
    "RS256": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


@functools.cache
def make_key(algorithm: str, number: int = 0) -> Any:
    """Return a private key, made once: to make one takes a while."""
    return MAKERS[algorithm]()


class Issuer:
    """A system that signs tokens, and a service that accepts them."""

    def __init__(self, algorithm: str, folder: Path, serve: Serve) -> None:
        self.algorithm = algorithm
        self.private = make_key(algorithm)
        self.public: bytes = self.private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        file = folder / "issuer.pem"
        file.write_bytes(self.public)
        self.storage = InMemoryStorage()
        settings = Settings(jwt=JwtSettings(issuer="https://login.example", audience="longtalk", key_file=str(file)))
        self.served: Served = serve(settings=settings, storage=self.storage, m=AsyncScripted(*[says("Hello.")] * 4))

    def claim(self, **changes: Any) -> dict[str, Any]:
        """Return the claims of a good token, with changes; None leaves a claim out."""
        claims = {"iss": "https://login.example", "aud": "longtalk", "sub": "ada", "exp": int(time.time()) + 3600}
        return {name: value for name, value in {**claims, **changes}.items() if value is not None}

    def sign(self, **changes: Any) -> str:
        """Return a token that the service should accept but for the changes."""
        return jwt.encode(self.claim(**changes), self.private, algorithm=self.algorithm)

    def forge(self, header: dict[str, Any], secret: bytes | None = None) -> str:
        """Return a token that is not signed with the private key."""
        parts = [_encode(json.dumps(each).encode()) for each in (header, self.claim())]
        signature = b""
        if secret is not None:
            signature = hmac.new(secret, b".".join(parts), hashlib.sha256).digest()
        return b".".join([*parts, _encode(signature)]).decode()


def _encode(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


@pytest.fixture(params=MAKERS)
def issuer(request: pytest.FixtureRequest, tmp_path: Path, serve: Serve) -> Issuer:
    return Issuer(request.param, tmp_path, serve)


@pytest.fixture
def rsa_issuer(tmp_path: Path, serve: Serve) -> Issuer:
    return Issuer("RS256", tmp_path, serve)


def ask(issuer: Issuer, token: str) -> str:
    return issuer.served.client(token).responses.create(model="m", input="Hi.").id


def assert_refused(issuer: Issuer, token: str) -> None:
    with pytest.raises(openai.AuthenticationError) as caught:
        ask(issuer, token)
    assert caught.value.code == "invalid_api_key"
    assert issuer.served.service.store.conversations("ada") == []


def test_a_signed_token_names_the_owner_and_another_owner_sees_nothing(issuer: Issuer) -> None:
    made = ask(issuer, issuer.sign())
    assert len(issuer.served.service.store.conversations("ada")) == 1
    assert issuer.served.client(issuer.sign()).responses.retrieve(made).output_text == "Hello."
    with pytest.raises(openai.NotFoundError):
        issuer.served.client(issuer.sign(sub="bob")).responses.retrieve(made)


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": 1},
        {"exp": None},
        {"iss": "https://other.example"},
        {"iss": None},
        {"aud": "another-service"},
        {"aud": None},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"nbf": 32_503_680_000},
    ],
    ids=str,
)
def test_a_token_that_is_not_for_now_or_not_for_here_is_refused(rsa_issuer: Issuer, changes: dict[str, Any]) -> None:
    assert_refused(rsa_issuer, rsa_issuer.sign(**changes))


def test_a_token_that_another_key_has_signed_is_refused(issuer: Issuer) -> None:
    other = make_key(issuer.algorithm, 1)
    assert_refused(issuer, jwt.encode(issuer.claim(), other, algorithm=issuer.algorithm))


def test_a_token_of_another_algorithm_than_that_of_the_key_is_refused(issuer: Issuer) -> None:
    for algorithm in MAKERS.keys() - {issuer.algorithm}:
        assert_refused(issuer, jwt.encode(issuer.claim(), make_key(algorithm), algorithm=algorithm))


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", ""])
def test_a_token_without_a_signature_is_refused(issuer: Issuer, algorithm: str) -> None:
    assert_refused(issuer, issuer.forge({"alg": algorithm, "typ": "JWT"}))


def test_a_token_signed_with_the_public_key_as_a_shared_secret_is_refused(issuer: Issuer) -> None:
    for secret in (issuer.public, issuer.public.strip()):
        assert_refused(issuer, issuer.forge({"alg": "HS256", "typ": "JWT"}, secret))


@pytest.mark.parametrize("field", ["jwk", "jku", "x5u", "kid"])
def test_a_key_that_a_token_names_itself_is_not_used(rsa_issuer: Issuer, field: str) -> None:
    other = make_key("RS256", 1)
    named = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(other.public_key())) if field == "jwk" else "file:///dev/null"
    assert_refused(rsa_issuer, jwt.encode(rsa_issuer.claim(), other, algorithm="RS256", headers={field: named}))


@pytest.mark.parametrize("token", ["x", "a.b.c", "....", "e30.e30.e30", "none"])
def test_what_is_no_token_is_refused(rsa_issuer: Issuer, token: str) -> None:
    assert_refused(rsa_issuer, token)


def test_without_a_token_nothing_is_served(rsa_issuer: Issuer) -> None:
    assert httpx2.get(f"{rsa_issuer.served.url}/v1/models").status_code == 401


def test_access_keys_work_beside_tokens(rsa_issuer: Issuer) -> None:
    key, _ = AccessKeys(rsa_issuer.storage).add("laptop", "ada")
    made = ask(rsa_issuer, key)
    assert rsa_issuer.served.client(rsa_issuer.sign()).responses.retrieve(made).output_text == "Hello."


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "HS512"])
def test_settings_with_an_algorithm_of_shared_secrets_are_refused(serve: Serve, tmp_path: Path, algorithm: str) -> None:
    file = tmp_path / "key.pem"
    file.write_text("secret")
    given = JwtSettings(issuer="i", audience="a", key_file=str(file), algorithms=("RS256", algorithm))
    with pytest.raises(InputError, match="algorithms"):
        serve(settings=Settings(jwt=given))


def test_settings_with_a_key_file_that_has_no_public_key_are_refused(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    for content in (None, "not a key", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"):
        if content is not None:
            file.write_text(content)
        with pytest.raises(InputError, match="key file"):
            serve(settings=Settings(jwt=JwtSettings(issuer="i", audience="a", key_file=str(file))))
