"""The search agent of seed 004: policies alone, no table."""
