"""Every compiled function: plain Python on lists of numbers, compiled for arrays where there was a C compiler.

``list_scheduling`` times placed jobs, ``sequence_annealing`` and ``cyclic_annealing`` anneal operation sequences on the
finite and the cyclic horizon, ``assignment_annealing`` anneals assignments of jobs to candidate server sets,
``order_insertion`` inserts jobs in an order, ``activity_annealing`` anneals orders of placed activities,
and ``processor_sharing`` says when jobs end that do iterations at rates.
"""
