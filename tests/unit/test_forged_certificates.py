"""Forged certificates as files, and the answer of `dsa verify` to each.

`tests/golden/forged/` has one claim a file, and the documents they are about. Most were made by a program that answers each question of the kernel
with a lemma that is true on one path alone and with multipliers of fractions (`:flag * 2 ** -1`); the others by hand.
"""

import json
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner
from each_row import each_row

from dsa import kernel
from dsa.cli.main import program
from dsa.cli.verify import canonical
from dsa.kernel import read, verify_claim
from dsa.lang import loads

FOLDER = Path(__file__).parents[1] / "golden" / "forged"
REFUSED, ACCEPTED = "refused", "accepted"


@attrs.frozen
class Forged:
    """A certificate: the verdict, the reason for it, and the sentence that is printed or a part of the refusal."""

    verdict: str
    why: str
    sentence: str


BARE = "this claim is about every row at all values, so it takes no evidence"
FORGED = {
    # fractions as multipliers could show that any path is impossible
    "dual_state": {
        "proved_at_most_0_effects": Forged(REFUSED, "query_llm is asked for", "this is not an expression: :flag <= 1"),
        "proved_at_most_0_retries": Forged(REFUSED, "retries rise", "this is not an expression: retries > 0"),
        "proved_possible": Forged(REFUSED, "no state has this", "this is not an expression: :flag <= 1"),
        "proved_rest": Forged(
            REFUSED,
            "true, but the evidence shows nothing",
            "this is not an expression: :flag <= 1",
        ),
        # not expressions of the language, but not false in Python
        "braces_always": Forged(
            REFUSED, "not a property", "'{' in '{retries < 0}' is not a name that is allowed there"
        ),
        "parens_never": Forged(REFUSED, "not a property", "')' in '()' is not a name that is allowed there"),
        "list_always": Forged(REFUSED, "not a property", "this is not an expression: false, true"),
        "number_always": Forged(REFUSED, "not a property", "'1' is not a condition"),
        "braces_possible": Forged(REFUSED, "not a property", "'{' in '{false}' is not a name that is allowed there"),
        "braces_only_after": Forged(REFUSED, "not a property", "'{' in '{false}' is not a name that is allowed there"),
        "braces_always_for_all": Forged(
            REFUSED, "not a property", "'{' in '{false}' is not a name that is allowed there"
        ),
        "between_in_a_part": Forged(
            REFUSED,
            "not a property: what is counted needs parentheses",
            "this is not an expression: query_llm and false",
        ),
        "number_unchanged": Forged(ACCEPTED, "a number never changes", "on verdict: 0 unchanged: rmax = 3"),
        # parameter values
        "value_in_wide_digits": Forged(REFUSED, "not a number of the language", "'１' is not a value of rmax"),
        "value_with_white_space": Forged(REFUSED, "not a number of the language", "' 0_0 ' is not a value of rmax"),
        "value_of_no_parameter": Forged(
            REFUSED,
            "a value of a name that the machine has not",
            "the claim must give one value for each parameter, and no other values",
        ),
        "value_below_the_domain": Forged(REFUSED, "rmax is at least 0", "rmax = -1 is outside its domain"),
        "value_not_a_number": Forged(REFUSED, "NaN is not valid JSON", "nan is not a value of rmax"),
        "number_of_5000_digits": Forged(
            REFUSED, "more than is read", "this is not an expression: retries < 9999999999999999999999999999999999999"
        ),
        # the certificate itself
        "machine_twice": Forged(REFUSED, "two machines in one certificate", "a name occurs twice in an object"),
        "claims_none": Forged(REFUSED, "it claims nothing", "the certificate has no claims"),
    },
    # dual_state with one retry too many
    "broken": {
        "broken_no_fault": Forged(REFUSED, "retries leave their domain", "this is not an expression: :flag <= 1")
    },
    # its final states are end.failed and end.target, which rows and properties call by their last part
    "short": {
        "short_never_failed": Forged(
            REFUSED, "end.failed is reached", "'failed' in 'failed' is not a name that is allowed there"
        ),
        "short_never_target": Forged(
            REFUSED, "end.target is reached", "'target' in 'target' is not a name that is allowed there"
        ),
        "short_at_most": Forged(
            REFUSED, "both are reached", "'failed' in 'failed or target' is not a name that is allowed there"
        ),
        "short_leads_to": Forged(
            REFUSED, "go may end in end.failed", "'failed' in 'not failed' is not a name that is allowed there"
        ),
        "short_never_full": Forged(REFUSED, "end.failed is reached", "end.failed, ok, g.failed: not never end.failed"),
    },
    "dom": {
        "dom_no_fault": Forged(REFUSED, "k is at least 1", "k = -7 is outside its domain"),
        "dom_never": Forged(REFUSED, "k is at least 1", "k = 0 is outside its domain"),
        "dom_always": Forged(REFUSED, "k is at least 1", "k = -1 is outside its domain"),
    },
    # a row sets workflow state on g.failed, at a value outside its domain
    "gd": {
        "guarded_by_domain_of_n": Forged(
            REFUSED, "the claim is about all values, and the evidence takes a domain for granted", BARE
        ),
        "guarded_by_both_domains": Forged(
            REFUSED, "the claim is about all values, and the evidence takes domains for granted", BARE
        ),
        "guarded_by_domain_of_w": Forged(REFUSED, "w is set on g.failed", BARE),
        "guarded_by_nothing": Forged(REFUSED, "w is set on g.failed", BARE),
        "guarded_honest": Forged(REFUSED, "w is set on g.failed", "a fault is possible: idle, go, g.failed: w is set"),
    },
    # a row sets workflow state on g.failed, at a value that no run comes to
    "reached": {
        "guarded_where_reached": Forged(
            REFUSED, "the claim is about all values, and the evidence is about those reached", BARE
        ),
        "guarded_at_a_value": Forged(REFUSED, "the claim is about all values", BARE),
    },
}
EACH = [pytest.param(document, name, id=name) for document, forged in FORGED.items() for name in forged]


@each_row(("document", "name"), EACH)
def test_forged_certificate_gets_the_expected_verdict_and_sentence(document, name):
    forged = FORGED[document][name]
    arguments = ["verify", str(FOLDER / f"{name}.json"), str(FOLDER / f"{document}.md"), "--allow-missing"]
    said = CliRunner().invoke(program, arguments)
    assert said.exit_code == (1 if forged.verdict == REFUSED else 0), forged.why
    assert forged.sentence in said.stdout + said.stderr
    assert ("\ncertified " in said.stdout) == (forged.verdict == ACCEPTED)


def test_every_file_is_in_the_table_and_has_one_claim():
    assert {path.stem for path in FOLDER.glob("*.json")} == {name for forged in FORGED.values() for name in forged}
    assert {path.stem for path in FOLDER.glob("*.md")} == set(FORGED)
    for path in FOLDER.glob("*.json"):
        claims = json.loads(path.read_text(encoding="utf-8"))["claims"]
        assert len(claims) == (path.stem not in {"claims_none", "machine_twice"})


def test_condition_nested_too_deeply_is_not_certified_and_the_check_goes_on(tmp_path):
    condition = "x <= 3"
    for _ in range(50):
        condition = f"(false or true and {condition})"
    rows = "| a | go | x < 3 | x += 1 | = |\n| a | go | else | | = |\n"
    document = tmp_path / "deep.md"
    document.write_text(
        "# deep\n## Variables\n| variable | domain | initial |\n| - | - | - |\n| x | 0..3 | 0 |\n"
        "## Events\n| event | from |\n| - | - |\n| go | outside |\n"
        f"## Transitions\n| source | event | if | update | target |\n| - | - | - | - | - |\n{rows}## Properties\n- always {condition}\n"
    )
    for command in ("check", "prove"):
        certificate = tmp_path / f"{command}.json"
        said = CliRunner().invoke(program, [command, str(document), "--certificate", str(certificate)])
        assert said.exception is None or isinstance(said.exception, SystemExit), said.exception
        assert "is nested too deeply to be evaluated" in said.stdout + said.stderr
        assert json.loads(certificate.read_text())["claims"]


def test_claim_about_too_many_configurations_is_refused(monkeypatch):
    monkeypatch.setattr(kernel, "MOST_NODES", 2_000)
    machine = (FOLDER / "reached.md").read_text().replace("0..5", "0..n").replace("x == 5", "x == n")
    machine = machine.replace(
        "| a      | v     | else                |           | =      |",
        "| a | v | else | x = 0 | = |\n| a | more | x < n | x += 1 | = |\n| a | more | else | | = |",
    )
    text = canonical(loads(machine))[1]
    claim = {"form": "always {}", "parts": ["x <= n"], "at": {"n": "999999999999"}, "proofs": []}
    with pytest.raises(AssertionError, match="the exploration goes through more than 2,000 configurations"):
        verify_claim(text, claim)


def test_machine_that_cannot_be_printed_is_refused():
    for heading in ("# cnt\rcertified  always false", "# \ud800"):
        with pytest.raises(AssertionError, match="the machine has characters that cannot be printed"):
            read(json.dumps({"machine": heading, "digest": "x", "claims": [1]}))


def test_condition_may_be_a_rank(tmp_path):
    """A retry that can happen only once is ranked by whether it has happened."""
    document = tmp_path / "once.md"
    document.write_text(
        "# once\n## Parameters\n| parameter | domain | default |\n| - | - | - |\n| n | 0.. | 1 |\n"
        "## Variables\n| variable | domain | initial |\n| - | - | - |\n| redone | bool | false |\n"
        "## Events\n| event | from |\n| - | - |\n| go | outside |\n| made | make |\n"
        "## States\n| state | kind |\n| - | - |\n| a | initial |\n| b | |\n| z | final |\n"
        "## Transitions\n| source | event | if | update | effects | target |\n| - | - | - | - | - | - |\n"
        "| a | go | | | make | b |\n| b | made | not redone | redone = true | make | = |\n| b | made | else | | | z |\n"
        "## Properties\n- go leads to z\n"
    )
    certificate = tmp_path / "once.json"
    CliRunner().invoke(program, ["prove", str(document), "--certificate", str(certificate)])
    said = CliRunner().invoke(program, ["verify", str(certificate), str(document)])
    assert said.exit_code == 0, said.output
    assert "certified        go leads to z: for all values" in said.stdout
