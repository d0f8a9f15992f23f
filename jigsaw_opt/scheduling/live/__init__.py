"""A scheduler that is fed with events while a cluster runs."""
