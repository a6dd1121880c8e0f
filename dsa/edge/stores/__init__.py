"""Stores of runs: durable in one SQLite file, or in memory, and the file's locks, tables and rows."""
