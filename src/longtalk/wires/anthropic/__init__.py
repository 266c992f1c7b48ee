"""The grammar of Anthropic's Messages API: `wire.py` implements `Wire`, `stream.py` reads streamed answers."""
