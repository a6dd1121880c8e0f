"""Policies: what they are, which there are, how they call each other, and what is recorded of it (seed 004)."""
