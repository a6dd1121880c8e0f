"""The same document has the same proofs, with any hash seed and after any earlier proofs."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from dsa.checks.proof.prover import prove
from dsa.edge.document_files import load
from dsa.lang import loads

VARIABLES = [f"v{number}" for number in range(5)]
#: Numbers that change together: each claim follows from many sets of lemmas, and z3's earlier questions decide which one it names.
LOCKSTEP = "\n".join(
    [
        "# lockstep\n\n## Parameters\n| parameter | domain | default |\n| - | - | - |\n| n | 0.. | 3 |",
        "\n## Variables\n| variable | domain | initial |\n| - | - | - |",
        *(f"| {name} | 0..n | 0 |" for name in VARIABLES),
        "\n## Transitions\n| source | event | if | update | target |\n| - | - | - | - | - |",
        *(
            f"| {source} | go | {name} < n | {'; '.join(f'{each} += 1' for each in VARIABLES)} | {after} |\n"
            f"| {source} | back | | {'; '.join(f'{each} = 0' for each in VARIABLES)} | {behind} |"
            for name, source, after, behind in zip(VARIABLES, "abcd", "bcda", "cdab", strict=False)
        ),
        "\n## Properties",
        *(f"- always {name} <= n" for name in VARIABLES),
        *(f"- never {one} > {other}" for one, other in pairwise(VARIABLES)),
        "- at most 1 go between back and (go or back)\n- always v0 + v1 <= 2 * n\n",
    ]
)


def without_times(value: Any) -> Any:
    """Return JSON data without measured times."""
    match value:
        case dict():
            return {key: without_times(item) for key, item in value.items() if key not in {"milliseconds", "seconds"}}
        case list():
            return [without_times(item) for item in value]
    return value


def proofs_with(seed: str, path: Path) -> Any:
    """Return the JSON that `dsa prove` prints for a document in a process with a hash seed."""
    code = "from dsa.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "prove", "--json", str(path)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONHASHSEED": seed},
    )  # fmt: skip
    assert done.stdout, done.stderr
    return without_times(json.loads(done.stdout))


def test_hash_seed_changes_no_lemma(tmp_path: Path) -> None:
    path = tmp_path / "lockstep.md"
    path.write_text(LOCKSTEP)
    first = proofs_with("0", path)
    assert any(proof["evidence"] and proof["evidence"].get("lemmas") for proof in first["properties"])
    assert proofs_with("1", path) == first


def test_earlier_proof_in_the_process_changes_no_lemma() -> None:
    machine = loads(LOCKSTEP)
    first = prove(machine)
    prove(load("specs/dual_state"))
    assert prove(machine) == first
