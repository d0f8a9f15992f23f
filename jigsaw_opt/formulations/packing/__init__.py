"""Packing: columns are patterns of servers, the master program chooses how often each is used."""
