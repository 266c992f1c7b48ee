"""The sample conversation: some months between an adult who learns the violin and an assistant, under `Memory`.

It was written by hand and played by a scripted model (`tools/make_sample.py`). Its usage and costs are estimates at the
prices of a real model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from longtalk.stores.base import Store
    from longtalk.transfer.load import ImportResult

SAMPLE_ID = "sample-violin"
"""The id of the sample conversation."""


def load_sample() -> bytes:
    """Return the sample conversation as an export, which `archive.load` imports.

    Its metadata has a title that says that it is a sample, and `sample` is True.
    """
    import gzip
    from importlib.resources import files

    return gzip.decompress((files("longtalk.transfer") / "data" / "sample.json.gz").read_bytes())


def import_sample(store: Store, owner: str) -> ImportResult:
    """Import the sample conversation, or leave it as it is if the owner has it, also where it was changed."""
    from longtalk.transfer.importers import import_source
    from longtalk.transfer.load import ImportResult, make_outcome
    from longtalk.transfer.restore import read_complete

    if (there := read_complete(store, owner, SAMPLE_ID, dry_run=True)) is not None:
        return ImportResult((make_outcome(there, "here", owner),))
    return import_source(load_sample(), store, owner)
