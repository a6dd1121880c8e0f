"""`dsa prove` as a user runs it: its output and exit codes."""

import json
import re
import subprocess
import sys
from pathlib import Path

WRONG = """# wrong

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| rmax      | 0..    | 3       |

## Variables
| variable | domain  | initial |
| -------- | ------- | ------- |
| retries  | 0..rmax | 0       |

## Transitions
| source | event  | if              | update       | target |
| ------ | ------ | --------------- | ------------ | ------ |
| here   | failed | retries <= rmax | retries += 1 | =      |

## Properties
- always retries <= rmax
"""


def dsa(*arguments: str, before: str = "pass") -> subprocess.CompletedProcess[str]:
    code = f"import sys; {before}; from dsa.cli.main import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_shipped_machine_is_proved() -> None:
    done = dsa("prove", "dual_state")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(re.match(r"PROVED .*line 58 +at most rmax \+ 1 query_llm +by induction with", line) for line in lines)
    assert re.search(r"dual_state: 13 PROVED, for all values of rmax, in \d+\.\d\d s$", done.stdout.strip())


def test_table_is_aligned() -> None:
    lines = [line for line in dsa("prove", "dual_state").stdout.splitlines() if line.startswith("PROVED")]
    assert len({line.index(" ms") for line in lines}) == 1
    assert len({re.search(r"  (row by row|by induction|rank)", line).start() for line in lines}) == 1  # type: ignore[union-attr]  # it is there


def test_fault_exits_with_1_and_shows_the_trace(tmp_path: Path) -> None:
    (tmp_path / "wrong.md").write_text(WRONG)
    done = dsa("prove", str(tmp_path / "wrong.md"))
    assert done.returncode == 1
    assert "VIOLATED" in done.stdout
    assert re.search(r"^    at rmax = 0\n    0  start  here +retries = 0$", done.stdout, re.MULTILINE)
    assert "this obligation must be proved first: every update stays in its domain" in done.stdout


def test_json_has_verdicts_evidence_and_traces(tmp_path: Path) -> None:
    (tmp_path / "wrong.md").write_text(WRONG)
    wrong = json.loads(dsa("prove", "--json", str(tmp_path / "wrong.md")).stdout)
    assert wrong["proved"] is False
    assert {proof["verdict"] for proof in wrong["obligations"]} == {"PROVED", "VIOLATED"}
    good = json.loads(dsa("prove", "--json", "dual_state").stdout)
    assert good["proved"] is True
    ranked = next(proof for proof in good["properties"] if "leads to" in proof["text"])
    assert {"state": "generating", "outstanding": ["query_llm"], "rank": ["rmax - retries", "1"]} in ranked["evidence"][
        "ranks"
    ]


def test_unreadable_document_exits_with_2(tmp_path: Path) -> None:
    missing = dsa("prove", str(tmp_path / "nothing.md"))
    assert missing.returncode == 2
    assert "Traceback" not in missing.stderr
    (tmp_path / "bad.md").write_text("# bad\n")
    bad = dsa("prove", str(tmp_path / "bad.md"))
    assert bad.returncode == 2
    assert "Transitions" in bad.stderr
    assert "Traceback" not in bad.stderr


def test_missing_z3_is_reported_with_what_to_install() -> None:
    done = dsa("prove", "dual_state", before="sys.modules['z3'] = None")
    assert done.returncode == 2
    assert done.stderr.strip() == "proofs need z3: pip install '.[prove]' (in a clone of dual-state-agents)"


GOES_ON = """# goes_on

## Events
| event | from    |
| ----- | ------- |
| go    | outside |
| again | ask     |

## Transitions
| source | event | effects | target |
| ------ | ----- | ------- | ------ |
| idle   | go    | ask     | busy   |
| busy   | again | ask     | =      |

## Properties
- never busy and idle
- go leads to idle
- expected ask <= 2
"""


def test_claims_that_need_no_proof_are_listed_and_do_not_fail(tmp_path: Path) -> None:
    (tmp_path / "on.md").write_text(GOES_ON.replace("- go leads to idle\n", ""))
    done = dsa("prove", str(tmp_path / "on.md"))
    assert done.returncode == 0, done.stdout
    assert re.search(r"^-{8} .* every run comes to rest .* not shown: no rank was found", done.stdout, re.MULTILINE)
    assert re.search(r"^-{8} .* expected ask <= 2 +odds hold at given values only", done.stdout, re.MULTILINE)
    assert re.search(r": 8 PROVED; left out: 1 about odds \(dsa check judges it\), in", done.stdout)
    found = json.loads(dsa("prove", "--json", str(tmp_path / "on.md")).stdout)
    assert (found["proved"], found["rest"]["verdict"]) == (True, "UNKNOWN")
    assert [proof["for_all_values"] for proof in found["properties"]] == [True, False]


def test_loop_of_one_step_is_described_as_one_step(tmp_path: Path) -> None:
    (tmp_path / "on.md").write_text(GOES_ON)
    done = dsa("prove", str(tmp_path / "on.md"))
    assert done.returncode == 1
    assert "\n    step 2 can repeat for ever\n" in done.stdout
