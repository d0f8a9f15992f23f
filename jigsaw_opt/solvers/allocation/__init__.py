"""Which jobs get which GPUs: one module a method, under the name of its formulation."""
