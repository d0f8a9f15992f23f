"""Why an instance has no plan: certain causes before any search, and a minimal conflict after a proof.

Time makes an instance infeasible only where jobs have a deadline or a cycle-time limit: blocks and transfers can always
run one after the other, and on the finite horizon so can jobs. What can besides is the placement (GPU types, memory,
links, GPUs of one's own for all workers of a job) and a depth rule: of a job alone on the finite horizon, of all jobs
together on the cyclic one.
"""
