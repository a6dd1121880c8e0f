"""Workflows of action pairs (seeds 000 and 001)."""
