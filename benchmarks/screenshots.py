"""Pictures of the pages that the program writes, for docs/pictures.md.

``python benchmarks/screenshots.py docs`` makes the pages by the program and opens them in Chromium (Debian's chromium
and chromium-driver, selenium of the extra ``dev``). It ends with a message where one of these is missing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

SIMULATION = ("--workload", "day", "--cluster", "1x4:v100")
PAGES = {
    "timeline": ("plot.html", "plot server/plain plan.json -o plot.html"),
    "simulation": ("one/report.html", f"simulate {' '.join(SIMULATION)} --policy las -q -o one"),
    "sweep": ("several/report.html", f"simulate {' '.join(SIMULATION)} --policy fifo las srtf --sweep -q -o several"),
    "bench": ("bench/report.html", "bench server --solvers greedy,cpsat --time-limits 1 -q -o bench"),
}
"""By the name of the picture: the page, and the command that writes it."""


def main(folder: Path) -> None:
    """Write a picture of every page into a folder."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    missing += [] if find_spec("selenium") else ["selenium"]
    if missing:
        sys.exit(f"needs {', '.join(missing)}: Debian's chromium and chromium-driver, and the extra dev")
    with TemporaryDirectory() as work:
        _run("solve server/plain --time-limit 5 -q -o plan.json", work)
        for name, (page, command) in PAGES.items():
            _run(command, work)
            _photograph(Path(work, page), folder / f"page-{name}.png")


def _run(command: str, folder: str) -> None:
    subprocess.run([sys.executable, "-m", "jigsaw_opt", *command.split()], cwd=folder, check=True, capture_output=True)


def _photograph(page: Path, picture: Path) -> None:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in ("headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1100,640"):
        options.add_argument(f"--{flag}")
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(shutil.which("chromedriver"))))
    try:
        chrome.get(page.resolve().as_uri())
        chrome.save_screenshot(str(picture))
    finally:
        chrome.quit()
    print(f"{picture}: {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
