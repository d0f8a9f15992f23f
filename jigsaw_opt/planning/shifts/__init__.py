"""Jobs that send over their links in turn: time shifts (CASSINI, NSDI'24), shared links, and ratios of iterations."""
