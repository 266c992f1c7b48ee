"""The grammar of OpenAI's Chat Completions API: `wire.py` implements `Wire` with the help of the other modules."""
