"""The sample conversation has everything that a user can look at."""

from __future__ import annotations

from pathlib import Path

from longtalk import Archive
from longtalk.stores.sqlite import SQLite
from longtalk.transfer.sample import load_sample


def test_the_sample_is_imported_with_all_that_can_be_looked_at(tmp_path: Path) -> None:
    with SQLite(tmp_path / "talks.db") as store:
        archive = Archive(store)
        (name,) = archive.load(load_sample())
        assert archive.meta(name) == {"title": "Sample: Ada learns the violin", "sample": True}
        assert archive.verify(name) == []
        assert len(archive.branches(name)) == 2
        metrics = archive.metrics(name)
        assert len(metrics) >= 30
        assert all(each.cost and each.total and archive.manifest(name, each.turn) for each in metrics)
        assert all(sent.body for each in metrics for sent in archive.request(name, each.turn))
        assert any(each.recall for each in metrics)
        assert any(each.brief for each in metrics)
        assert any(each.usage.cached for each in metrics)
        assert len(archive.epochs(name)) > 1
        roles = {entry.role for entry in archive.history(name)}
        assert {"user", "assistant", "tool", "event"} <= roles


def test_the_same_sample_can_be_imported_again(tmp_path: Path) -> None:
    with SQLite(tmp_path / "talks.db") as store:
        archive = Archive(store)
        assert [archive.import_conversations(load_sample()).conversations[0].how for _ in "12"] == ["new", "here"]
