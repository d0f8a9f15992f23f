"""Jobs on GPUs: what they ask for, levels, sets of GPUs to choose from, loads and memory, and rules that place jobs."""
