"""Benchmarks: `python -m bench.NAME`. Each prints its figures, and its goals as JSON."""
