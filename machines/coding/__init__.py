"""The coding machine: a coding agent whose every call passes guards in one table."""
