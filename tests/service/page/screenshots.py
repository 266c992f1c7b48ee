"""Take the pictures of the page that README and docs show: `make screenshots`.

The service runs on the sample conversation, in memory, and no model is called.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from longtalk.service.app import create_app
from longtalk.service.settings import Settings
from longtalk.stores.in_memory import InMemory
from tests.service.conftest import Served
from tests.service.page.browser import Visit, start_chromium

PHONE = {"viewport": {"width": 390, "height": 760}, "device_scale_factor": 2}
PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "page-chat.png": ("#/c/sample-violin", {"color_scheme": "light"}),
    "page-inspector.png": ("#/c/sample-violin/inspector", {"color_scheme": "light"}),
    "page-dark.png": ("#/c/sample-violin/inspector", {"color_scheme": "dark"}),
    "page-memory.png": ("#/c/sample-violin/memory", {"color_scheme": "light"}),
    "page-costs.png": ("#/c/sample-violin/money", {"color_scheme": "light"}),
    "page-phone.png": ("#/c/sample-violin", PHONE),
}
"""The file of each picture: what it shows, and the settings of the browser."""


def main(folder: Path) -> None:
    """Write all pictures to a folder."""
    served = Served(create_app(Settings(), store=InMemory()))
    try:
        with start_chromium() as browser:
            for name, (address, settings) in PICTURES.items():
                visit = Visit(browser, served.url, **settings)
                visit.page.get_by_role("button", name="Open a sample conversation").click()
                visit.page.wait_for_url("**/inspector")
                visit.page.goto(f"{served.url}/{address}")
                visit.page.reload()
                if address.endswith("inspector"):
                    visit.page.get_by_text("Every message, and why").wait_for()
                elif address.endswith("money"):
                    visit.page.get_by_role("button", name="Compare policies").click()
                    visit.page.locator(".policies .best").wait_for()
                visit.page.wait_for_timeout(1500)
                visit.page.screenshot(path=folder / name)
                visit.close()
    finally:
        served.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
