"""Sizes of samples: how many random cases a test draws in `make test`, and how many in `make test-full`."""

#: Whether tests marked `full` are selected; the session says so before any module of tests is read.
IS_FULL = False


def sample_size(some: int, *, full: int) -> int:
    """Return how many cases to draw."""
    return full if IS_FULL else some
