"""Forged certificates as files: what `dsa verify` says of each today, and which of them it must come to refuse.

`tests/golden/forged/` has one claim a file, and the documents they are about. Most were made by a program that answers each question of the kernel
with a lemma that is true on one path alone and with multipliers of fractions (`:flag * 2 ** -1`); the others by hand.
"""

import json
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

from dsa.cli.main import program

FOLDER = Path(__file__).parents[1] / "golden" / "forged"
REFUSED, ACCEPTED, WRONGLY = "refused", "accepted today", "accepted today, wrongly"


@attrs.frozen
class Forged:
    """A certificate: what is said of it today, why that is right or wrong, and the sentence that is printed or a part of the refusal."""

    today: str
    why: str
    sentence: str


FORGED = {
    # multipliers of fractions show any path impossible
    "dual_state": {
        "proved_at_most_0_effects": Forged(WRONGLY, "query_llm is asked for", "at most 0 query_llm: for all values"),
        "proved_at_most_0_retries": Forged(WRONGLY, "retries rise", "at most 0 retries > 0: for all values"),
        "proved_possible": Forged(WRONGLY, "no state has this", "possible failed and retries > rmax: for all values"),
        "proved_rest": Forged(
            WRONGLY,
            "true, but the evidence shows nothing",
            "every run comes to rest when nothing comes from outside: for all values",
        ),
        # what is no expression of the language, and not false in Python
        "braces_always": Forged(WRONGLY, "not a property", "always {retries < 0}: rmax = 3"),
        "parens_never": Forged(WRONGLY, "not a property", "never (): rmax = 3"),
        "list_always": Forged(WRONGLY, "not a property", "always false, true: rmax = 3"),
        "number_always": Forged(WRONGLY, "not a property", "always 1: rmax = 3"),
        "braces_possible": Forged(REFUSED, "not a property", "a lemma is not kept"),
        "braces_only_after": Forged(REFUSED, "not a property", "claim 1 is not written as the kernel reads it"),
        "braces_always_for_all": Forged(REFUSED, "not a property", "a fault is not excluded"),
        "between_in_a_part": Forged(
            WRONGLY,
            "not a property: what is counted needs parentheses",
            "at most 0 query_llm and false between true and false: rmax = 3",
        ),
        "number_unchanged": Forged(ACCEPTED, "a number never changes", "on verdict: 0 unchanged: rmax = 3"),
        # parameter values
        "value_in_wide_digits": Forged(WRONGLY, "not a number of the language", "no fault: rmax = １"),
        "value_with_white_space": Forged(WRONGLY, "not a number of the language", "no fault: rmax =  0_0 "),
        "value_of_no_parameter": Forged(WRONGLY, "a value of a name that the machine has not", "no fault: rmax = 3"),
        "value_below_the_domain": Forged(REFUSED, "rmax is at least 0", "a fault is not excluded"),
        "value_not_a_number": Forged(REFUSED, "NaN is not valid JSON", "claim 1 is not written as the kernel reads it"),
        "number_of_5000_digits": Forged(REFUSED, "more than is read", "claim 1 is not written as the kernel reads it"),
        # the certificate itself
        "machine_twice": Forged(REFUSED, "two machines in one certificate", "it is about another machine"),
        "claims_none": Forged(WRONGLY, "it claims nothing", "# dual_state 5192f4a1901531c0"),
    },
    # dual_state with one retry too many
    "broken": {"broken_no_fault": Forged(WRONGLY, "retries leave their domain", "no fault: for all values")},
    # its final states are end.failed and end.target, which rows and properties call by their last part
    "short": {
        "short_never_failed": Forged(WRONGLY, "end.failed is reached", "never failed: for all values"),
        "short_never_target": Forged(WRONGLY, "end.target is reached", "never target: for all values"),
        "short_at_most": Forged(WRONGLY, "both are reached", "at most 0 failed or target: for all values"),
        "short_leads_to": Forged(WRONGLY, "go may end in end.failed", "go leads to not failed: for all values"),
        "short_never_full": Forged(REFUSED, "end.failed is reached", "not never end.failed"),
    },
    "dom": {
        "dom_no_fault": Forged(REFUSED, "k is at least 1", "a fault is not excluded"),
        "dom_never": Forged(REFUSED, "k is at least 1", "a fault is not excluded"),
        "dom_always": Forged(REFUSED, "k is at least 1", "a fault is not excluded"),
    },
    # a row sets workflow state on g.failed, at a value outside its domain
    "gd": {
        "guarded_by_domain_of_n": Forged(
            WRONGLY,
            "the claim is about all values, and the evidence takes a domain for granted",
            "workflow state is set by guards that passed (Definition 4): for all values",
        ),
        "guarded_by_both_domains": Forged(
            WRONGLY,
            "the claim is about all values, and the evidence takes domains for granted",
            "workflow state is set by guards that passed (Definition 4): for all values",
        ),
        "guarded_by_domain_of_w": Forged(REFUSED, "w is set on g.failed", "w is set"),
        "guarded_by_nothing": Forged(REFUSED, "w is set on g.failed", "claim 1 is not written as the kernel reads it"),
        "guarded_honest": Forged(REFUSED, "w is set on g.failed", "w is set"),
    },
}
EACH = [pytest.param(document, name, id=name) for document, forged in FORGED.items() for name in forged]


@pytest.mark.parametrize(("document", "name"), EACH)
def test_what_is_said_of_a_forged_certificate(document, name):
    forged = FORGED[document][name]
    said = CliRunner().invoke(program, ["verify", str(FOLDER / f"{name}.json"), str(FOLDER / f"{document}.md")])
    assert said.exit_code == (1 if forged.today == REFUSED else 0), forged.why
    assert forged.sentence in (said.stderr if forged.today == REFUSED else said.stdout)


def test_every_file_is_in_the_table_and_is_about_one_claim():
    assert {path.stem for path in FOLDER.glob("*.json")} == {name for forged in FORGED.values() for name in forged}
    assert {path.stem for path in FOLDER.glob("*.md")} == set(FORGED)
    for path in FOLDER.glob("*.json"):
        claims = json.loads(path.read_text(encoding="utf-8"))["claims"]
        assert len(claims) == (path.stem not in {"claims_none", "machine_twice"})
