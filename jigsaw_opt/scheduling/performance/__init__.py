"""How fast jobs run where they are placed: the protocol that every kind of performance model follows.

Work is counted in units of 10^-15 iterations and speeds in units a microsecond, both integers, so that progress is
exact and nothing is lost however often a job is stopped. A speed is thus stated to 10^-9 iterations a second.
"""

from jigsaw_opt.scheduling.performance.protocol import UNITS, Contention, Performance, Speed, rate_of

__all__ = ["UNITS", "Contention", "Performance", "Speed", "rate_of"]
