"""Flat lists of integers, or arrays, in which `timing` and `compression` read placed jobs and leave a schedule.

A piece of a list that belongs to a job begins at the job's offset.
"""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers

__all__ = ["Filled", "Places", "Shape"]


class Shape(NamedTuple):
    """What does not depend on the placement, by job.

    Parameters
    ----------
    slots, depth, iterations, buckets, release
        Numbers of slots, levels, iterations and transfers, and the release in microseconds.
    slot_at, table_at, row_at, exchange_at, link_at
        Offsets: into what is given by slot; by slot and level; by iteration and slot; by iteration and bucket;
        into the links.
    """

    slots: Numbers
    depth: Numbers
    iterations: Numbers
    buckets: Numbers
    release: Numbers
    slot_at: Numbers
    table_at: Numbers
    row_at: Numbers
    exchange_at: Numbers
    link_at: Numbers


class Places(NamedTuple):
    """Placed jobs.

    Parameters
    ----------
    gpu, slot_us, cap
        By slot: its GPU, its mean GPU time of an iteration, its deepest level under memory.
    table
        By slot and level: duration of a block.
    row
        By iteration and slot: levels, in the order of the slots where the job is `fixed`, else descending.
    fixed
        By job: 1 or 0.
    exchange
        By iteration and bucket: duration of the transfer.
    link, links
        Links of the jobs, and how many each has.
    """

    gpu: Numbers
    slot_us: Numbers
    cap: Numbers
    table: Numbers
    row: Numbers
    fixed: Numbers
    exchange: Numbers
    link: Numbers
    links: Numbers


class Filled(NamedTuple):
    """A schedule.

    Parameters
    ----------
    level, start
        By iteration and slot: level and start of the block.
    begun
        By iteration and bucket: start of the transfer.
    trace_job, trace_slot
        The blocks, and the transfers over links (slot -1), in the order in which they start.
    begin, end
        By job: its first start, and its last barrier.
    """

    level: Numbers
    start: Numbers
    begun: Numbers
    trace_job: Numbers
    trace_slot: Numbers
    begin: Numbers
    end: Numbers
