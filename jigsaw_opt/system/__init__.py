"""Services of the operating system: signals, and child processes that end with their parent."""
