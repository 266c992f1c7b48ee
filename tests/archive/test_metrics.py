"""The metrics of a turn, with and without a manifest."""

from __future__ import annotations

import pytest

from longtalk._util import json_bytes
from longtalk.archive.metrics import Metrics, build_metrics
from longtalk.context.compose import Context
from longtalk.context.epochs import Epoch
from longtalk.context.manifest import encode_manifest
from longtalk.models.call_cost import Cost
from longtalk.transcript.manifest import Run, StoredManifest, read_manifest
from longtalk.transcript.transcript import Transcript, Turn
from longtalk.usage import Usage

TURN = Turn("t", "complete", "ollama:x", 5, usage=(b'{"prompt_tokens":3}', b'{"input_tokens":4,"output_tokens":2}'))
RUNS = (
    Run(0, 3, "left_out", "policy", 10),
    Run(4, 6, "summarised", "tool digest", 20),
    Run(7, 7, "sent", "cut to head and tail", 30, keep=9),
    Run(8, 9, "sent", "kept", 40),
)


def test_sent_and_omitted_entries_are_counted_separately() -> None:
    manifest = encode_manifest(Context((), RUNS, 0, "", tokens=123), Transcript(), Cost(input=0.1, output=0.2))
    assert build_metrics(TURN, manifest, {}) == Metrics(
        turn="t",
        at=5,
        model="ollama:x",
        status="complete",
        calls=2,
        total=123,
        history=70,
        left_out=30,
        usage=Usage(7, 2),
        cost=0.3,
    )


def test_the_runs_of_an_epoch_count_for_each_of_its_turns() -> None:
    manifest = json_bytes.encode(StoredManifest(1, epoch=8, runs=((8, 9, 40),), summary=7))
    found = build_metrics(TURN, manifest, {8: Epoch("p", 8, runs=RUNS[:3]), 4: Epoch("p", 4)})
    assert (found.history, found.left_out, found.summary) == (70, 30, 7)


@pytest.mark.parametrize("manifest", [b"", b"{", b"[]", b'{"cost":"dear"}'])
def test_without_a_manifest_that_can_be_read_nothing_is_known_of_the_request(manifest: bytes) -> None:
    found = build_metrics(TURN, manifest, {})
    assert (found.total, found.history, found.left_out, found.cost) == (0, 0, 0, None)
    assert (found.calls, found.usage) == (2, Usage(7, 2))


def test_a_manifest_without_a_cost_means_unknown_cost() -> None:
    found = build_metrics(TURN, b'{"tokens":9,"runs":[[0,1,8]]}', {})
    assert (found.total, found.history, found.cost) == (9, 8, None)


def test_a_free_cost_is_stored_and_an_unknown_one_is_not() -> None:
    context = Context((), (), 0, "", tokens=1)
    assert encode_manifest(context, Transcript()) == b'{"tokens":1}'
    assert read_manifest(encode_manifest(context, Transcript(), Cost())).cost == 0.0
