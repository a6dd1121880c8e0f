"""Seeds for single calls, derived from the run's."""

import hashlib


def derive_seed(seed: int, step: str, attempt: int, prompt: str) -> int:
    """Give the seed of one call, 31 bits: the same for the same four, unrelated for any other.

    So a run can be repeated, its attempts differ, and steps with one prompt do too.
    """
    text = f"{seed}\n{step}\n{attempt}\n{prompt}"
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:4], "big") >> 1
