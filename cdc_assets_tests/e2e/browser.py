"""A headless browser that shows Dagster's pages, as text and as pictures."""

import shutil
import subprocess
from pathlib import Path

SHOWN = ("graph", "capture", "backfill")
"""Pages whose pictures the documentation shows, in `docs/_images`; `CDC_SCREENSHOTS` names the folder to write them to."""
WIDTH, HEIGHT = 1600, 1000
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def browse(url: str, folder: Path, *options: str) -> str:
    """Let the browser run a page for a while; returns what it prints."""
    browser = next(filter(None, map(shutil.which, _NAMES)), None)
    assert browser, "There is no Chromium on this machine. Next: make setup-browser"
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}",
        f"--window-size={WIDTH},{HEIGHT}", "--virtual-time-budget=25000", "--timeout=40000", *options, url,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
