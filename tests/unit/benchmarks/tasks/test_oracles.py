"""Guards and oracles on answers whose quality is known: the references, and the scripts, each reply with its label."""

from pathlib import Path

import pytest
from benchmarks.tasks import oracles
from benchmarks.tasks.models import AFTER_FEEDBACK, SCRIPTS
from benchmarks.tasks.oracles import calls_of, oracle_of, sequence
from benchmarks.tasks.references.lru import LRUCache
from benchmarks.tasks.references.tdd_stack import Stack
from benchmarks.tasks.tasks import KATAS, PUBLISHED, SETS, task_named
from each_row import each_row

from dsa.generators.substitutes import parse_script
from dsa.runtime.content import Artifact

REFERENCES = Path(oracles.__file__).parent / "references"
SOURCES = dict.fromkeys(KATAS, "katas") | {"tdd_lrucache": "lru"}
SINGLE = [name for name in PUBLISHED if not name.startswith("tdd_")]
TWO_STEP = [name for name in PUBLISHED if name.startswith("tdd_")]


def replies_of(name, step):
    """Return the replies of a script for a step, each once."""
    replies = parse_script((SCRIPTS / f"{name}.md").read_text(encoding="utf-8"))
    return list(dict.fromkeys([*replies[step], *replies.get(f"{step}{AFTER_FEEDBACK}", ())]))


def label_of(reply):
    return reply.partition("\n")[0].removeprefix("# ").partition(":")[0]


def labelled(names, step):
    return [
        pytest.param(name, reply, id=f"{name} {reply.partition(chr(10))[0]}")
        for name in names
        for reply in replies_of(name, step or name)
    ]


def reference_of(name):
    return Artifact((REFERENCES / f"{SOURCES.get(name, name)}.py").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [*SINGLE, *KATAS])
def test_guard_passes_the_reference(name):
    assert task_named(name).guards[name].validate(reference_of(name)).passed


@each_row("name", SETS["all"])
def test_oracle_finds_no_fault_in_the_reference(name):
    assert oracle_of(name).fault(reference_of(name)) == ""


@pytest.mark.parametrize(("name", "reply"), labelled(SINGLE, None))
def test_reply_is_judged_as_its_label_says(name, reply):
    passed = task_named(name).guards[name].validate(Artifact(reply)).passed
    assert passed == (label_of(reply) != "wrong")
    assert (not oracle_of(name).fault(Artifact(reply))) == (label_of(reply) == "right")


@pytest.mark.parametrize(("name", "reply"), labelled(TWO_STEP, "g_impl"))
def test_code_is_judged_as_its_label_says_by_whole_and_by_weak_tests(name, reply):
    guards, passed = task_named(name).guards, set()
    for tests in replies_of(name, "g_test"):
        if (
            guards["g_test"].validate(Artifact(tests)).passed
            and guards["g_impl"].validate(Artifact(reply), test=Artifact(tests)).passed
        ):
            passed.add(label_of(tests))
    assert passed == {"right": {"whole", "weak"}, "gap": {"weak"}, "wrong": set()}[label_of(reply)]
    assert (not oracle_of(name).fault(Artifact(reply))) == (label_of(reply) == "right")


@pytest.mark.parametrize("name", TWO_STEP)
def test_tests_pass_their_guard_unless_labelled_wrong(name):
    guard = task_named(name).guards["g_test"]
    assert all(
        guard.validate(Artifact(reply)).passed == (label_of(reply) != "wrong") for reply in replies_of(name, "g_test")
    )


def test_scripts_have_every_known_gap_of_the_published_guards():
    gaps = {
        reply.partition("\n")[0]
        for name in ("password", "lru")
        for reply in replies_of(name, name)
        if label_of(reply) == "gap"
    }
    assert gaps == {
        "# gap: no prime rule",
        "# gap: no length rule",
        "# gap: no rule on kinds of characters",
        "# gap: no rule on alphabetic sequences",
        "# gap: the one valid password of the cases",
        "# gap: put does not refresh",
        "# gap: a list is searched",
    }


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("is_palindrome", "def is_palindrome(text):\n    return text in ('anna', '')"),
        ("factorial", "def factorial(n):\n    return 120 if n else 1"),
        ("fibonacci", "def fibonacci(n):\n    return {0: 0, 1: 1}.get(n, 13)"),
        ("is_prime", "def is_prime(n):\n    return n in (2, 3, 5, 7)"),
    ],
)
def test_code_that_knows_only_the_cases_passes_the_guard_and_fails_the_oracle(name, code):
    assert task_named(name).guards[name].validate(Artifact(code)).passed
    assert oracle_of(name).fault(Artifact(code))


def test_oracle_of_passwords_tries_many_valid_and_many_invalid_ones():
    ((calls, _),) = calls_of("password")
    assert sum(expected is True for _, expected in calls) >= 100
    assert sum(expected is False for _, expected in calls) >= 100


def test_oracle_does_not_try_what_the_prompt_leaves_open():
    ((calls, _),) = calls_of("password")
    mirrored = [call for call, _ in calls if any(run in call.lower() for run in ("cba", "zyx", "edc", "nml"))]
    assert mirrored == []


def test_sequence_expects_results_and_errors():
    call, expected = sequence("Stack()", Stack(), [("pop", (), True), ("push", (5,), False), ("pop", (), True)])
    assert expected == [None, None, 5]
    assert "assertRaises(IndexError, it.pop)" in call
    assert eval(call, {"Stack": Stack}) == expected
    silent = type("Silent", (Stack,), {"pop": lambda self: self.items.pop() if self.items else None})
    with pytest.raises(AssertionError, match="IndexError not raised"):
        eval(call, {"Stack": silent})


def test_oracle_makes_the_same_calls_each_time():
    assert calls_of("password") == calls_of("password")
    assert calls_of("lru") == calls_of("lru")
    call, _ = sequence("LRUCache(1)", LRUCache(1), [("put", (1, 2), False), ("get", (1,), True)])
    assert call == "(lambda it: [(it.put(1, 2), None)[1], it.get(1)])(LRUCache(1))"
