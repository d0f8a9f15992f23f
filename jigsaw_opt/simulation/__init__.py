"""The cluster over days: workloads, policies, performance, the engine that replays them, and its measures."""
