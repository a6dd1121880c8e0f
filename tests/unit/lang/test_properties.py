import pytest

from dsa.declarations import (
    Always,
    AtMost,
    EverywherePossible,
    ExpectedCount,
    LeadsTo,
    Never,
    OnlyAfter,
    Possible,
    Probability,
    UnchangedClaim,
    show,
)
from dsa.lang import dumps, loads


def read(text, machine):
    return machine(("- never done and writing", f"- {text}")).properties[1]


@pytest.mark.parametrize(
    ("text", "form", "written"),
    [
        ("always retries<=rmax", Always, "always retries <= rmax"),
        ("never over and not done", Never, "never over and not done"),
        (
            "on g.failed or artifact: done, retries unchanged",
            UnchangedClaim,
            "on g.failed or artifact: done, retries unchanged",
        ),
        ("specification leads to over", LeadsTo, "specification leads to over"),
        (
            "idle leads to over assuming fair verdict, query_llm",
            LeadsTo,
            "idle leads to over assuming fair verdict, query_llm",
        ),
        ("over only after done", OnlyAfter, "over only after done"),
        ("at most rmax+1 query_llm", AtMost, "at most rmax + 1 query_llm"),
        (
            "at most 2 (artifact or verdict) between idle and (over or done)",
            AtMost,
            "at most 2 (artifact or verdict) between idle and (over or done)",
        ),
        ("at most 3 (-1 < retries)", AtMost, "at most 3 (-1 < retries)"),
        ("possible pending query_llm", Possible, "possible pending query_llm"),
        ("from everywhere possible over", EverywherePossible, "from everywhere possible over"),
        ("done with probability >= 0.95", Probability, "done with probability >= 0.95"),
        ("expected query_llm <= 2", ExpectedCount, "expected query_llm <= 2.0"),
        ("expected (not done) <= 2.5", ExpectedCount, "expected (not done) <= 2.5"),
        ("expected (retries > 1) <= 2.5", ExpectedCount, "expected (retries > 1) <= 2.5"),
        ("always true in {(done or idle)}", Always, "always true in {(done or idle)}"),
        ("`always done`", Always, "always done"),
        ("always work", Always, "always work"),
        ("always writing", Always, "always work.writing"),
        ("never query_llm.failed", Never, "never query_llm.failed"),
    ],
)
def test_property_is_read_and_written(text, form, written, machine):
    found = read(text, machine)
    assert isinstance(found.form, form)
    assert show(found.form) == written
    whole = machine(("- never done and writing", f"- {text}"))
    assert loads(dumps(whole)) == whole


@pytest.mark.parametrize(
    ("text", "code", "pointed"),
    [
        ("sometimes done", "DSA109", "done"),
        ("always", "DSA109", ""),
        ("always done and", "DSA109", ""),
        ("done leads over", "DSA109", "leads"),
        ("on done: retries", "DSA109", ""),
        ("at most query_llm", "DSA109", ""),
        ("at most 2 artifact between idle and over or done", "DSA109", "or"),
        ("done with probability > 0.5", "DSA109", ">"),
        ("expected query_llm < 2", "DSA109", "<"),
        ("always retries", "DSA204", "retries"),
        ("at most done query_llm", "DSA204", "done"),
        ("always nothing", "DSA201", "nothing"),
        ("always pending log", "DSA201", "pending log"),
        ("idle leads to over assuming fair verdit, verdict", "DSA201", "verdit"),
        ("idle leads to over assuming fair verdict, verdic", "DSA201", "verdic"),
        ("always g", "DSA201", "g"),
    ],
)
def test_fault_in_a_property_is_marked_at_its_place(text, code, pointed, faults):
    assert [(kind, shown.strip()) for kind, shown in faults(("- never done and writing", f"- {text}"))] == [
        (code, pointed)
    ]


def test_property_may_continue_on_the_next_line(faults, machine):
    assert machine(("- never done and writing", "- never done\n  and writing")) == machine()
    assert faults(("- never done and writing", "- never done\n  and writng")) == [("DSA201", "writng")]
