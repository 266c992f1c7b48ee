"""Test token counts: estimates, exact counts, messages of all wires, images and files, and invalid input."""

from __future__ import annotations

import base64
import json
import struct
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from statistics import mean
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk import tool
from longtalk.errors import InputError
from longtalk.tokens import (
    EXACT,
    FAMILIES,
    CheckedCounter,
    Estimator,
    Exact,
    count_message,
    count_preamble,
    counter_for,
    families,
    features,
)
from longtalk.tokens.families import CALL_TOKENS
from longtalk.wires import neutral

SAMPLES = sorted((Path(__file__).parents[2] / "bench" / "samples").glob("*.txt"))


class Characters:
    """Each character is a token, so that it shows what was counted as text."""

    family = "o200k"

    def __init__(self) -> None:
        self.seen = ""

    def count(self, text: str) -> int:
        self.seen += text
        return len(text)


def count_fixed(message: Any, family: str = "o200k") -> int:
    """Return the tokens of a message beyond those of its text."""
    counter = Characters()
    counter.family = family
    total = count_message(json.dumps(message).encode(), counter)
    return total - len(counter.seen)


def read_counted_text(message: Any) -> str:
    counter = Characters()
    count_message(json.dumps(message).encode(), counter)
    return counter.seen


FRAME = count_fixed({"role": "user", "content": "x"})


def make_png(width: int, height: int, more: int = 0) -> str:
    header = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height)
    return base64.b64encode(header + bytes(9 + more)).decode()


def count_image(data: str, family: str, detail: str | None = None) -> int:
    """Return the tokens of an image in the format of the family's wire."""
    if family.startswith("claude"):
        source = {"type": "base64", "media_type": "image/png", "data": data}
        block: Any = {"type": "image", "source": source}
    else:
        block = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}", "detail": detail}}
    message = {"role": "user", "content": [block]}
    counter = Characters()
    counter.family = family
    cost = count_message(json.dumps(message).encode(), counter) - families.FRAME_TOKENS.get(family, 4)
    assert counter.seen == ""
    return cost


# Texts


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_an_estimate_is_near_the_exact_count(path: Path) -> None:
    text = path.read_text()
    errors = [abs(Estimator(family).count(text) / Exact(family).count(text) - 1) for family in EXACT]
    assert mean(errors) < 0.10


def test_all_classes_of_text_are_there() -> None:
    assert len(SAMPLES) == 11
    assert all(len(path.read_text()) > 700 for path in SAMPLES)


def test_exact_counts_are_those_of_the_tokenizer() -> None:
    assert Exact("o200k").count("Hello, world!") == 4
    assert Exact("cl100k").count("tiktoken is great!") == 6
    assert Exact("o200k").count("<|endoftext|>") > 1  # in a message, it is plain text
    assert Exact("o200k").count("half \ud83d") > 0
    assert repr(Exact("qwen")) == "Exact('qwen')"


def test_an_unknown_name_is_told_with_those_that_exist() -> None:
    with pytest.raises(InputError, match="o200k, cl100k"):
        Exact("gpt9")
    with pytest.raises(InputError, match="Estimator"):
        Exact("claude")
    with pytest.raises(InputError, match="smollm2"):
        Estimator("gpt9")


def test_without_the_extra_its_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from longtalk.tokens import counters

    monkeypatch.setitem(sys.modules, "splintr", None)
    counters._load_tokenizer.cache_clear()
    with pytest.raises(InputError, match=r"pip install 'longtalk\[tokens\]'"):
        Exact("o200k")


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("openai-chat:gpt-5.6", "o200k"),
        ("openai-chat:o3", "o200k"),
        ("openai-chat:something-new", "o200k"),
        ("openai-chat:gpt-4-turbo", "cl100k"),
        ("openai-chat:gpt-4o", "o200k"),
        ("anthropic:claude-sonnet-5", "claude"),
        ("anthropic:claude-opus-4-7", "claude"),
        ("anthropic:claude-opus-4-6", "claude3"),
        ("anthropic:claude-opus-4-20250514", "claude3"),
        ("anthropic:claude-3-5-haiku-latest", "claude3"),
        ("openrouter:anthropic/claude-opus-5", "claude"),
        ("anthropic:new", "claude"),
        ("ollama:qwen3", "qwen"),
        ("ollama:llama3.2", "llama3"),
        ("groq:llama-4-scout", "llama3"),
        ("together:deepseek-ai/DeepSeek-V3", "deepseek"),
        ("ollama:deepseek-r1-distill-qwen", "qwen"),
        ("openrouter:google/gemini-3-pro", "gemma"),
        ("mistral:mistral-large-latest", "mistral"),
        ("mistral:new", "mistral"),
        ("openrouter:moonshotai/kimi-k2", "kimi"),
        ("vllm:zai-org/GLM-4.5", "glm"),
        ("local", "smollm2"),
        ("local:/models/Qwen3-4B.gguf", "qwen"),
        ("compatible:who-knows", "cl100k"),
        ("", "cl100k"),
    ],
)
def test_a_model_has_its_family(model: str, family: str) -> None:
    assert counter_for(model) == Estimator(family)


class Says:
    """A counter that says what it is told to."""

    def __init__(self, said: Any) -> None:
        self.said = said

    def count(self, text: str) -> Any:
        return self.said

    def __repr__(self) -> str:
        return "Says()"


@pytest.mark.parametrize(
    ("said", "tokens"),
    [
        (7, 7),
        (2**40 - 1, 2**40 - 1),
        (6.6, 7),
        (1e3, 1_000),
        (Fraction(7, 3), 2),
        (Decimal("4.9"), 5),
    ],
)
def test_the_numbers_of_a_custom_counter_are_rounded(said: Any, tokens: int) -> None:
    counted = CheckedCounter(Says(said)).count("text")
    assert (counted, type(counted)) == (tokens, int)


@pytest.mark.parametrize(
    "said",
    [-1, -0.7, None, "7", b"7", [7], 1j, object(), float("nan"), float("inf"), -float("inf"), 2**40, 10**400, 1e300],
)
def test_what_makes_no_sense_is_refused_by_the_counter_s_name(said: Any) -> None:
    with pytest.raises(
        InputError, match=r"Says\(\) counted .* tokens in a test sentence; count\(\) must return a positive number"
    ):
        CheckedCounter(Says(said)).count("text")


def test_a_checked_counter_has_the_family_of_its_own() -> None:
    assert CheckedCounter(Estimator("claude")).family == "claude"
    assert CheckedCounter(Says(1)).family == ""
    message = json.dumps({"role": "user", "content": "Hello, world!"}).encode()
    for counter in (Estimator("claude"), Exact("o200k"), Characters()):
        assert count_message(message, CheckedCounter(counter)) == count_message(message, counter)


@pytest.mark.parametrize("family", FAMILIES)
@given(text=st.text() | st.text("aB1 .\n\té中の한я🎉\ud800", max_size=400))
def test_any_text_has_a_count(family: str, text: str) -> None:
    count = Estimator(family).count(text)
    assert (count >= 1) if text else (count == 0)
    assert count <= 12 * len(text)


@given(parts=st.lists(st.sampled_from([path.read_text()[:900] for path in SAMPLES]), min_size=2, max_size=4))
def test_two_texts_together_cost_about_what_they_cost_alone(parts: list[str]) -> None:
    together = Estimator().count("\n".join(parts))
    alone = sum(map(Estimator().count, parts))
    assert alone * 0.85 - 8 < together < alone * 1.1 + 8


@pytest.mark.parametrize("piece", ["a", " ", "\n", "1", "!", "中", "🎉", "Ab1", "ｱ", "\ud83d"])
def test_unusual_text_takes_linear_time_and_gets_a_plausible_count(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    real = features.estimate

    def estimate(block: str, costs: tuple[float, ...]) -> float:
        looked.append(len(block))
        return real(block, costs)

    monkeypatch.setattr("longtalk.tokens.counters.estimate", estimate)
    text = piece * 300_000
    count = Estimator().count(text)
    assert sum(looked) == len(text)
    assert max(looked) <= 1 << 16
    assert len(text) / 150 < count < len(text) * 4


def test_claude_is_counted_higher_than_others() -> None:
    text = SAMPLES[4].read_text()
    assert Estimator("claude").count(text) > 1.2 * Estimator("claude3").count(text)
    assert Estimator("claude3").count(text) > Estimator("cl100k").count(text)


# Messages


def test_a_message_costs_its_text_and_a_frame() -> None:
    said = "What would you do about the slugs?"
    exact = Exact("o200k")
    assert count_message(json.dumps({"role": "user", "content": said}).encode(), exact) == exact.count(said) + FRAME
    assert 3 <= FRAME <= 6


def test_a_call_is_its_name_its_arguments_and_a_frame() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": '{"q":"bows"}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call, call]}
    assert read_counted_text(message) == 'look_up\n{"q":"bows"}\nlook_up\n{"q":"bows"}'
    assert "call_1" not in read_counted_text(message)
    assert count_fixed(message) == FRAME + 2 * families.CALL_TOKENS


def test_the_same_call_costs_the_same_over_both_wires() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look_up", "arguments": '{"q":"bows"}'}}
    chat = {"role": "assistant", "content": "Let me see.", "tool_calls": [call]}
    use = {"type": "tool_use", "id": "c", "name": "look_up", "input": {"q": "bows"}}
    native = {"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, use]}
    assert sorted(read_counted_text(chat)) == sorted(read_counted_text(native))
    assert count_fixed(chat) == count_fixed(native)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "tool_call_id": "call_1", "content": "forty"},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "forty"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "forty"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"text": "forty"}]}]},
        {"role": "assistant", "content": None, "refusal": "forty"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "forty"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "forty", "signature": "x" * 999}]},
        {"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "forty"}}]},
        {"content": [{"type": "document", "source": {"type": "content", "content": [{"text": "forty"}]}}]},
        {"text": "forty"},
        {"role": "model", "parts": [{"text": "forty", "thoughtSignature": "x" * 999}]},
        {"role": "model", "parts": [{"text": "forty", "thought": True}]},
        {"role": "model", "parts": [{"functionCall": {"id": "c", "name": "forty"}}]},
        {"role": "user", "parts": [{"functionResponse": {"id": "c", "response": {"result": "forty"}}}]},
        {"role": "user", "parts": [{"functionResponse": {"id": "c", "response": {"a": ["forty"]}}}]},
        {"type": "function_call_output", "call_id": "c", "output": "forty"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "forty"}]},
        {"type": "custom_tool_call", "call_id": "c", "name": "", "input": "forty"},
        {
            "output": [
                {"type": "message", "phase": "final_answer", "content": [{"type": "output_text", "text": "forty"}]}
            ]
        },
        {"output": [{"type": "function_call", "call_id": "c", "name": "forty", "arguments": ""}]},
        {
            "output": [
                {"type": "reasoning", "summary": [{"text": "long"}], "encrypted_content": "A" * 999},
                {"x": "forty"},
            ]
        },
        {"role": "user", "content": [{"type": "new_kind", "payload": {"deeper": ["forty"]}}]},
        {"role": "user", "content": "", "new_member": "forty"},
        ["forty"],
        "forty",
    ],
)
def test_text_is_found_wherever_it_stands(message: Any) -> None:
    assert read_counted_text(message) == "forty"


def test_events_and_system_messages_of_ours_are_counted() -> None:
    exact = Exact()
    event = neutral.event("Ada has tuned her violin", source="tuner", at=0)
    assert count_message(event.native, exact) == FRAME + exact.count("tuner\nAda has tuned her violin")
    assert count_message(neutral.system("Be brief.", at=0).native, exact) == FRAME + exact.count("Be brief.")


def test_parts_without_a_type_count_by_what_they_are() -> None:
    call = {"functionCall": {"id": "c", "name": "look", "args": {"q": "a b"}}}
    assert read_counted_text({"role": "model", "parts": [call]}) == '{"q":"a b"}\nlook'
    assert count_fixed({"role": "model", "parts": [call]}) == FRAME + CALL_TOKENS
    told = {"functionResponse": {"name": "look", "response": {"result": "A" * 300}}}
    assert read_counted_text({"role": "user", "parts": [told]}) == "A" * 300 + "\nlook"
    frame = count_fixed({"role": "user", "parts": [{"text": "x"}]}, "gemma")
    for part, tokens in (
        ({"inlineData": {"mimeType": "image/png", "data": make_png(300, 300)}}, 258),
        ({"inlineData": {"mimeType": "image/png", "data": make_png(1000, 700)}}, 516),
        ({"fileData": {"mimeType": "application/pdf", "fileUri": "x"}}, 258),
        ({"inlineData": 5}, 1),
    ):
        assert count_fixed({"role": "user", "parts": [part]}, "gemma") == frame + tokens


def test_encrypted_thinking_counts_by_its_size() -> None:
    block = {"type": "redacted_thinking", "data": "A" * 1600}
    assert read_counted_text({"role": "assistant", "content": [block]}) == ""
    assert count_fixed({"role": "assistant", "content": [block]}) == FRAME + 300
    for kind in ("reasoning", "compaction"):
        item = {"type": kind, "id": "x", "encrypted_content": "A" * 1600}
        assert read_counted_text({"output": [item]}) == ""
        assert count_fixed({"output": [item]}) == FRAME + 300


def test_calls_images_and_files_of_the_responses_wire_count_as_elsewhere() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "", "arguments": ""}
    assert count_fixed({"output": [call, call]}) == FRAME + 2 * families.CALL_TOKENS
    for detail in ("low", "high", None):
        ours = {"type": "input_image", "image_url": "https://x/y.png", "detail": detail}
        chats = {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": detail}}
        assert count_fixed({"content": [ours]}) == count_fixed({"content": [chats]})
    file = {"filename": "", "file_data": "data:application/pdf;base64,JVBERi0="}
    assert count_fixed({"content": [{"type": "input_file", **file}]}) == count_fixed(
        {"content": [{"type": "file", "file": file}]}
    )


@pytest.mark.parametrize(
    "native",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"nonsense " * 40,
        b'{"role":"user","content":"\xff\xfe broken"}',
        b'{"role":"user","content":"half \\ud83d"}',
        b'{"role":"user","content":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"role":"user","content":' + b'[{"a":' * 300 + b'"x"' + b"}]" * 300 + b"}",
        b'{"content":{"type":["image"]}}',
        b'{"content":[{"type":"image","source":7},{"type":"file","file":3},{"type":"input_audio"},{"type":"image_url"}]}',
        b'{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,!!"}}]}',
        b'{"content":[{"type":"document","source":{"type":"base64","data":"\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"}}]}',
        b"[1,2.5,true,null]",
    ],
)
def test_odd_json_has_a_count_too(native: bytes) -> None:
    for counter in (Estimator(), Exact()):
        assert 0 < count_message(native, counter) <= 20_000 + len(native)


def test_what_is_not_json_counts_a_quarter_of_its_bytes() -> None:
    assert count_message(b"x" * 4_000, Estimator()) == FRAME + 1_000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
shapes = st.dictionaries(
    st.sampled_from(
        ["role", "content", "type", "source", "data", "image_url", "file", "text", "input", "function", "input_audio"]
    ),
    st.sampled_from(["image", "image_url", "document", "file", "input_audio", "tool_use", "tool_result", "base64"])
    | json_values,
)


@pytest.mark.slow
@given(value=json_values | shapes | st.lists(shapes) | st.fixed_dictionaries({"content": st.lists(shapes)}))
def test_no_message_raises(value: Any) -> None:
    native = json.dumps(value).encode()
    for family in ("o200k", "claude", "gemma"):
        assert count_message(native, Estimator(family)) > 0


@given(native=st.binary())
def test_no_bytes_raise(native: bytes) -> None:
    assert count_message(native, Estimator()) > 0


def test_a_message_of_very_many_values_is_counted_by_its_size_at_last() -> None:
    native = json.dumps({"role": "user", "content": [{"n": i} for i in range(60_000)]}).encode()
    assert len(native) / 10 < count_message(native, Estimator()) < len(native)


# Images and files


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [(512, 512, 255), (1024, 1024, 765), (2048, 4096, 1105), (100, 100, 255), (4096, 8192, 1105)],
)
def test_an_image_counts_by_openais_tiles(width: int, height: int, tokens: int) -> None:
    assert count_image(make_png(width, height), "o200k") == tokens
    assert count_image(make_png(width, height), "o200k", "low") == 85


@pytest.mark.parametrize(
    ("family", "width", "height", "tokens"),
    [
        ("claude3", 1000, 1000, 1334),
        ("claude3", 200, 200, 54),
        ("claude3", 8000, 8000, 1600),
        ("claude", 1000, 1000, 1334),
        ("claude", 8000, 8000, 5000),
        ("gemma", 300, 300, 258),
        ("gemma", 1536, 768, 516),
    ],
)
def test_an_image_counts_by_pixels_elsewhere(family: str, width: int, height: int, tokens: int) -> None:
    assert count_image(make_png(width, height), family) == tokens


JPEG = (
    b"\xff\xd8\xff\xe1"
    + struct.pack(">H", 60_000)
    + bytes(59_998)
    + b"\xff\xc2\0\x11\x08"
    + struct.pack(">HH", 512, 500)
)
HEADERS = {
    "gif": b"GIF89a" + struct.pack("<HH", 500, 512),
    "webp": b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + struct.pack("<HH", 500, 512),
    "webp, lossless": b"RIFF\0\0\0\0WEBPVP8L" + bytes(4) + b"\x2f" + struct.pack("<I", 499 | 511 << 14),
    "webp, extended": b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\xf3\x01\0\xff\x01\0",
    "jpeg": JPEG,
}


@pytest.mark.parametrize("kind", HEADERS)
def test_the_header_of_an_image_tells_its_size(kind: str) -> None:
    data = base64.b64encode(HEADERS[kind] + bytes(64)).decode()
    assert count_image(data, "o200k") == 255
    assert count_image(data, "claude3") == 1 + 500 * 512 // 750


@pytest.mark.parametrize("data", ["AAAA" * 100, "", "****", base64.b64encode(b"\xff\xd8\xff\xd9" + bytes(99)).decode()])
def test_an_image_of_unknown_size_is_taken_for_a_usual_one(data: str) -> None:
    assert count_image(data, "o200k") == 765


def test_an_image_by_its_address_counts_as_a_usual_one() -> None:
    for block in (
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "image_url", "image_url": "https://example.com/a.png"},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
    ):
        assert count_fixed({"role": "user", "content": [block]}) == FRAME + 765


def test_base64_is_never_counted_as_text_even_in_unknown_blocks() -> None:
    data = make_png(512, 512, more=30_000)
    for block in (
        {"type": "new_image", "payload": {"bytes": data}},
        {"type": "new_image", "uri": f"data:image/png;base64,{data}"},
        {"type": "tool_result", "content": [{"type": "image", "source": {"type": "base64", "data": data}}]},
    ):
        message = {"role": "user", "content": [block]}
        assert read_counted_text(message) == ""
        assert count_fixed(message) in (FRAME + 255, FRAME + 255 + families.CALL_TOKENS)


def test_a_pdf_counts_by_its_pages() -> None:
    pages = b"%PDF-1.7 " + b"<< /Type /Pages >> " + b"<< /Type /Page /Parent 1 0 R >> " * 3
    data = base64.b64encode(pages).decode()
    document = {
        "type": "document",
        "title": "A",
        "source": {"type": "base64", "media_type": "application/pdf", "data": data},
    }
    for block in (
        document,
        {"type": "file", "file": {"filename": "A", "file_data": f"data:application/pdf;base64,{data}"}},
        {"type": "file", "file": {"filename": "A", "file_data": data}},
    ):
        message = {"role": "user", "content": [block]}
        assert (read_counted_text(message), count_fixed(message)) == ("A", FRAME + 7_500)
    assert count_fixed({"content": [document]}, "gemma") == 5 + 3 * 258
    squeezed = base64.b64encode(b"%PDF-1.7 " + bytes(250_000)).decode()
    document["source"] = {"type": "base64", "media_type": "application/pdf", "data": squeezed}
    assert count_fixed({"content": [document]}) == FRAME + 4 * 2_500
    assert count_fixed({"content": [{"type": "file", "file": {"file_id": "f"}}]}) == FRAME + 2_500


def test_a_text_file_is_text() -> None:
    data = base64.b64encode("Bögen".encode()).decode()
    block = {"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": data}}
    assert read_counted_text({"content": [block]}) == "Bögen"


def test_audio_counts_by_its_length() -> None:
    wav = b"RIFF\0\0\0\0WAVEfmt " + bytes(12) + struct.pack("<I", 48_000) + bytes(480_000)
    block = {"type": "input_audio", "input_audio": {"data": base64.b64encode(wav).decode(), "format": "wav"}}
    assert count_fixed({"content": [block]}) == FRAME + 101
    assert 5 + 320 <= count_fixed({"content": [block]}, "gemma") <= 5 + 323
    mp3 = {"type": "input_audio", "input_audio": {"data": base64.b64encode(bytes(160_000)).decode(), "format": "mp3"}}
    assert count_fixed({"content": [mp3]}) == FRAME + 101


# Preambles


def practice_plan(days: int, piece: str) -> list[str]:
    """A plan for practising.

    Args:
        days: how many days there are
        piece: what to practise
    """
    return []


def test_a_preamble_is_its_system_text_and_its_tools() -> None:
    exact = Exact("qwen")
    plan = tool(practice_plan)
    assert count_preamble(None, [], exact) == 0
    assert count_preamble("", [], exact) == 0
    assert count_preamble("You teach the violin.", [], exact) == exact.count("You teach the violin.") + 5
    described = exact.count(f"{plan.name}\n{plan.description}\n{plan.schema.decode()}")
    assert count_preamble(None, [plan], exact) == described + families.CALL_TOKENS
    assert count_preamble("S", [plan, plan], exact) > 2 * described


def choose(bow: Literal["baroque", "modern"]) -> str:
    """Choose a bow."""
    return bow


def test_choices_of_a_parameter_are_counted() -> None:
    counter = Characters()
    count_preamble(None, [tool(choose)], counter)
    assert "baroque" in counter.seen
    assert "modern" in counter.seen


def test_openais_models_are_shown_no_json() -> None:
    plan = tool(practice_plan)
    counter = Characters()
    count_preamble(None, [plan], counter)
    assert "{" not in counter.seen
    for word in ("practice_plan", "days", "piece", "what to practise", "integer"):
        assert word in counter.seen
    assert 30 < count_preamble(None, [plan], Exact("o200k")) < count_preamble(None, [plan], Exact("qwen"))


def test_claude_brings_a_system_text_for_tools() -> None:
    plan = tool(practice_plan)
    one, two = (count_preamble(None, [plan] * n, Estimator("claude")) for n in (1, 2))
    assert one - (two - one) == pytest.approx(350, abs=3)


def test_a_counter_that_counts_nothing_is_none() -> None:
    with pytest.raises(InputError, match="must return a positive number"):
        CheckedCounter(Says(0.2))


def test_an_estimate_is_a_number_in_json_too() -> None:
    assert [json.dumps(Estimator().count(text)) for text in ("", ".")] == ["0", "1"]
