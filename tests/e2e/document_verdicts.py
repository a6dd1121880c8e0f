"""Results for every shipped document: counts, verdicts, mutation scores, and what each certificate establishes.

`python tests/document_verdicts.py OUT [NAME..]` writes them; `tests/golden/document_verdicts.json` has the accepted ones.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DSA = Path(sys.executable).with_name("dsa")
GOLDEN = ROOT / "tests" / "golden" / "document_verdicts.json"
DOCUMENTS = (
    "specs/dual_state.md",
    "specs/workflow.md",
    "specs/exhausted.md",
    "specs/katas.md",
    "specs/peterson.md",
    "specs/chat.md",
    "specs/coding.md",
    "machines/examples/jugs.md",
    "machines/examples/polling.md",
    "machines/examples/two_phase_commit.md",
)
#: Smaller parameters for documents that are too large at their defaults to be explored for each of some 1,200 mutants.
BOUNDS = {
    "specs/chat.md": ("max_rounds=3", "max_calls=3", "max_refusals=2", "side=2"),
    "specs/coding.md": ("max_rounds=3", "max_turns=2", "max_calls=2"),
}


def said_of(name: str) -> dict[str, Any]:
    """Return the results of check, prove, verify and mutate for a document."""
    with tempfile.TemporaryDirectory() as folder:
        checked, proved = Path(folder, "checked.json"), Path(folder, "proved.json")
        (report,) = _json("check", name, "--certificate", str(checked))["files"]
        proofs = _json("prove", name, "--certificate", str(proved))
        established = {file.stem: _json("verify", str(file), name)["accepted"] for file in (checked, proved)}
    params = [word for bound in BOUNDS.get(name, ()) for word in ("--param", bound)]
    mutants = _json("mutate", name, *params)
    return {
        "digest": report["digest"],
        "explorations": [
            {key: one[key] for key in ("parameters", "states", "transitions", "complete")}
            for one in report["explorations"]
        ],
        "diagnostics": [f"{one['code']} {one['line']}: {one['message']}" for one in report["diagnostics"]],
        "properties": {one["text"]: one["verdict"] for one in report["properties"]},
        "proofs": {one["text"]: one["verdict"] for one in (*proofs["obligations"], *proofs["properties"])},
        "established": established,
        "mutation": {
            "score": mutants["score"],
            "kinds": dict(sorted(Counter(one["kind"] for one in mutants["mutants"]).items())),
            "digest": _digest(f"{one['line']}: {one['what']}: {one['kind']}" for one in mutants["mutants"]),
        },
    }


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _json(*words: str) -> Any:
    done = subprocess.run([DSA, *words, "--json"], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode in {0, 1}, done.stderr
    return json.loads(done.stdout)


if __name__ == "__main__":
    out, *names = sys.argv[1:]
    found = {name: said_of(name) for name in names or DOCUMENTS}
    Path(out).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
