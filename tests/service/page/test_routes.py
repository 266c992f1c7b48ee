"""The page: its files, their headers, and signing in with an access key."""

from __future__ import annotations

import re

import httpx2
import pytest

from longtalk.service.page import routes
from longtalk.service.settings import Settings
from longtalk.testing import AsyncScripted
from tests.service.conftest import Serve, Served

HEALTH = "/longtalk/v1/health"
PAGE = {"sec-fetch-site": "same-origin"}


def get(service: Served, path: str, **headers: str) -> httpx2.Response:
    return httpx2.get(service.url + path, headers=headers)


def sign_in(service: Served, key: str, **headers: str) -> httpx2.Response:
    return httpx2.post(service.url + "/page/session", json={"key": key}, headers=headers or PAGE)


def test_every_file_that_the_page_names_is_served_without_inline_code(serve: Serve) -> None:
    service = serve(m=AsyncScripted())
    index = get(service, "/")
    assert index.status_code == 200
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|style=", index.text)
    assert "script-src 'self';" in index.headers["content-security-policy"]
    assert "default-src 'none'" in index.headers["content-security-policy"]
    todo, seen, size = ["main.js", "app.css"], set[str](), 0
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        file = get(service, "/page/" + name)
        assert file.status_code == 200, name
        size += int(file.headers["content-length"])
        folder = name.rpartition("/")[0]
        for found in re.findall(r'^(?:import|export)\b[^;]*?from "(\.[^"]+)"', file.text, re.MULTILINE):
            parts = [*folder.split("/"), *found.split("/")] if folder else found.split("/")
            path: list[str] = []
            for part in parts:
                path = path[:-1] if part == ".." else path if part == "." else [*path, part]
            todo.append("/".join(path))
    assert {"api.js", "chat/chat.js", "vendor/htm/preact/standalone.module.js"} <= seen
    assert size < 150_000


def test_a_file_that_has_not_changed_is_not_sent_again(serve: Serve) -> None:
    service = serve(m=AsyncScripted())
    tag = get(service, "/page/main.js").headers["etag"]
    again = get(service, "/page/main.js", **{"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")
    plain = get(service, "/page/main.js", **{"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.text.startswith("//")


@pytest.mark.parametrize("path", ["../routes.py", "%2e%2e/routes.py", "missing.js", "vendor/htm", ".hidden.js"])
def test_no_other_file_is_served(serve: Serve, path: str) -> None:
    assert get(serve(m=AsyncScripted()), "/page/" + path).status_code == 404


def test_without_its_parts_the_page_says_what_to_run(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr(routes, "STATIC", tmp_path)
    answer = get(serve(m=AsyncScripted()), "/")
    assert answer.status_code == 503
    assert "make setup" in answer.text


def test_the_page_can_be_turned_off(serve: Serve) -> None:
    assert get(serve(m=AsyncScripted(), settings=Settings(page=False)), "/").status_code == 404


def test_a_key_is_exchanged_for_a_cookie_that_ends_with_signing_out(serve: Serve) -> None:
    service = serve(m=AsyncScripted())
    secret, _ = service.service.keys.add("laptop", "ada")
    answer = sign_in(service, secret)
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert secret not in cookie
    given = {"cookie": cookie.partition(";")[0], **PAGE}
    assert get(service, HEALTH, **given).json()["owner"] == "ada"
    httpx2.delete(service.url + "/page/session", headers=given).raise_for_status()
    assert get(service, HEALTH, **given).status_code == 401


def test_a_cookie_ends_with_its_key(serve: Serve) -> None:
    service = serve(m=AsyncScripted())
    secret, key = service.service.keys.add("laptop", "ada")
    given = {"cookie": sign_in(service, secret).headers["set-cookie"].partition(";")[0], **PAGE}
    assert get(service, HEALTH, **given).status_code == 200
    service.service.keys.revoke(key.id)
    assert get(service, HEALTH, **given).status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"sec-fetch-site": "none"}, 401),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": "http://evil.example", "longtalk-page": "1"}, 401),
        ({"longtalk-page": "1"}, 200),
        (PAGE, 200),
    ],
)
def test_a_cookie_counts_only_for_requests_of_the_page(serve: Serve, headers: dict[str, str], status: int) -> None:
    service = serve(m=AsyncScripted())
    secret, _ = service.service.keys.add("laptop", "ada")
    cookie = sign_in(service, secret).headers["set-cookie"].partition(";")[0]
    assert get(service, HEALTH, cookie=cookie, **headers).status_code == status


def test_signing_in_is_refused_with_a_wrong_key_from_elsewhere_and_for_an_app(serve: Serve) -> None:
    service = serve(m=AsyncScripted())
    secret, _ = service.service.keys.add("laptop", "ada")
    app, _ = service.service.keys.add("app", "", act_as=True)
    assert sign_in(service, "lt_wrong").status_code == 401
    assert sign_in(service, app).status_code == 403
    assert sign_in(service, secret, **{"sec-fetch-site": "cross-site"}).status_code == 403
    assert sign_in(service, secret, **{"user-agent": "x"}).status_code == 403


def test_a_broken_cookie_is_no_session(serve: Serve) -> None:
    service = serve(m=AsyncScripted())
    service.service.keys.add("laptop", "ada")
    assert get(service, HEALTH, cookie="a[]=1; longtalk_session", **PAGE).status_code == 401
    assert get(service, HEALTH, cookie="longtalk_session=none", **PAGE).status_code == 401
    signed_out = httpx2.delete(service.url + "/page/session", headers=PAGE)
    assert signed_out.status_code == 200
