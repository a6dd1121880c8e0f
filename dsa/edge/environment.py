"""The secrets of this process's environment."""

import os
from pathlib import Path

from dsa.runtime.secret_names import Chosen, secrets_in
from dsa.runtime.secrets import Secrets


def environment_secrets(chosen: Chosen | None = None) -> Secrets:
    """Give the secrets of this process's environment, and what a user has chosen. Raises SecretError.

    The path of something that is there is no secret, whatever its variable is called: GOOGLE_APPLICATION_CREDENTIALS names a file.
    """
    return secrets_in({name: value for name, value in os.environ.items() if not _is_path(value)}, chosen)


def _is_path(value: str) -> bool:
    try:
        return value.startswith(("/", "~")) and Path(value).expanduser().exists()
    except (OSError, RuntimeError, ValueError):  # too long for a path, no home, a zero byte
        return False
