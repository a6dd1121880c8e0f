"""Engines: exhaustive searches of a ground system, in whole numbers. All give the same counts."""
