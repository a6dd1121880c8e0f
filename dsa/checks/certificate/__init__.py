"""Certificates: what a verdict rests on, for a kernel that does not believe us."""
