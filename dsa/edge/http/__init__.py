"""Streams of models over HTTP: where a server is, what it is asked, its bytes as chunks, its failures as few errors."""
