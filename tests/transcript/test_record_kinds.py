"""The table of record kinds."""

import re
from pathlib import Path

import longtalk
from longtalk.branches import settings
from longtalk.memory.brief import app_lines
from longtalk.memory.brief.record import KIND
from longtalk.memory.recall import segments
from longtalk.transcript import passages
from longtalk.transcript.record_kinds import KINDS, RecordKind, kind_of

_WRITTEN = re.compile(r"""(?:\.add_record|\bRecord)\(\s*(?:kind=)?"(\w+)\"""")


def test_every_kind_that_the_library_writes_is_in_the_table() -> None:
    root = Path(longtalk.__file__).parent
    sources = [path.read_text("utf-8") for path in root.rglob("*.py") if path.relative_to(root).parts[0] != "testing"]
    named = {KIND, app_lines.KIND, segments.KIND, settings.KIND, settings.SUFFIXES, passages.KIND}
    written = named | {kind for text in sources for kind in _WRITTEN.findall(text)}
    assert {"epoch", "summary", "origin"} < written
    assert written == {kind.name for kind in KINDS}


def test_the_table_has_an_order_and_makes_sense() -> None:
    assert list(KINDS) == sorted(KINDS, key=lambda kind: kind.name)
    for kind in KINDS:
        assert kind_of(kind.name) is kind
        assert kind.newest_only or not (kind.own_branch_only or kind.may_discard_replaced)


def test_an_unknown_kind_is_kept_and_goes_with_what_it_may_quote() -> None:
    unknown = kind_of("of a later version")
    assert unknown == RecordKind(name="", quotes_entries=True)
