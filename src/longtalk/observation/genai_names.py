"""Names of OpenTelemetry's conventions for generative AI, as of November 2026.

The conventions (https://github.com/open-telemetry/semantic-conventions-genai) are in development, so their names may
change. All names that Longtalk uses are here.
"""

from __future__ import annotations

# Attributes
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
CONVERSATION = "gen_ai.conversation.id"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
ERROR = "error.type"

# Attributes with content, which are JSON
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
TEXT_PART = "text"
CALL_PART = "tool_call"
RESULT_PART = "tool_call_response"

# Operations
CHAT = "chat"
EXECUTE_TOOL = "execute_tool"
INVOKE_AGENT = "invoke_agent"

# Metrics, with the boundaries of buckets that the conventions recommend
TOKEN_USAGE = "gen_ai.client.token.usage"  # noqa: S105
TOKEN_BUCKETS = tuple(4**i for i in range(14))
OPERATION_DURATION = "gen_ai.client.operation.duration"
TURN_DURATION = "gen_ai.invoke_agent.duration"
TOOL_DURATION = "gen_ai.execute_tool.duration"
SECONDS_BUCKETS = tuple(round(0.01 * 2**i, 2) for i in range(14))

# What the conventions have no name for
TURN_ID = "longtalk.turn.id"
IS_SUMMARY = "longtalk.summary"
INTERRUPTED = "longtalk.interrupted"
COMPACTION = "longtalk.compaction"
RETRY = "longtalk.retry"
RETRY_WAIT = "longtalk.retry.wait"

_PROVIDERS = {"openai-chat": "openai", "gemini": "gcp.gemini", "mistral": "mistral_ai", "xai": "x_ai"}


_FINISHES = {"calls": "tool_call", "filtered": "content_filter", "failed": "error"}


def name_finish(finish: str) -> str:
    """Return the conventions' name of the reason why an answer ended, or our own name if they have none."""
    return _FINISHES.get(finish, finish)


def name_provider(provider: str) -> str:
    """Return the conventions' name of a provider, or the provider's own name if they have none."""
    return _PROVIDERS.get(provider, provider)
