"""`dsa sim` as people call it: its output, the story of a seed, its failures, and results that do not depend on the number of workers."""

import json
import re
from functools import partial

import pytest
from simulations import ENDLESS, LETTER

#: A machine that loops a number of times, with a property that does not hold for every number.
ROUNDS = """# rounds
## Parameters
| parameter | domain | default |
| - | - | - |
| most | 1.. | 3 |
## Variables
| variable | domain | initial |
| - | - | - |
| n | 0..most | 0 |
## Events
| event | from |
| - | - |
| go | outside |
| rung | ring |
## States
| state | kind |
| - | - |
| idle | initial |
| ringing | |
| done | final |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| idle | go | | n += 1 | ring | ringing |
| ringing | rung | n < most | n += 1 | ring | = |
| ringing | rung | else | | | done |
## Properties
- at most 2 ring
"""
SPEC = """# rung often

Machine: letter.md

## Properties
- never done
- at most 9 draft
"""


@pytest.fixture
def dsa(dsa, tmp_path):
    """Run the program in a folder with documents; it has to succeed unless `code` says otherwise."""
    for name, text in (("letter", LETTER), ("rounds", ROUNDS), ("endless", ENDLESS), ("spec", SPEC)):
        (tmp_path / f"{name}.md").write_text(text, encoding="utf-8")
    return partial(dsa, code=0)


def test_simulation_of_many_seeds_prints_its_figures(dsa):
    done = dsa("sim", "letter.md")
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"letter\.md: 1,000 runs \(seeds 0 to 999\), [\d,]+ rows taken, [\d,]+ processes", lines[0])
    assert lines[1] == "policies  made up"
    assert {line.split("  ")[1] for line in lines[2:-3]} == {
        "kill", "power cut", "write fails", "sync fails", "damage", "takeover", "second holder", "clock forward",
        "clock back", "lost answer", "failure", "garbled answer", "doubled answer", "late answer", "stray event",
    }  # fmt: skip
    assert lines[-3:-1] == ["row x boundary x fault: 120 of 120 triples hit (100.0%)", "oracles: all 54 hold"]
    assert re.fullmatch(r"fingerprint [0-9a-f]{16}", lines[-1])
    assert re.fullmatch(r"\d+\.\d s, [\d,]+ runs a second with \d+ workers\n", done.stderr)


def test_results_do_not_depend_on_the_number_of_workers(dsa):
    said = {dsa("sim", "letter.md", "--seeds", "170", "--workers", workers).stdout for workers in ("1", "2", "5")}
    assert len(said) == 1
    objects = [json.loads(dsa("sim", "letter.md", "--seeds", "170", "--workers", n, "--json").stdout) for n in "12"]
    assert all(each.pop("seconds") > 0 for each in objects)
    assert objects[0] == objects[1]
    whole, first, second = (
        int(json.loads(dsa("sim", "letter.md", *of, "--json").stdout)["fingerprint"], 16)
        for of in (("--seeds", "90"), ("--seeds", "50"), ("--seed", "50", "--seeds", "40"))
    )
    assert whole == (first + second) % 2**64


def test_real_policies_of_a_shipped_machine_run(dsa):
    assert "policies  real ones for the effects advance_state, " in dsa("sim", "dual_state", "--seeds", "30").stdout
    story = dsa("sim", "dual_state", "--seed", "3").stdout
    assert "attempt 1: passed (g.passed)" in story


def test_policy_runs_are_simulated_with_a_made_up_effect(dsa):
    assert "oracles: all 54 hold" in dsa("sim", "policy", "--seeds", "200").stdout


def test_seed_is_shown_as_rows_of_the_table(dsa):
    told = [dsa("sim", "letter.md", "--seed", "46").stdout for _ in range(2)]
    assert told[0] == told[1]
    lines = told[0].splitlines()
    assert lines[0] == ("seed 46 of letter.md, aimed at line 23 (drafting | written | done), unsynced, sync fails")
    assert "  1  write  line 22: idle -> drafting" in lines
    assert "  2  written (of 1/1)  line 23: drafting -> done" in lines
    assert lines.count("     !! sync fails, unsynced") == 1
    assert lines[-2].startswith("all oracles hold; 2 rows, ")
    assert lines[-1] == "again: dsa sim letter.md --seed 46"


def test_json_of_a_seed_contains_its_story(dsa):
    told = json.loads(dsa("sim", "letter.md", "--seed", "46", "--json").stdout)
    assert told["seeds"] == {"first": 46, "count": 1}
    assert told["coverage"] == {"triples": 120, "hit": 1, "missed": told["coverage"]["missed"]}
    assert len(told["coverage"]["missed"]) == 119
    assert told["coverage"]["missed"][0] == {
        "row": "idle | write | drafting",
        "line": 22,
        "boundary": "before",
        "fault": "kill",
    }
    kinds = [each["kind"] for each in told["story"] if not isinstance(each, str)]
    drafted, posted = ["event", "row", "effect", "resumed", "result"], ["event", "row", "effect", "result"]
    assert kinds == ["machine", *drafted, *posted]
    assert "!! sync fails, unsynced" in told["story"]
    assert len(told["oracles"]) == 54


def test_too_few_seeds_fail_the_coverage_limit(dsa):
    done = dsa("sim", "letter.md", "--seeds", "40", "--coverage", "100", code=1)
    assert "row x boundary x fault: 40 of 120 triples hit (33.3%, fewer than 100%)" in done.stdout
    assert done.stdout.count("  not hit: line 2") == 20
    assert "  and 60 more\n" in done.stdout
    assert "oracles: all 54 hold" in done.stdout
    dsa("sim", "letter.md", "--seeds", "40", "--coverage", "30")
    dsa("sim", "letter.md", "--seeds", "40")
    dsa("sim", "letter.md", "--seeds", "120", "--coverage", "100")


def test_violation_is_shown_as_rows_and_can_be_reproduced(dsa):
    done = dsa("sim", "rounds.md", "--seeds", "60", code=1)
    found = re.findall(
        r"^  seed (\d+): the properties of the document hold \(P12\): at most 2 ring \(event 3\)$",
        done.stdout,
        re.MULTILINE,
    )
    assert found
    begin = done.stdout.index(f"seed {found[0]} of rounds.md, aimed at ")
    told = done.stdout[begin : done.stdout.index("\n\n", begin) + 1]
    assert "  1  go  line " in told
    assert "\nbroken: the properties of the document hold (P12): at most 2 ring (event 3)\n" in told
    assert told.endswith(f"\nagain: dsa sim rounds.md --seed {found[0]}\n")
    assert dsa("sim", "rounds.md", "--seed", found[0], code=1).stdout == told


def test_violation_at_a_parameter_value_is_reproduced_at_the_same_value(dsa):
    assert "at most = 1 (seeds 0 to 59)" in dsa("sim", "rounds.md", "--param", "most=1", "--seeds", "60").stdout
    done = dsa("sim", "rounds.md", "--param", "most=6", "--seeds", "30", code=1)
    again = re.search(r"^again: dsa (sim rounds\.md --param most=6 --seed \d+)$", done.stdout, re.MULTILINE)
    told = dsa(*again[1].split(" "), code=1).stdout
    assert told in done.stdout


def test_properties_of_a_spec_are_checked(dsa):
    done = dsa("sim", "spec.md", "--seeds", "60", code=1)
    assert "the properties of the document hold (P12): never done (event 2)" in done.stdout
    dsa("sim", "letter.md", "--seeds", "60")


def test_endless_run_is_ended(dsa):
    done = dsa("sim", "endless.md", "--seeds", "120", "--coverage", "100")
    assert "oracles: all 54 hold" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere.md",), "nowhere.md: there is no such file"),
        (("letter.md", "--param", "most=1"), "machine letter has no parameter 'most'; none are known here"),
        (("rounds.md", "--param", "most"), "--param most: write NAME=VALUE"),
        (("rounds.md", "--param", "most=99999", "--seeds", "1"), "rounds has more than 50000 configurations"),
        (("letter.md", "--seed", "1", "--coverage", "50"), "--coverage is about many seeds; add --seeds N"),
        (("letter.md", "--seeds", "0"), "0 is not in the range"),
    ],
)
def test_impossible_simulation_is_refused_with_a_reason(dsa, arguments, said):
    done = dsa("sim", *arguments, code=2)
    assert said in done.stderr
    assert done.stdout == ""


def test_machine_whose_rows_cannot_be_taken_is_refused(dsa, tmp_path):
    (tmp_path / "still.md").write_text(ROUNDS.replace("| idle | go | |", "| idle | go | most > 9 |"), encoding="utf-8")
    done = dsa("sim", "still.md", code=2)
    assert "still.md: has no row that can be taken: there is nothing to simulate" in done.stderr


def test_report_says_when_faults_may_come_from_the_table(dsa, tmp_path):
    (tmp_path / "twice.md").write_text(f"{LETTER}| drafting | written | | done |\n", encoding="utf-8")
    done = dsa("sim", "twice.md", "--seeds", "60", code=1)
    assert (
        "twice.md has errors: DSA304 (see dsa check twice.md); faults in the report may come from the table"
        in done.stderr
    )
    assert "a run stops only for a cause (S7): the run was stopped by ambiguous" in done.stdout
