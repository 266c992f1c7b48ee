"""`longtalk brief add`, `edit` and `revoke`: change the brief of a stored conversation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from longtalk._sync.branches.branch import Branch
from longtalk._sync.conversation.brief import TalkBrief
from longtalk.cli.output import escape_line, print_result
from longtalk.cli.show import describe_line
from longtalk.cli.store import choose_branch, find_conversation, open_archive
from longtalk.errors import InputError
from longtalk.memory.brief.lines import Line
from longtalk.memory.brief.schema import Brief
from longtalk.policies import KeepAll, Memory
from longtalk.tokens import counter_for


def add(*, field: str, text: str, as_json: bool, **place: str | None) -> None:
    """Add a line to a field."""
    with _open_brief(**place) as brief:
        names = [each.name for each in brief.fields]
        if field not in names:
            from longtalk._util.suggest import suggest

            raise InputError(f"This brief has no field {field!r}, only {', '.join(names)}.{suggest(field, names)}")
        before = brief.lines()
        brief.add(field, text)
        _print_new(brief, before, as_json=as_json)


def edit(*, line: str, text: str, as_json: bool, **place: str | None) -> None:
    """Replace the text of a line. The line gets another id, which is printed."""
    with _open_brief(**place) as brief:
        _check_line(brief, line)
        before = brief.lines()
        brief.replace(line, text)
        _print_new(brief, before, as_json=as_json)


def revoke(*, line: str, as_json: bool, **place: str | None) -> None:
    """Remove a line for good."""
    with _open_brief(**place) as brief:
        _check_line(brief, line)
        brief.revoke(line)
        print_result({"id": line}, f"revoked {escape_line(line)}", as_json=as_json)


def _print_new(brief: TalkBrief, before: Sequence[Line], *, as_json: bool) -> None:
    known = {line.id for line in before}
    for line in brief.lines():
        if line.id not in known:
            print_result(describe_line(line), f"{line.id}\t{escape_line(line.text)}", as_json=as_json)


def _check_line(brief: TalkBrief, line: str) -> None:
    if all(each.id != line for each in brief.lines()):
        raise InputError(
            f"This brief has no line {line!r}. An id looks like d538d6df29; `longtalk brief show` prints the ids."
        )


@contextmanager
def _open_brief(**place: str | None) -> Iterator[TalkBrief]:
    """Open the brief of a conversation, with the fields of the policy under which it was last held."""
    with open_archive(place["store"], place["owner"] or "") as archive:
        summary = find_conversation(archive, place["id"] or "")
        branch = choose_branch(archive, summary, place["branch"])
        held = archive.settings(summary.id, branch=branch)
        policy = held.policy if held is not None else None
        config = policy.brief if isinstance(policy, Memory) else Brief()
        stored = Branch(archive.store, archive.owner, summary.id, branch, policy or KeepAll(), create=False)
        yield TalkBrief(stored, config, counter_for(held.model if held is not None else ""))
