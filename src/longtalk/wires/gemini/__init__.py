"""The grammar of the Gemini API: `wire.py` implements `Wire` with the help of the other modules."""
