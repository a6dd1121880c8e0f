"""The sandbox's side of `dsa.guards.tool_guards`: checks one file and reports the output and exit status of mypy. The file is not run."""

import json
import os
from pathlib import Path

from mypy import api

_OPTIONS = (
    "--config-file=", "--cache-dir=/dev/null", "--no-site-packages", "--ignore-missing-imports", "--check-untyped-defs", "--show-error-codes",
    "--hide-error-context", "--no-color-output", "--no-error-summary", "--no-pretty",
)  # fmt: skip


def run(payload: str, result_fd: int) -> None:
    """Do the job: `payload` is JSON with `code`, `file` and `options`."""
    job = json.loads(payload)
    Path(job["file"]).write_text(job["code"], encoding="utf-8", newline="")
    output, complaints, status = api.run([*_OPTIONS, *job["options"], job["file"]])
    report = json.dumps([status, output[: job["most"]], complaints[-1000:]]).encode()
    while report:
        report = report[os.write(result_fd, report) :]
