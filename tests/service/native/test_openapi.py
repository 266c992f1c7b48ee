"""The OpenAPI document describes every route, and comes from the declarations that the routes are checked by."""

from __future__ import annotations

from typing import Any

import httpx2

from longtalk.service.app import ENDPOINTS, SOCKETS
from longtalk.service.native.table import ROUTES
from tests.service.conftest import Serve
from tests.service.native.conftest import MakeApi


def test_the_document_has_every_route(serve: Serve, api: MakeApi) -> None:
    document = api(serve())("GET", "/openapi.json")
    assert document["openapi"].startswith("3.1")
    found = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    routes = {(method, path.replace(":path}", "}")) for method, path, _ in ENDPOINTS}
    assert found == routes - {("GET", "/longtalk/v1/openapi.json")}


def test_every_operation_has_an_id_a_summary_and_resolved_references(serve: Serve, api: MakeApi) -> None:
    document = api(serve())("GET", "/openapi.json")
    operations = [each for methods in document["paths"].values() for each in methods.values()]
    assert len({each["operationId"] for each in operations}) == len(operations)
    assert all(each["summary"] and {"101", "200", "201"} & each["responses"].keys() for each in operations)
    known = document["components"]["schemas"]

    def check(value: Any) -> None:
        if isinstance(value, dict):
            if "$ref" in value:
                assert value["$ref"].rpartition("/")[2] in known
            for each in value.values():
                check(each)
        elif isinstance(value, list):
            for each in value:
                check(each)

    check(document)


def test_parameters_and_bodies_come_from_the_types_that_check_them(serve: Serve, api: MakeApi) -> None:
    document = api(serve())("GET", "/openapi.json")
    route = next(each for each in ROUTES if each.full_path.endswith("/history"))
    operation = document["paths"][route.full_path]["get"]
    assert [each["name"] for each in operation["parameters"]] == ["conversation", *route.query.__struct_fields__]
    start = document["paths"]["/longtalk/v1/conversations/{conversation}/turns"]["post"]
    reference = start["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    assert {"message", "edits"} <= document["components"]["schemas"][reference.rpartition("/")[2]]["properties"].keys()
    assert {"409", "422", "429"} <= start["responses"].keys()


def test_the_document_describes_each_websocket(serve: Serve, api: MakeApi) -> None:
    served = serve()
    document = api(served)("GET", "/openapi.json")
    described = {path for path, each in document["paths"].items() if "x-websocket" in each.get("get", {})}
    assert described == {path for path, _ in SOCKETS}
    for path in described:
        assert {"101", "426"} <= set(document["paths"][path]["get"]["responses"])
        answer = httpx2.get(served.url + path)
        assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
        assert answer.json()["error"]["code"] == "upgrade_required"
