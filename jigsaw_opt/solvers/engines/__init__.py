"""Engines that solve a mixed-integer program in numbers, one module each."""
