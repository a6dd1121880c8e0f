"""The chat machine: an analytics conversation whose control is a table (seed 002)."""
