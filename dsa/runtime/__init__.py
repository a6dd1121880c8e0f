"""The pure part of a run."""
