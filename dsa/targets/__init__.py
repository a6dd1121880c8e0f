"""Machine to text or class."""
