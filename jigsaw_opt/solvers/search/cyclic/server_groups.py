"""Groups of servers that are timed apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.solvers.placement.assignment import ProblemData
from jigsaw_opt.solvers.placement.candidates import by_type
from jigsaw_opt.solvers.search.cyclic.candidate_table import CandidateSet, CandidateTable


def groups_of(data: ProblemData) -> list[list[int]]:
    """Return groups of servers near one another, with room for the widest job, as small as possible.

    A rack is split into groups of as many servers as the widest job needs, rounded up to a power of two. Smaller racks
    and parts of racks are merged.
    """
    layout = data.layout
    need = max(ceil_div(job.slots, min(map(len, layout.on_server))) for job in data.operations.jobs)
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


def repartitioned(groups: Sequence[Sequence[int]], candidate_table: CandidateTable, longest: int) -> list[list[int]]:
    """Return the groups, partitioned anew for jobs that are fast enough only on servers of several groups.

    Such servers, of as few groups as may be, become a group of their own, and what is left of the others too. Jobs go
    to one as long as their transfers find time there.

    `longest`: how long a job may take, in microseconds; one that nowhere takes so little may go where it is fastest.
    """
    found = [list(group) for group in groups]
    reach = {server: number for number, group in enumerate(found) for server in group}

    def groups_at(candidate_set: CandidateSet) -> set[int]:
        return {reach[server] for server in candidate_set.servers}

    whole = set(range(len(found)))
    spent: dict[tuple[int, ...], int] = {}
    for fast in _without_group(candidate_table, longest, groups_at):
        candidate_set = next((b for b in fast if b.servers in spent and spent[b.servers] + b.exchange <= longest), None)
        if candidate_set is None:
            apart = [b for b in fast if groups_at(b) <= whole]
            if not apart:
                continue
            candidate_set = min(apart, key=lambda b: len(groups_at(b)))
            cut = sorted(groups_at(candidate_set))
            whole.difference_update(cut)
            left = [[server for server in found[number] if server not in candidate_set.servers] for number in cut]
            for number in cut:
                found[number] = []
            found += [list(candidate_set.servers), *_together(left, max(map(len, groups)))]
            spent[candidate_set.servers] = 0
        spent[candidate_set.servers] += candidate_set.exchange
    return [group for group in found if group]


def fast_enough(candidate_sets: Sequence[CandidateSet], longest: int) -> list[CandidateSet]:
    """Return the candidate sets at which a job takes no longer than it may, or else its fastest ones."""
    most = max(longest, min((candidate_set.length for candidate_set in candidate_sets), default=0))
    return [candidate_set for candidate_set in candidate_sets if candidate_set.length <= most]


def _together(parts: Sequence[list[int]], size: int) -> list[list[int]]:
    """Return parts of groups merged as long as they are no larger than a group."""
    found: list[list[int]] = []
    for part in parts:
        if found and len(found[-1]) + len(part) <= size:
            found[-1] += part
        else:
            found.append(part)
    return found


def _without_group(
    candidate_table: CandidateTable, longest: int, groups_at: Callable[[CandidateSet], set[int]]
) -> list[list[CandidateSet]]:
    """Return, for each job without a fast enough candidate set in one group, the sets that span several groups.

    Jobs of most transfers come first.
    """
    known: dict[int, list[CandidateSet]] = {}
    for candidate_sets in map(candidate_table.of, range(len(candidate_table.data.operations.jobs))):
        if id(candidate_sets) not in known:
            fast = fast_enough(candidate_sets, longest)
            known[id(candidate_sets)] = fast if all(len(groups_at(candidate_set)) > 1 for candidate_set in fast) else []
    found = [known[id(candidate_table.of(index))] for index in range(len(candidate_table.data.operations.jobs))]
    return sorted(filter(None, found), key=lambda fast: -fast[0].exchange)
