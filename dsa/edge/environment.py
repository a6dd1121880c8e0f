"""The secrets of this process's environment."""

import os
from functools import lru_cache
from pathlib import Path

from dsa.runtime.secret_names import Chosen, secrets_in
from dsa.runtime.secrets import Secrets


def environment_secrets(chosen: Chosen | None = None) -> Secrets:
    """Give the secrets of this process's environment, and what a user has chosen. Raises SecretError.

    The path of something that is there is no secret, whatever its variable is called: GOOGLE_APPLICATION_CREDENTIALS names a file.
    """
    return _secrets_in(tuple(os.environ.items()), chosen)


@lru_cache(maxsize=8)
def _secrets_in(variables: tuple[tuple[str, str], ...], chosen: Chosen | None) -> Secrets:
    """Look through an environment once: what is worked out of it takes longer than a short run."""
    return secrets_in({name: value for name, value in variables if not _is_path(value)}, chosen)


def _is_path(value: str) -> bool:
    try:
        return value.startswith(("/", "~")) and Path(value).expanduser().exists()
    except (OSError, RuntimeError, ValueError):  # too long for a path, no home, a zero byte
        return False
