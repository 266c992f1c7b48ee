"""The HTTP service: conversations for any OpenAI client, over any provider and store.

from longtalk.service import Settings, create_app

app = create_app(Settings(default_model="ollama:llama3.2"))
"""

from typing import TYPE_CHECKING, Any

from longtalk.service.settings import Settings as Settings

if TYPE_CHECKING:
    from longtalk.service.app import create_app as create_app


def __getattr__(name: str) -> Any:
    """Import the application, which needs the extra `serve`, when it is first used."""
    if name != "create_app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from longtalk.service.app import create_app

    return create_app
