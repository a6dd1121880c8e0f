"""Runs on Temporal: the same entry point as `dsa.runs`, with workflows as drivers and activities as effects."""
