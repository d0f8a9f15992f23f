"""Bursts carried out: layers that share out their samples among as many processes as the plan gives them."""
