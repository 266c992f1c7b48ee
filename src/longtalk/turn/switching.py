"""Continue a conversation on another wire: report what can't be converted, and refuse impossible switches."""

from __future__ import annotations

from longtalk.errors import InputError
from longtalk.notices import Notice
from longtalk.transcript.transcript import Transcript
from longtalk.wires.convert import list_lost_content
from longtalk.wires.neutral import LONGTALK
from longtalk.wires.pairing import find_answer_wire, find_open_calls
from longtalk.wires.protocol import Wire
from longtalk.wires.registry import NAMES


def check_switch(
    transcript: Transcript, message: object, wire: Wire, model: str, *, on_switch: str
) -> tuple[Notice, ...]:
    """Return notices about what a conversation loses when it continues on this wire.

    Raise `InputError` if it can't be continued: for example, a turn must end on the wire on which it began.
    """
    foreign = transcript.wires() - {wire.name, LONGTALK}
    if not foreign:
        return ()
    unknown = sorted(name for name in foreign if name not in NAMES)
    if unknown:
        raise InputError(
            f"This conversation has messages of the unknown wire {unknown[0]!r}, which this version of Longtalk can't "
            "convert: upgrade Longtalk, or continue the conversation in the program that wrote them."
        )
    if on_switch == "raise":
        raise InputError(
            f"This conversation was held over {', '.join(sorted(foreign))}, and {model} speaks "
            f"{wire.name}: set on_switch='convert' to convert its messages."
        )
    before = find_answer_wire(transcript, wire)
    if message is None and before is not wire and find_open_calls(transcript):
        raise InputError(
            f"This turn began over {before.name} and must end there: use such a model, or send a new message."
        )
    entries = (transcript[i] for i in range(len(transcript) - 1, -1, -1))
    last = next((entry.wire for entry in entries if entry.role == "assistant"), wire.name)
    if last == wire.name:
        return ()
    lost = list_lost_content(transcript, wire)
    what = f" These parts can't be converted and are not sent: {', '.join(lost)}." if lost else ""
    text = f"The conversation was held over {last}. Its messages were converted to {wire.name}.{what}"
    return (Notice("converted", text),)
