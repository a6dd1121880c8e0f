"""The odds of a machine: how runs end, what they cost, how many retries a target needs. `reckon` is where to begin."""
