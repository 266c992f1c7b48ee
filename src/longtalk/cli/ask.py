"""`longtalk ask`: ask one question, about piped text, files and images if there are any.

Only the answer is written to standard output, so that other programs can read it. Each question starts a conversation
of its own, which `-c` continues.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec

from longtalk._sync.providers.local.provider import Local
from longtalk.cli.answers import describe_event, extract_code, print_stream, print_usage
from longtalk.cli.ask_inputs import load_tools, read_question, read_schema
from longtalk.cli.clock import show_clock
from longtalk.cli.earlier import mention_branch, mention_options, mention_tools
from longtalk.cli.files import display_name
from longtalk.cli.options import check_options, list_removed, parse_options
from longtalk.cli.output import escape_line, print_json, print_note, print_text
from longtalk.cli.session import ChatSession, exit_on_signals, open_session
from longtalk.cli.store import open_archive, store_exists, suggest_id
from longtalk.cli.tty import read_lines
from longtalk.errors import InputError, LongtalkError
from longtalk.wires.convert import Image, render_part
from longtalk.wires.registry import find_family


def run(
    *,
    words: Sequence[str],
    files: Sequence[str],
    images: Sequence[str],
    options: Sequence[tuple[str, str]],
    tools: Sequence[str],
    output: str | None,
    extract: bool,
    as_json: bool,
    goes_on: bool,
    id: str | None,  # noqa: A002
    **choices: Any,
) -> None:
    """Ask the question, and print the answer. `choices` are those of `open_session`."""
    _check_words(words, files, choices["store"], choices["owner"], goes_on=goes_on and id is None)
    asked = parse_options(options)
    text, pictures = read_question(" ".join(words), files, images)
    if not text and not pictures:
        raise InputError("No question was given: write it after `longtalk ask`, or pipe it in.")
    arguments: dict[str, Any] = {
        "options": asked,
        "tools": [tool for name in tools for tool in load_tools(name)],
        "output": read_schema(output) if output is not None else None,
    }
    new = id is None and not goes_on
    without = list_removed(options)
    with exit_on_signals(), open_session(id=id, new=new, stem="ask", without=without, **choices) as session:
        check_options(asked or {}, session.provider)
        if choices["branch"] is None:
            mention_branch(session)
        if id is not None and session.is_new:
            near = suggest_id(session.archive, id)
            if near and sys.stdin.isatty() and sys.stderr.isatty():
                _confirm_new(id, near)
                near = ""
            print_note(f"(Starting conversation {escape_line(id)}.{near})")
        mention_options(session, asked or {})
        mention_tools(session, arguments["tools"])
        parts = [_render(session, each) for each in pictures]
        message: Any = [*([text] if text else []), *parts] if parts else text
        try:
            _answer(session, message, arguments, extract=extract, as_json=as_json)
        except LongtalkError:
            session.delete_without_answer()
            raise
        except KeyboardInterrupt:
            kept = "" if choices["in_memory"] else '; what has arrived is kept. To go on: longtalk -c "Go on."'
            print_note(f"\n(stopped{kept})")
            raise


def _confirm_new(id: str, near: str) -> None:  # noqa: A002
    """Ask whether a conversation is to be started whose id may be a mistyped one, and exit if not."""
    print_note(f"There is no conversation {escape_line(id)}.{escape_line(near)}")
    with read_lines():
        if not click.confirm(escape_line(f"Start {id}?"), err=True):
            print_note("Nothing was asked.")
            raise SystemExit(1)


def _check_words(words: Sequence[str], files: Sequence[str], store: str | None, owner: str, *, goes_on: bool) -> None:
    """Raise `InputError` if words of the question look like files or a conversation that were meant as such."""
    # A plain word may be the name of a file by chance.
    is_meant = bool(files) and len(words) > 1
    named = [each for each in words if (is_meant or "." in each or "/" in each) and os.path.isfile(each)]
    if named:
        raise InputError(
            f"{display_name(named[0])} is a file, but would be a part of the question: for each file, write -f "
            f"{shlex.quote(named[0])}, or quote a pattern: -f '*{os.path.splitext(named[0])[1]}'. If it is meant so, "
            "quote the whole question."
        )
    if goes_on and len(words) > 1 and store_exists(store):
        with open_archive(store, owner) as archive:
            if archive.store.info(archive.owner, words[0]) is not None:
                raise InputError(
                    f"{words[0]!r} is a conversation, but would be a part of the question: to continue it, write --id "
                    f"{shlex.quote(words[0])} without -c. If it is meant so, quote the whole question."
                )


def _answer(session: ChatSession, message: Any, arguments: Mapping[str, Any], *, extract: bool, as_json: bool) -> None:
    talk = session.ensure_stored()
    if as_json:
        with show_clock():
            reply = talk.send(message, system=session.system, on_busy="wait", **arguments)
        print_json(
            {
                "conversation": talk.id,
                "turn": reply.turn_id,
                "model": session.provider.label,
                "text": reply.text,
                "output": reply.output if arguments["output"] is not None else None,
                "finish_reason": reply.finish_reason,
                "usage": msgspec.to_builtins(reply.usage),
                "cost": reply.cost.total if reply.cost is not None else None,
            }
        )
    elif extract or arguments["output"] is not None:
        with show_clock():
            reply = talk.send(message, system=session.system, on_busy="wait", **arguments)
        for notice in reply.notices:
            print_note(describe_event(notice))
        print_text(extract_code(reply.text) if extract else json.dumps(reply.output, ensure_ascii=False))
        print_usage(reply)
    else:
        reply = print_stream(talk.stream(message, system=session.system, on_busy="wait", **arguments))
        print_usage(reply)


def _render(session: ChatSession, image: Image) -> Any:
    wire = session.provider.wire
    if not find_family(wire) or isinstance(session.provider, Local):
        raise InputError(
            f"{session.provider.label} does not accept images. Choose a model that does, such as -m openai:gpt-5.6."
        )
    return render_part(wire, image)
