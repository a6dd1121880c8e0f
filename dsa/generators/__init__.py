"""The library of generators."""
