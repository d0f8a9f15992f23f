"""Groups of servers that are timed apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.solvers.search.candidates import by_type
from jigsaw_opt.solvers.search.cyclic.candidate_table import Berth, Catalogue
from jigsaw_opt.solvers.search.loads import Ground

__all__ = ["fast_enough", "groups_of", "regrouped"]


def groups_of(ground: Ground) -> list[list[int]]:
    """Servers near one another, in groups with room for the widest job, as small as may be.

    A rack is cut into groups of as many servers as the widest job needs, rounded up to a power of two; racks and parts
    of racks that are smaller go together.
    """
    layout = ground.layout
    need = max(ceil_div(job.slots, min(map(len, layout.on_server))) for job in ground.pieces.jobs)
    size = 1 << (need - 1).bit_length()
    found: list[list[int]] = []
    seen: set[int] = set()
    for server in range(len(layout.servers)):
        if server in seen:
            continue
        rack = by_type(layout, sorted({s for ring in layout.near(server)[:2] for s in ring} - seen))
        seen.update(rack)
        for at in range(0, len(rack), size):
            part = rack[at : at + size]
            if found and min(len(part), len(found[-1])) < size:
                found[-1] += part
            else:
                found.append(part)
    return found


def regrouped(groups: Sequence[Sequence[int]], catalogue: Catalogue, longest: int) -> list[list[int]]:
    """Groups cut anew for jobs that are fast enough on no servers of one group, but on some of several.

    Such servers, of as few groups as may be, become a group of their own, and what is left of the others too. Jobs go
    to one as long as their transfers find time there.

    Parameters
    ----------
    groups
        As `groups_of` makes them.
    catalogue
        All berths.
    longest
        How long a job may take, in microseconds; one that nowhere takes so little may go where it is fastest.
    """
    found = [list(group) for group in groups]
    reach = {server: number for number, group in enumerate(found) for server in group}

    def groups_at(berth: Berth) -> set[int]:
        return {reach[server] for server in berth.servers}

    whole = set(range(len(found)))
    spent: dict[tuple[int, ...], int] = {}
    for fast in _homeless(catalogue, longest, groups_at):
        berth = next((b for b in fast if b.servers in spent and spent[b.servers] + b.exchange <= longest), None)
        if berth is None:
            apart = [b for b in fast if groups_at(b) <= whole]
            if not apart:
                continue
            berth = min(apart, key=lambda b: len(groups_at(b)))
            cut = sorted(groups_at(berth))
            whole.difference_update(cut)
            left = [[server for server in found[number] if server not in berth.servers] for number in cut]
            for number in cut:
                found[number] = []
            found += [list(berth.servers), *_together(left, max(map(len, groups)))]
            spent[berth.servers] = 0
        spent[berth.servers] += berth.exchange
    return [group for group in found if group]


def fast_enough(berths: Sequence[Berth], longest: int) -> list[Berth]:
    """Berths at which a job takes no longer than it may, or else its fastest ones."""
    most = max(longest, min((berth.length for berth in berths), default=0))
    return [berth for berth in berths if berth.length <= most]


def _together(parts: Sequence[list[int]], size: int) -> list[list[int]]:
    """Parts of groups put together as long as they are no larger than a group."""
    found: list[list[int]] = []
    for part in parts:
        if found and len(found[-1]) + len(part) <= size:
            found[-1] += part
        else:
            found.append(part)
    return found


def _homeless(catalogue: Catalogue, longest: int, groups_at: Callable[[Berth], set[int]]) -> list[list[Berth]]:
    """Of each job for which all berths that are fast enough are in several groups, these berths.

    Jobs of most transfers come first.
    """
    known: dict[int, list[Berth]] = {}
    for berths in map(catalogue.of, range(len(catalogue.ground.pieces.jobs))):
        if id(berths) not in known:
            fast = fast_enough(berths, longest)
            known[id(berths)] = fast if all(len(groups_at(berth)) > 1 for berth in fast) else []
    found = [known[id(catalogue.of(index))] for index in range(len(catalogue.ground.pieces.jobs))]
    return sorted(filter(None, found), key=lambda fast: -fast[0].exchange)
