"""Relaxations of weighted completion: inequalities between completion times, in one linear program."""
