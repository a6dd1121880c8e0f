"""Policies: what they are, which ones exist, how they call each other, and what is recorded (seed 004)."""
