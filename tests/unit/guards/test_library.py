import pytest
from each_row import each_row

from dsa.declarations import Case, Cases, Guard, StepRow
from dsa.errors import BindingError, Span
from dsa.guards.code import SyntaxGuard
from dsa.guards.guard_kinds import KINDS, build_guard, register
from dsa.lang import loads
from dsa.machine import Machine
from dsa.runtime.content import Artifact, GuardInterface, GuardResult

GOOD = Artifact(content="def f(): return 1")
SPAN = Span("m.md", 7, 3, 5, "| g | cases |")


def machine(*guards, cases=(), steps=()):
    return Machine("m", (), (), "", guards=guards, cases=cases, steps=steps)


def cases(name, expected="1"):
    return Cases(name, (Case("f()", expected),))


def test_declared_guard_is_built_from_its_kind_and_cases():
    guard = build_guard("g", machine(Guard("g", kind="cases"), cases=(cases("g"),)))
    assert guard.validate(GOOD).passed


def test_name_is_the_kind_by_default():
    assert isinstance(build_guard("syntax", machine(Guard("syntax"))), SyntaxGuard)
    assert isinstance(build_guard("syntax", machine()), SyntaxGuard)


def test_step_asks_its_guards_in_order_and_prefers_its_own_cases():
    step = StepRow("g_impl", "llm", ("syntax", "cases"))
    both = machine(steps=(step,), cases=(cases("cases", "2"), cases("g_impl", "1")))
    assert build_guard("g_impl", both).validate(GOOD).passed
    assert build_guard("g_impl", both).validate(Artifact(content="f(")).feedback.startswith("syntax: ")
    only_general = machine(steps=(step,), cases=(cases("cases", "2"),))
    assert build_guard("g_impl", only_general).validate(GOOD).feedback.startswith("cases: ")


def test_step_may_name_declared_guards():
    step = StepRow("s", "llm", ("mine",))
    declared = machine(Guard("mine", kind="cases"), steps=(step,), cases=(cases("mine"),))
    assert build_guard("s", declared).validate(GOOD).passed


def test_options_are_read_by_their_type():
    options = (("show_expected", "yes"), ("timeout_s", "2.5"))
    guard = build_guard("g", machine(Guard("g", kind="cases", options=options), cases=(cases("g", "2"),)))
    assert guard.validate(GOOD).feedback == "The call failed:\nf() gave 1, expected 2"


def test_compositions_are_built_from_their_parts():
    rows = (
        Guard("strong", kind="at_least", options=(("k", "2"), ("of", "syntax, a, b"))),
        Guard("a", kind="cases"),
        Guard("b", kind="any", options=(("of", "c, a"),)),
        Guard("c", kind="cases"),
    )
    built = build_guard("strong", machine(*rows, cases=(cases("a", "2"), cases("c", "1"))))
    assert built.validate(GOOD).passed
    assert "a: " in built.validate(Artifact(content="f = 1")).feedback


class Mine(GuardInterface):
    def validate(self, artifact, **dependencies):
        return GuardResult(passed=False, feedback="mine")


def test_guards_of_the_user_come_first_by_name_and_by_kind():
    mine = Mine()
    assert build_guard("syntax", machine(), {"syntax": mine}) is mine
    assert build_guard("g", machine(Guard("g", kind="special")), {"special": mine}) is mine
    of = machine(Guard("g", kind="all", options=(("of", "syntax, special"),)))
    assert build_guard("g", of, {"special": mine}).validate(GOOD).feedback == "special: mine"


def test_users_can_register_kinds_with_options(monkeypatch):
    monkeypatch.setattr("dsa.guards.guard_kinds.KINDS", dict(KINDS))

    @register("longest")
    class Longest(GuardInterface):
        """Pass at most `limit` characters."""

        def __init__(self, limit: int, words: tuple[str, ...] = ()) -> None:
            self.limit, self.words = limit, words

        def validate(self, artifact, **dependencies):
            return GuardResult(passed=len(artifact.content) <= self.limit)

    options = (("limit", "3"), ("words", "a, b"))
    built = build_guard("g", machine(Guard("g", kind="longest", options=options)))
    assert (built.limit, built.words) == (3, ("a", "b"))


def test_built_in_kind_cannot_be_registered_again():
    before = KINDS["syntax"]
    with pytest.raises(ValueError, match="'syntax' is one of dsa's own kinds: register yours under another name"):
        register("syntax")(Mine)
    assert KINDS["syntax"] is before


def test_every_kind_has_a_description_and_its_options():
    assert {name: (kind.description.endswith((".", ")")), len(kind.options)) for name, kind in KINDS.items()} == {
        "syntax": (True, 0),
        "cases": (True, 4),
        "pytest": (True, 7),
        "tests": (True, 6),
        "are_tests": (True, 4),
        "forbidden": (True, 3),
        "regex": (True, 5),
        "json": (True, 2),
        "pydantic": (True, 2),
        "command": (True, 8),
        "ruff": (True, 6),
        "mypy": (True, 5),
        "review": (True, 1),
        "in_order": (True, 0),
        "judge": (True, 1),
        "all": (True, 2),
        "any": (True, 2),
        "at_least": (True, 3),
    }


@each_row(
    ("guard", "message"),
    [
        (Guard("g", kind="casse", span=SPAN), "m.md:7:3: guard g is of kind 'casse', which is not bound to anything"),
        (Guard("g", kind="casse"), "did you mean 'cases'?"),
        (Guard("g", kind="cases"), "add a section '## Cases: g'"),
        (Guard("g", kind="syntax", options=(("level", "1"),)), "no option 'level'"),
        (Guard("g", kind="all"), "which combines other guards, but it names none"),
        (Guard("g", kind="at_least", options=(("of", "syntax"),)), "needs the option 'k'"),
        (Guard("g", kind="at_least", options=(("of", "syntax"), ("k", "two"))), "'k' of guard g is 'two', not a whole"),
        (
            Guard("g", kind="at_least", options=(("of", "syntax"), ("k", "2"))),
            "k = 2 is not possible with 1 guard: k must be 1 to 1",
        ),
        (Guard("g", kind="all", options=(("of", "g"),)), "guard 'g' is a part of itself"),
        (Guard("g", kind="all", options=(("of", "syntex"),)), "did you mean 'syntax'?"),
        (Guard("g", kind="special", options=(("a", "1"),)), "takes no options"),
    ],
)
def test_every_mistake_is_one_error_that_says_what_to_do(guard, message):
    with pytest.raises(BindingError) as raised:
        build_guard("g", machine(guard), {"special": Mine()})
    assert message in str(raised.value)


def test_longer_cycle_is_shown():
    rows = (Guard("a", kind="all", options=(("of", "b"),)), Guard("b", kind="any", options=(("of", "a"),)))
    with pytest.raises(
        BindingError, match="guard 'a' is a part of itself: 'a' is a part of 'b' and 'b' is a part of 'a'"
    ):
        build_guard("a", machine(*rows))


def test_invalid_case_is_a_binding_error_with_its_place():
    bad = Cases("g", (Case("f(", "1"),), span=SPAN)
    with pytest.raises(BindingError, match=r"m.md:7:3: guard g: the call 'f\(' is not a Python expression"):
        build_guard("g", machine(Guard("g", kind="cases"), cases=(bad,)))


STEPS = """# m

## Guards
| guard | is    | options           |
| ----- | ----- | ----------------- |
| both  | all   | of = mine, syntax |
| mine  | tests |                   |

## Steps
| step | requires | guard  | uses         |
| ---- | -------- | ------ | ------------ |
| a    |          | syntax |              |
| b    | a        | GUARD  | USES         |
"""


@pytest.mark.parametrize("guard", ["tests", "syntax, tests", "mine", "both"])
def test_guard_of_kind_tests_requires_tests_that_its_step_uses(guard):
    text = STEPS.replace("GUARD", guard)
    for uses in ("", "code = a"):
        with pytest.raises(BindingError, match=r":13:3: guard \w+ of step b needs the tests of an earlier") as raised:
            build_guard("b", loads(text.replace("USES", uses)))
        assert (
            raised.value.hint == "write test = STEP in the column 'uses', where STEP is the step that makes the tests"
        )
    assert build_guard("b", loads(text.replace("USES", "test = a")))
    assert build_guard("tests", machine()), "outside of steps it is unknown what is used"


def test_invalid_python_in_tests_of_the_user_is_a_fault_of_the_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m2.py").write_text("def test_add(:\n")
    row = Guard("g", kind="pytest", options=(("file", "m2.py"),), span=SPAN)
    with pytest.raises(BindingError, match=r"m.md:7:3: guard g: the code of the tests has a syntax error in line 1"):
        build_guard("g", machine(row))


def test_name_that_would_forbid_nothing_is_refused_with_its_line():
    row = Guard("g", kind="forbidden", options=(("imports", "os os"),), span=SPAN)
    with pytest.raises(
        BindingError, match=r"m.md:7:3: guard g: imports lists forbidden names, but 'os os' is not a name"
    ):
        build_guard("g", machine(row))
