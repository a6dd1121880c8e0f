"""The dual-state agent of seeds 000 and 001."""
