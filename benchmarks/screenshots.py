"""Pictures of the pages that the program writes, for the pages in ``docs/``.

``python benchmarks/screenshots.py docs`` makes the pages by the program and opens them in Chromium (Debian's chromium
and chromium-driver, selenium of the extra ``dev``). It ends with a message where one of these is missing. Pages that
cannot be made are named and left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PROGRAM = [sys.executable, "-m", "jigsaw_opt"]
PLAYED_S, WATCHED_S = 15, 6  # a demonstration has a queue by then, and its page has asked when jobs start
MEASURED = "--solvers greedy,cpsat --time-limits 1 --certify 2"
WEEK = "--workload week --cluster 2x4:v100 --failures mtbf=20,mttr=1 --seeds 0,1,2"
LONG = "--job long:resnet50:4:3h --job other:vgg16:2:2h --job late:resnet50:1:5h --job more:vgg16:8:40min"


class Page(NamedTuple):
    """A page, the commands that write it or, without a path, serve it, and the height of the window that shows it."""

    path: str
    commands: tuple[str, ...]
    height: int = 640


PLAN = "solve server/weighted --time-limit 5 -q -o plan.json"
PAGES = {
    "timeline": Page("plot.html", (PLAN, "plot server/weighted plan.json -o plot.html")),
    "phases": Page(
        "long.html",
        (
            f"new --cluster 2x4:v100 {LONG} -o long.json",
            "solve long.json --solver phased --time-limit 5 -o long.plan.json",
            "plot long.json long.plan.json -o long.html",
        ),
        height=960,
    ),
    "failures": Page("failures.html", (PLAN, "failures server/weighted plan.json -o failures.html")),
    "simulation": Page("one/report.html", ("simulate --workload day --cluster 2x4:v100 --policy las -q -o one",)),
    "sweep": Page("several/report.html", (f"simulate {WEEK} --policy fifo las srtf --sweep -q -o several",)),
    "advice": Page("advice/advice.html", ("advise day --cluster 1x4:v100 --seeds 0,1 -q -o advice",)),
    "cluster": Page("", ("serve --demo --port 0",), height=760),
    "bench": Page(
        "bench/report.html", ("bench server --solvers greedy,cpsat --time-limits 1 --certify 2 -q -o bench",)
    ),
}
"""By the name of the picture."""


def main() -> None:
    """Write a picture of every page into a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=PAGES, action="append")
    arguments = parser.parse_args()
    missing = [name for name in ("chromium", "chromedriver", "selenium") if not (shutil.which(name) or find_spec(name))]
    if missing:
        sys.exit(f"needs {', '.join(missing)}: Debian's chromium and chromium-driver, and the extra dev")
    os.environ["PYTHONPATH"] = str(ROOT)
    for name in arguments.only or PAGES:
        page, picture = PAGES[name], arguments.folder / f"page-{name}.png"
        with TemporaryDirectory() as work, ExitStack() as after:
            if not page.path:
                words = [*PROGRAM, *page.commands[0].split()]
                service = subprocess.Popen(words, cwd=work, stderr=subprocess.PIPE, text=True)
                after.callback(service.communicate)
                after.callback(service.terminate)
                address = next(iter(service.stderr or ())).split()[-1]
                time.sleep(PLAYED_S)
                _photograph(address, picture, page.height, WATCHED_S)
                continue
            wrong = next(filter(None, (_run(command, work) for command in page.commands)), "")
            path = Path(work, page.path)
            if wrong or not path.is_file():
                print(f"{name}: no page: {wrong or 'not written'}")
                continue
            _photograph(path.resolve().as_uri(), picture, page.height)


def _run(command: str, folder: str) -> str:
    """The last line of what went wrong; empty where nothing did."""
    done = subprocess.run([*PROGRAM, *command.split()], cwd=folder, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def _photograph(address: str, picture: Path, height: int, watched_s: float = 0) -> None:
    from PIL import Image
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in ("headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", f"window-size=1100,{height}"):
        options.add_argument(f"--{flag}")
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(shutil.which("chromedriver"))))
    try:
        chrome.get(address)
        time.sleep(watched_s)
        shown = Image.open(BytesIO(chrome.get_screenshot_as_png()))
    finally:
        chrome.quit()
    shown.convert("RGB").quantize(128).save(picture, optimize=True)
    print(f"{picture}: {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
