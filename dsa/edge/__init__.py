"""The only input and output."""
