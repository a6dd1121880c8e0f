"""Streams of models over HTTP: servers' addresses, requests, answers as chunks, and errors."""
