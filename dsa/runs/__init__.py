"""Runs: they are started, followed, resumed and removed here."""
