"""Telemetry of the service, sent to a collector that is a real HTTP server."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.http_server import HttpHandler, HttpServer

_CHILD = textwrap.dedent(
    """
    import openai
    from longtalk.service.app import create_app
    from longtalk.service.settings import Settings
    from longtalk.service.telemetry import start_exporting
    from longtalk.stores.in_memory import InMemory
    from longtalk.testing import AsyncScripted, says
    from tests.service.conftest import Served

    start_exporting()
    start_exporting()
    app = create_app(Settings(telemetry=True), store=InMemory(), providers={"m": AsyncScripted(says("Hi."))})
    served = Served(app)
    served.client().responses.create(model="m", input="swordfish")
    served.stop()
    """
)


def test_a_service_sends_spans_and_metrics_without_content() -> None:
    received: dict[str, bytes] = {}

    class Collector(HttpHandler):
        def do_POST(self) -> None:
            received[self.path] = self.read_body()
            self.send_whole(200, b"")

    with HttpServer(Collector) as collector:
        environment = {
            **os.environ,
            "PYTHONPATH": ".",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        }
        done = subprocess.run(
            [sys.executable, "-c", _CHILD], env=environment, capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 0, done.stderr
    trace = ExportTraceServiceRequest.FromString(received["/v1/traces"])
    (resource,) = trace.resource_spans
    assert {span.name for span in resource.scope_spans[0].spans} == {"invoke_agent", "chat model"}
    name = {each.key: each.value.string_value for each in resource.resource.attributes}["service.name"]
    assert name == "longtalk"
    metrics = ExportMetricsServiceRequest.FromString(received["/v1/metrics"])
    names = {each.name for each in metrics.resource_metrics[0].scope_metrics[0].metrics}
    assert "gen_ai.client.token.usage" in names
    assert b"swordfish" not in b"".join(received.values())
