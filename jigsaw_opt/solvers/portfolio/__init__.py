"""Several methods on one incumbent and one bound, and the one that fits what is installed."""
