"""The sample conversation: some months between an adult who learns the violin and an assistant, under `Memory`.

It was written by hand and played by a scripted model (`tools/make_sample.py`). Its usage and costs are estimates at the
prices of a real model.
"""

from __future__ import annotations


def load_sample() -> bytes:
    """Return the sample conversation as an export, which `archive.load` imports.

    Its metadata has a title that says that it is a sample, and `sample` is True.
    """
    import gzip
    from importlib.resources import files

    return gzip.decompress((files("longtalk.transfer") / "data" / "sample.json.gz").read_bytes())
