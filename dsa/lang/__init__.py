"""Text to Machine."""
