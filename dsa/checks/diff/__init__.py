"""Two documents compared by what they mean."""
