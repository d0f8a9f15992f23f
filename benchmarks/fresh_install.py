"""Install a wheel on an empty Debian without a compiler: seconds and megabytes up to the first picture.

Run ``make dist && python benchmarks/fresh_install.py out/dist/*.whl``. It takes a container where Docker runs, else for
root a folder made by debootstrap, else a fresh environment of this Python, and says which. It ends with exit code 1 if
this takes longer or more than promised, or if a user without write access is warned or changes the package.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from common import line

MOST_SECONDS, MOST_MEGABYTES = 60, 500
PYTHON = (
    "export DEBIAN_FRONTEND=noninteractive && apt-get update -qq"
    " && apt-get install -qq --no-install-recommends python3 python3-venv && useradd -m second"
)
SOLVE = "jigsaw solve server/demo --time-limit 20 --timeline -o plan.json"
PICTURE = "jigsaw plot server/demo plan.json -o plan.png"
# A limit of work makes the search take the same steps each time, so that its seconds compare its speed.
SAME_STEPS = "jigsaw solve rack/oversubscribed --solver search --threads 1 --work-limit 0.5 --quiet -o same.json"


@dataclass(frozen=True)
class Place:
    """Where a wheel is installed.

    Parameters
    ----------
    name: What kind of place it is.
    folder: Where the environment and the files of the first user are.
    homes: By user, where its commands begin.
    enter: By user, what stands before a command so that it runs there.
    put: Copy a file into `folder`.
    """

    name: str
    folder: str
    homes: dict[str, str]
    enter: dict[str, list[str]]
    put: Callable[[Path], object]

    def run(self, command: str, user: str = "root", **settings: str) -> tuple[str, float]:
        """Return what a line of the shell printed, and its seconds; end the program if it fails."""
        home = self.homes[user]
        settings = {"HOME": home, "PATH": f"{self.folder}/jigsaw/bin:/usr/sbin:/usr/bin:/sbin:/bin", **settings}
        words = [*self.enter[user], "env", "-i", *(f"{name}={value}" for name, value in settings.items())]
        words += ["sh", "-c", f"cd {shlex.quote(home)} && {command}"]
        began = perf_counter()
        done = subprocess.run(
            words, check=False, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if done.returncode:
            raise SystemExit(f"{command}: exit code {done.returncode}\n{done.stdout}")
        return done.stdout, perf_counter() - began


@contextmanager
def empty_place() -> Iterator[Place]:
    """Make the emptiest place that this machine has, and remove it at the end."""
    homes = {"root": "/opt", "second": "/home/second"}
    with tempfile.TemporaryDirectory(prefix="jigsaw-fresh-") as made:
        folder = Path(made)
        folder.chmod(0o755)  # for the second user
        if (
            shutil.which("docker")
            and subprocess.run(["docker", "info"], check=False, capture_output=True).returncode == 0
        ):
            start = ["docker", "run", "--detach", "--rm", "debian:stable-slim", "sleep", "infinity"]
            number = subprocess.run(start, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
            enter = {user: ["docker", "exec", "--user", user, number] for user in homes}
            try:
                yield Place(
                    "container", "/opt", homes, enter, lambda path: _call("docker", "cp", path, f"{number}:/opt")
                )
            finally:
                _call("docker", "kill", number)
        elif shutil.which("debootstrap") and os.geteuid() == 0:
            _call("debootstrap", "--variant=minbase", "stable", folder)
            shutil.copy("/etc/resolv.conf", folder / "etc")
            enter = {user: ["chroot", f"--userspec={user}", made] for user in homes}
            yield Place("folder by debootstrap", "/opt", homes, enter, lambda path: shutil.copy(path, folder / "opt"))
        else:
            name = "fresh environment, no Docker and no debootstrap"
            yield Place(name, made, {"root": made}, {"root": []}, lambda path: shutil.copy(path, folder))


def _call(*words: str | Path) -> None:
    subprocess.run(list(map(str, words)), check=True, stdout=subprocess.DEVNULL)


def pip_settings(place: Place) -> dict[str, str]:
    """Return where pip finds packages on this machine, with its certificates copied."""
    kept = ("PIP_INDEX_URL", "PIP_CERT", "http_proxy", "https_proxy", "no_proxy")
    settings = {name: os.environ[name] for name in kept if name in os.environ}
    if "PIP_CERT" in settings:
        place.put(Path(settings["PIP_CERT"]))
        settings["PIP_CERT"] = f"{place.folder}/{Path(settings['PIP_CERT']).name}"
    return settings


def measure(place: Place, wheel: Path) -> list[str]:
    """Print the table, and return what is not as promised."""
    python = "python3" if "second" in place.homes else sys.executable
    if python == "python3":
        place.run(PYTHON)
    place.put(wheel)
    system, _ = place.run(f"uname -sm; {python} --version; command -v cc gcc clang || echo no C compiler")
    print(f"{place.name}: {', '.join(system.splitlines())}\n")
    print(line(("step", "seconds", "MB")) + "\n" + line(("---", "---:", "---:")))

    asked = shlex.quote(f"{place.folder}/{wheel.name}[plot]")
    install = f"{python} -m venv {place.folder}/jigsaw && jigsaw/bin/pip install --no-cache-dir {asked}"
    _, total = place.run(install, **pip_settings(place))
    megabytes = int(place.run(f"du -sm {place.folder}/jigsaw")[0].split()[0])
    print(line(("`pip install` of the wheel with `plot`", f"{total:.1f}", megabytes)))
    installed = package_files(place)
    for name, command in (("first solve", SOLVE), ("first picture", PICTURE)):
        _, seconds = place.run(command)
        print(line((name, f"{seconds:.1f}", "")))
        total += seconds
    print(line((f"together, {MOST_SECONDS} s and {MOST_MEGABYTES} MB at most", f"{total:.1f}", megabytes)))
    exceeded = total > MOST_SECONDS or megabytes > MOST_MEGABYTES
    return ["it takes longer or more than promised"] * exceeded + problems_in_use(place, installed)


def problems_in_use(place: Place, installed: list[str]) -> list[str]:
    """Print the seconds of later solves and those of another user, and return what is not as promised."""
    repeated = [place.run(f"{SAME_STEPS} && grep -v '\"seconds\"' same.json | cksum") for _ in range(10)]
    for name, (_, seconds) in (("first", repeated[0]), ("tenth", repeated[-1])):
        print(line((f"{name} solve of the same steps", f"{seconds:.1f}", "")))
    plans = {printed.splitlines()[-1] for printed, _ in repeated}
    wrong = [] if len(plans) == 1 else ["the same steps made other plans"]
    others = (("solve", SOLVE), ("picture", PICTURE)) if "second" in place.homes else ()
    for name, command in others:
        printed, seconds = place.run(command, "second")
        print(line((f"{name} of another user", f"{seconds:.1f}", "")))
        wrong += [f"another user is warned: {each}" for each in re.findall(r"(?im)^.*warning.*$", printed)]
    return wrong if package_files(place) == installed else [*wrong, "the commands changed the installed files"]


def package_files(place: Place) -> list[str]:
    """Return checksum, size and path of every installed file."""
    return sorted(place.run(f"find {place.folder}/jigsaw -type f -exec cksum {{}} +")[0].splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args().wheel
    if not wheel.is_file():
        parser.error(f"there is no file {wheel}")
    with empty_place() as place:
        wrong = measure(place, wheel)
    for each in wrong:
        print(each, file=sys.stderr)
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
