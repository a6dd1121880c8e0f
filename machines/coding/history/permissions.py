"""Permissions of files and folders beside what git keeps of them, as a text: the usual ones of each kind once, the others by path.

Pure. Permissions are the lowest nine bits of a mode. Kinds are git's modes.
"""

import json
from collections import Counter
from collections.abc import Mapping


def told(permissions: Mapping[str, int], kinds: Mapping[str, str]) -> str:
    """Write permissions by path as one line."""
    counts: dict[str, Counter[int]] = {}
    for path, bits in permissions.items():
        counts.setdefault(kinds[path], Counter())[bits] += 1
    usual = {kind: max(count, key=lambda bits: (count[bits], bits)) for kind, count in counts.items()}
    others = {path: f"{bits:03o}" for path, bits in sorted(permissions.items()) if bits != usual[kinds[path]]}
    return json.dumps({"usual": {kind: f"{bits:03o}" for kind, bits in sorted(usual.items())}, "others": others})


def known(text: str, kinds: Mapping[str, str]) -> dict[str, int]:
    """Give the permissions that a line tells, by path; links have none."""
    said = json.loads(text)
    usual = {kind: int(bits, 8) for kind, bits in said["usual"].items()}
    others = {path: int(bits, 8) for path, bits in said["others"].items()}
    return {path: usual[kind] for path, kind in kinds.items() if kind in usual} | others
