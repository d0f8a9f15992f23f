"""A live scheduler whose process is killed again and again, and goes on as if nothing had been.

Run it as ``python benchmarks/live_kills.py [--events N] [--kills K] [--policy P] [--seed S]``.
A child process feeds the random events of `live_soak` to a scheduler. It writes its state now and then, and each entry
of its journal, with a hash of all changes up to there, before it carries a change out. The parent kills it with
SIGKILL at K random moments and starts another, which restores the state and replays the journal. In the end the hash
of all changes is compared with that of a run that nobody has killed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from live_soak import Soak

from jigsaw_opt.documents import write_atomically

STATE_EVERY = 100


def whole(policy: str, events: int, seed: int) -> str:
    """The hash of all changes of a run that nobody kills."""
    soak = Soak(policy, 200, seed)
    for _ in range(events):
        soak.live.handle(soak.event())
        soak.carry_out(soak.live.step(soak.now_us))
        soak.check()
    return soak.hash.hexdigest()


def child(folder: Path, policy: str, events: int, seed: int) -> None:
    """Go on from what the folder holds to the last event; says how many entries of the journal were replayed."""
    soak, journal = Soak(policy, 200, seed), folder / "journal"
    done = from_state = 0
    state = json.loads((folder / "state").read_text()) if (folder / "state").exists() else None
    lines = [json.loads(line) for line in whole_lines(journal)]
    if state is not None:
        soak.live.restore(state["scheduler"])
        from_state = state["done"]
    for number, line in enumerate(lines):  # the program carries out again what it may have forgotten
        soak.event()
        if number < from_state:
            change_hash = line["change"]
        else:
            soak.live.replay(line["event"])
            change = soak.live.replay(line["step"])
            assert change is not None
            change_hash = repr((change.stops, change.moves, change.starts))
            assert change_hash == line["change"], f"event {number} is decided otherwise after a kill"
        soak.hash.update(change_hash.encode())
        done = number + 1
    print(f"replayed {len(lines) - from_state} of {len(lines)}", file=sys.stderr, flush=True)
    entries: list[object] = []
    soak.live._journal = entries.append
    with journal.open("a") as out:
        while done < events:
            soak.live.handle(soak.event())
            change = soak.live.step(soak.now_us)
            text = repr((change.stops, change.moves, change.starts))
            out.write(json.dumps({"event": entries[0], "step": entries[1], "change": text}) + "\n")
            out.flush()
            os.fsync(out.fileno())
            entries.clear()
            soak.hash.update(text.encode())
            done += 1
            if done % STATE_EVERY == 0:
                write_atomically(folder / "state", json.dumps({"done": done, "scheduler": soak.live.state()}).encode())
                entries.clear()
    print(soak.hash.hexdigest())


def whole_lines(journal: Path) -> list[str]:
    """The lines of a journal; half a line that a kill has left at its end is cut off."""
    if not journal.exists():
        return []
    text = journal.read_text()
    kept = text[: text.rfind("\n") + 1]
    journal.write_text(kept)
    return kept.splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=30_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--policy", default="srtf")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child is not None:
        child(asked.child, asked.policy, asked.events, asked.seed)
        return
    began = time.monotonic()
    wanted, draw = whole(asked.policy, asked.events, asked.seed), random.Random(asked.seed)
    longest = (time.monotonic() - began) / asked.kills
    with tempfile.TemporaryDirectory() as name:
        own = ["--events", str(asked.events), "--policy", asked.policy, "--seed", str(asked.seed), "--child", name]
        kills = 0
        while True:
            running = subprocess.Popen([sys.executable, __file__, *own], stdout=subprocess.PIPE, text=True)
            try:
                wait = 1.0 + draw.uniform(0, longest) if kills < asked.kills else None
                found = running.communicate(timeout=wait)[0].strip()
                break
            except subprocess.TimeoutExpired:
                running.kill()
                running.communicate()
                kills += 1
    print(f"{asked.policy}: {asked.events} events, {kills} times killed; the same changes: {found == wanted}")
    assert found == wanted, "a kill has changed a decision"


if __name__ == "__main__":
    main()
