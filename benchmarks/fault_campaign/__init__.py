"""A campaign of faults against the program: one module a kind of fault, each a `contract.Part`."""
