"""Every compiled function: plain Python on lists of numbers, which numba compiles for arrays where it is installed.

``list_scheduling`` times placed jobs, ``sequence_annealing`` and ``cyclic_annealing`` anneal operation sequences on the
finite and the cyclic horizon, and ``assignment_annealing`` anneals assignments of jobs to candidate server sets.
"""
