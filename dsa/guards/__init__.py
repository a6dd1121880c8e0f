"""The library of guards."""
