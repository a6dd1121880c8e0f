"""Strategies and suites for tests of machines."""
