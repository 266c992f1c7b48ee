"""Benchmarks: `python -m bench.NAME`. Each prints its figures, and in its last line its goals as a JSON object."""
