"""When a waiting job will start, by simulations of its queue."""
