"""Which jobs share which GPUs: column generation over patterns of servers, rounded and repaired."""
