"""How many bounds of `solve` have a proof that two checkers find right, by kind, and whether they refuse wrong ones.

Solves bundled and ``crowded`` instances with one thread and proves their bounds as ``jigsaw solve --proof`` does. Each
proof is judged by `check_proof` and by ``proof_referee``, which shares no code with it. Then proofs are mutated: a
number, a name, a list, the bound or the argument is another one, and both checkers have to say the same of each mutant.

    python benchmarks/proofs.py                        all bundled instances and 60 crowded ones, about 12 minutes
    python benchmarks/proofs.py --sets tiny --crowded 0 --mutants 500
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from common import print_table, timed
from proof_referee import fault_of

from jigsaw_opt import certify, check_proof, solve
from jigsaw_opt.documents import encode_instance, encode_plan, encode_proof
from jigsaw_opt.instances import generate, load, names
from jigsaw_opt.problem import Instance
from jigsaw_opt.problem.bound_proof import BoundProof

_OBJECTIVES = ("makespan", "period", "weighted_completion")
_OTHER_NAMES = ("load", "cases", "none", "s0", "s0/1", "another", "makespan", "period")
"""Names that a mutant may have in the place of another: kinds of argument, and servers that many clusters have."""


def main() -> int:
    """Measure and print; exit code 1 where a checker refuses a proof of ours, or the two do not agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", help="bundled sets (default: all)")
    parser.add_argument("--crowded", type=int, default=60, help="number of crowded instances (default: 60)")
    parser.add_argument("--seconds", type=float, default=3, help="time limit of a solve (default: 3)")
    parser.add_argument("--mutants", type=int, default=2000, help="number of mutated proofs (default: 2000)")
    arguments = parser.parse_args()
    proofs, rows, wrong = [], [], 0
    for instance in _instances(arguments.sets, arguments.crowded):
        result, solving = timed(lambda one=instance: solve(one, time_limit=arguments.seconds, threads=1))
        result, proving = timed(lambda one=instance, of=result: certify(one, of, arguments.seconds))
        proof = result.bound_proof
        if not result.certified:
            rows.append((instance, result, None, solving, proving, 0.0, 0.0))
        if proof is None:
            continue
        (fault, checking), (other, reading) = _judged(instance, proof)
        if fault is not None or other is not None:
            print(f"{instance.name}: {fault}, {other}", file=sys.stderr)
            wrong += 1
        proofs.append((instance, proof))
        if result.certified:
            size = _size(encode_proof(proof))
            share = None if result.plan is None else size / _size(encode_plan(result.plan))
            rows.append((instance, result, (proof.argument["kind"], size, share), solving, proving, checking, reading))
    _print_shares(rows)
    return int(bool(wrong + _mutate(proofs, arguments.mutants)))


def _instances(sets: list[str] | None, crowded: int) -> Iterator[Instance]:
    yield from (load(name) for name in names() if sets is None or name.partition("/")[0] in sets)
    for seed in range(crowded):
        yield generate("crowded", seed, objective=_OBJECTIVES[seed % 3])


def _judged(instance: Instance, proof: BoundProof) -> tuple[tuple[object, float], tuple[object, float]]:
    """Return what each checker says of a proof, None for right, and its CPU seconds."""
    read = json.loads(encode_instance(instance)), json.loads(encode_proof(proof))
    return timed(lambda: check_proof(instance, proof)), timed(lambda: fault_of(*read))


def _size(document: bytes) -> int:
    """Return the bytes of a JSON document without blanks."""
    return len(json.dumps(json.loads(document), separators=(",", ":")))


def _print_shares(rows: list[Any]) -> None:
    """Print, by kind of proof or by whose word a bound is, how many there are, how large, and how long they take."""
    kinds: dict[str, list[Any]] = {}
    for row in rows:
        kinds.setdefault(row[2][0] if row[2] else f"by {row[1].bound_by}", []).append(row)
    table = []
    for kind, own in sorted(kinds.items(), key=lambda each: -len(each[1])):
        sizes = sorted(row[2][2] for row in own if row[2] and row[2][2] is not None)
        slower = sum(row[5] > row[3] + row[4] for row in own)
        largest = f"{sizes[-1]:.2f}" if sizes else "-"
        seconds = (f"{max(row[k] for row in own):.2f}" for k in (3, 4, 5, 6))
        table.append((kind, len(own), f"{len(own) / len(rows):.1%}", largest, *seconds, slower))
    heads = (
        "bound",
        "instances",
        "share",
        "largest proof / plan",
        "solve s",
        "prove s",
        "check s",
        "referee s",
        "slower checks",
    )
    print_table(heads, table)
    certified = [row for row in rows if row[2]]
    optima = [row for row in rows if row[1].status == "optimal"]
    print(f"\ncertified bounds {len(certified)} of {len(rows)} ({len(certified) / max(1, len(rows)):.1%}), ", end="")
    print(f"certified optima {sum(bool(row[2]) for row in optima)} of {len(optima)}")
    others = [f"{row[0].name} ({row[1].bound_by})" for row in rows if not row[2]]
    print(f"not certified: {', '.join(others) or 'none'}")


def _mutate(proofs: list[tuple[Instance, BoundProof]], count: int) -> int:
    """Judge mutated proofs; return on how many the checkers do not agree."""
    draw, said, apart = random.Random(80), Counter[str](), 0
    for _ in range(count if proofs else 0):
        instance, proof = draw.choice(proofs)
        argument = json.loads(encode_proof(proof))["argument"]
        way = draw.choice(("field", "field", "field", "bound", "argument"))
        if way == "field":
            argument = _changed(argument, draw)
            mutant = replace(proof, argument=argument)
        elif way == "bound":
            bound = proof.bound or 0
            mutant = replace(proof, bound=draw.choice((bound + 1, bound + 2, bound + bound // 100 + 1, None)))
        else:
            mutant = replace(proof, argument=draw.choice(proofs)[1].argument)
        if mutant == proof:
            continue
        (fault, _), (reading, _) = _judged(instance, mutant)
        said["refused" if fault is not None else "still right, and of the same bound"] += 1
        if (fault is None) != (reading is None):
            print(f"{instance.name}: {fault}, {reading}", file=sys.stderr)
            apart += 1
    print(
        f"mutated proofs: {', '.join(f'{number} {word}' for word, number in said.items())}; {apart} judged differently"
    )
    return apart


def _changed(value: Any, draw: random.Random) -> Any:
    """Return JSON with one value changed, wherever it is."""
    places = list(_places(value))
    holder, key = draw.choice(places)
    old = holder[key]
    if isinstance(holder, list) and draw.random() < 0.3:
        del holder[key]
    elif isinstance(old, int):
        holder[key] = old + draw.choice((-1, 1, 7, -old, old, 10**6))
    elif isinstance(old, str):
        holder[key] = draw.choice(_OTHER_NAMES)
    elif isinstance(holder, dict):
        del holder[key]
    else:
        holder[key] = 0
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each entry of a list or field of an object, as its holder and where it stands there."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in list(inside):
        yield value, key
        yield from _places(entry)


if __name__ == "__main__":
    raise SystemExit(main())
