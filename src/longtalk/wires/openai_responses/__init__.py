"""The grammar of OpenAI's Responses API: `wire.py` implements `Wire` with the help of the other modules."""
