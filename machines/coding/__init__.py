"""The coding machine: a coding agent, whose calls all pass the guards of one table."""
