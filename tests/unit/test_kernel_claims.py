"""Claims to the kernel: falling ranks, no deadlock, guards that passed; and its table of steps."""

from itertools import product

import pytest
from each_row import each_row
from kernel_tables import table

from dsa.checks.certificate_proofs import Prover, require_same_steps
from dsa.checks.certificate_writer import behaviour
from dsa.edge.document_files import load
from dsa.errors import UndecidedError
from dsa.kernel import DEFINITION_4, NO_DEADLOCK, REST, TABLE, Claim
from dsa.lang import dumps, loads

#: How the kernel refuses: with a reason, or with the error of a malformed certificate.
REFUSED = (AssertionError, SyntaxError, TypeError, KeyError, ValueError, IndexError, AttributeError, StopIteration)
DUAL_STATE = load("dual_state")
TEXT = dumps(behaviour(DUAL_STATE))
OFF_BY_ONE = loads(dumps(DUAL_STATE).replace("retries < rmax", "retries <= rmax"))


# -- forged ranks ------------------------------------------------------------------------------------------------------

#: An effect that each answer emits again, and events from outside; only `leave` leads out.
LOOP = "# loop\n" + table("Events", "event; from", "again; outside", "leave; outside", "answer; ask", "go; outside")
LOOP += table("States", "state; kind", "s; initial", "a; ", "b; final")
LOOP += table(
    "Transitions",
    "source; event; if; update; effects; target",
    "s; go; ; ; ask; a",
    "a; again; ; ; ; =",
    "a; answer; ; ; ask; =",
    "a; leave; ; ; ; b",
)
WAIT = "s :flag=0 :count=0", "a ask :flag=1 :count=0"


@each_row("reason", ["", "ask", "fair again", "fair leave", "fair go", "other", "fair answer"])
@each_row("number", ["0", "1", "-1", "1 - 1", ":count", "true"])
def test_no_rank_proves_a_goal_that_may_never_come(reason, number):
    for fair in ("again", "again, answer", None):
        form = "{} leads to {}" if fair is None else "{} leads to {} assuming fair {}"
        parts = ["a", "b"] if fair is None else ["a", "b", fair]
        claim = {"form": form, "parts": parts, "at": {}, "proofs": []}
        for ranks in ([[number, reason]], [[number, reason], ["0", ""]], [["0", ""], [number, reason]], []):
            with pytest.raises(REFUSED):
                Claim(LOOP, claim | {"ranks": {WAIT[1]: ranks}}).explore()
    fairly = {"form": "{} leads to {} assuming fair {}", "parts": ["a", "b", "leave"], "at": {}, "proofs": []}
    Claim(LOOP, fairly | {"ranks": {WAIT[1]: [["0", "fair leave"]]}}).explore()


@each_row("ranks", [{"s": 0}, {"s": 1, "a ask": 0}, {"s": 0, "a ask": 0, "b": 0}, {"s": -1, "a ask": -2}, {}])
@each_row("reason", ["", "ask"])
def test_no_rank_proves_that_an_impossible_event_is_possible(ranks, reason):
    written = {f"{key} :flag=1 :count=0": [[str(number), reason]] for key, number in ranks.items()}
    for form in "possible {}", "from everywhere possible {}":
        claim = {"form": form, "parts": ["b and go"], "at": {}, "proofs": [], "ranks": written}
        with pytest.raises(REFUSED):
            Claim(LOOP, claim).explore()


@each_row("reason", ["", "ask", "fair answer", "other"])
@each_row("number", ["0", "1", "-1", ":count", "0 - :count", "true"])
def test_no_rank_proves_that_an_endless_loop_comes_to_rest(number, reason):
    claim = {"form": REST, "parts": [], "at": {}, "proofs": []}
    for key in (*WAIT, "a ask :flag=1 :count=1"):
        for ranks in ([[number, reason]], [[number, reason], ["0", ""]], [["0", ""], [number, reason]], []):
            with pytest.raises(REFUSED):
                Claim(LOOP, claim | {"ranks": {WAIT[0]: ranks, WAIT[1]: ranks, key: ranks}}).explore()
    resting = LOOP.replace("| a | answer |  |  | ask |", "| a | answer |  |  |  |")
    assert resting != LOOP
    ranks = {"s :flag=1 :count=0": [["0", ""]], WAIT[1]: [["1", ""]], "a :flag=1 :count=0": [["0", ""]]}
    Claim(resting, claim | {"ranks": ranks | {"b :flag=1 :count=0": [["0", ""]]}}).explore()


@pytest.mark.parametrize("number", ["0 - x", "x", "10 - x", "0 - x * x", "0"])
def test_rank_that_falls_without_end_proves_nothing(number):
    """x grows for ever (a document cannot declare such a variable), and a number that falls below 0 without end proves no end."""
    growing = "# growing\n" + table("Variables", "variable; scope; domain; initial", "x; environment; 0..; 0")
    growing += table("Events", "event; from", "answer; ask", "go; outside") + table(
        "States", "state; kind", "s; initial", "a; "
    )
    rows = "s; go; ; ; ask; a", "a; answer; ; x += 1; ask; ="
    growing += table("Transitions", "source; event; if; update; effects; target", *rows)
    ranks = {key: [[number, ""]] for key in ("s", "a ask")}
    with pytest.raises(
        UndecidedError, match="z3 proves the claim, but dsa found no evidence that satisfies the kernel"
    ):
        Prover(growing, frozenset(ranks)).prove_claim({"form": REST, "parts": [], "ranks": ranks})


def test_two_promises_fulfilled_in_turn_prove_no_end():
    """Each state emits again the effect that the other one waits for."""
    turns = "# turns\n" + table("Events", "event; from", "go; outside", "one; ask_one", "two; ask_two")
    turns += table("States", "state; kind", "s; initial", "a; ", "b; ", "f; final")
    rows = (
        "s; go; ; ; ask_one, ask_two; a",
        "a; one; ; ; ; f",
        "a; two; ; ; ask_two; b",
        "b; two; ; ; ; f",
        "b; one; ; ; ask_one; a",
    )
    turns += table("Transitions", "source; event; if; update; effects; target", *rows)
    claim = {"form": "{} leads to {}", "parts": ["go", "f"], "at": {}, "proofs": []}
    nodes = [f"{state} ask_one ask_two :flag=1 :count=0" for state in "ab"]
    for promises in product(("ask_one", "ask_two"), repeat=2):
        with pytest.raises(AssertionError, match="the rank does not fall"):
            Claim(
                turns, claim | {"ranks": {node: [["0", why]] for node, why in zip(nodes, promises, strict=True)}}
            ).explore()


# -- obligations of every machine --------------------------------------------------------------------------------------

#: A machine without rows, with two parameters, p and r, for the conditions of a row.
STAYS = "# stays\n" + table("Parameters", "parameter; domain; default", "p; 0..; 0", "r; 0..; 0")
STAYS += table("Events", "event; from", "go; outside", "answer; ask") + table(
    "States", "state; kind", "a; initial", "b; final"
)


@pytest.mark.parametrize(
    ("row", "is_stuck"),
    [
        ("a; go; p > r; ; ; b", True),
        ("a; go; p >= r or r > p; ; ; b", False),
        ("a; answer; ; ; ; b", True),
        ("a; after 1s; ; ; ; b", False),
        ("*; after 1s; ; ; ; b", False),
        ("b; after 1s; ; ; ; b", True),
    ],
)
def test_machine_is_stuck_where_nothing_can_happen(row, is_stuck):
    text = STAYS + table("Transitions", "source; event; if; update; effects; target", row)
    at = {"p": "2", "r": "2"}
    attempts = (
        lambda: Claim(text, {"form": NO_DEADLOCK, "parts": [], "proofs": [], "at": at}).explore(),
        lambda: Prover(text, frozenset({"a", "b"})).prove_claim({"form": NO_DEADLOCK, "parts": []}),
    )
    for attempt in attempts:
        if is_stuck:
            with pytest.raises(
                (AssertionError, UndecidedError), match=r"may not be able to go on|a row cannot have the source b"
            ):
                attempt()
        else:
            attempt()


JUDGED = "# judged\n" + table("Parameters", "parameter; domain; default", "p; 0..; 0")
JUDGED += table("Variables", "variable; scope; domain; initial", "x; workflow; bool; false", "y; environment; 0..p; 0")
JUDGED += table("Events", "event; from", "said; outside", "read; outside", "approved; outside")
JUDGED += table("Guards", "guard; judges; verdicts", "g; said; ", "h; ; passed, failed")
JUDGED += table("States", "state; kind", "a; initial", "b; ")


@each_row(
    ("rows", "is_guarded"),
    [
        (["a; said; g.passed; x = true; ; b"], True),
        (["a; said; not g.failed; x = true; ; b"], False),
        (["a; said; g.failed; x = false; ; b"], False),
        (["a; said; g.failed; y = 0; ; b"], True),
        (["a; said; g.failed; revoke x; ; b"], True),
        (["a; said; g.failed; revoke x; ; b", "a; said; else; x = true; ; b"], False),
        (["a; said; g.failed or g.fatal; ; ; b", "a; said; else; x = true; ; b"], True),
        (["a; said; ; x = true; ; b"], False),
        (["a; approved; ; x = true; ; b"], True),
        (["a; approved; ; x = true; ; b", "b; approved; h.passed; ; ; b"], False),
        (["a; read; h.passed; x = true; ; b", "a; read; else; ; ; a"], True),
        (["a; read; not h.passed; x = true; ; b"], False),
        (["a; said; g.passed and h.passed; x = true; ; b"], True),
        (["a; said; g.passed or h.passed; x = true; ; b"], False),
        (["a; said; g.passed and y > p; x = true; ; b"], True),
        (["a; said; g.passed or y > p; x = true; ; b"], False),  # values count as free, also outside their domain
        (["a; said; y <= p; ; ; a", "a; said; else and y == 7; x = true; ; b"], False),
        (["a; said; g.passed; y = p + 1; ; b", "b; said; g.failed; x = true; ; a"], False),  # a fault does not hide anything either
        (["a; said; g.passed; x = true; ; b", "a; said; h.failed; ; ; a"], True),  # a guard of another row
        (["a; said; g.passed; x = true; ; b", "a; said; h.failed or g.fatal; ; ; a", "a; said; else; x = false; ; a"], False),
    ],
)  # fmt: skip
def test_workflow_state_is_set_by_guards_that_passed(rows, is_guarded):
    text = JUDGED + table("Transitions", "source; event; if; update; effects; target", *rows)
    claim = Claim(text, {"form": DEFINITION_4, "parts": [], "proofs": []})
    if is_guarded:
        claim.explore()
    else:
        with pytest.raises(AssertionError, match="x is set"):
            claim.explore()


# -- the generated step ------------------------------------------------------------------------------------------------

#: x is 0 in every run; only the comparison of steps covers its other values.
FAR = "# far\n" + table(
    "Variables", "variable; scope; domain; initial", "x; environment; 0..3; 0", "pace; environment; {fast, slow}; fast"
)
FAR += table("Events", "event; from", "go; outside", "done; work", "other; rest")
FAR += table("States", "state; kind", "a; initial", "b; ", "b.c; initial", "b.d; ", "e; final")
FAR_ROWS = (
    "a; go; x < 2; ; work, rest; b",
    "a; go; x == 3; x -= 1; cancel; a",
    "b; done; pace == slow; pace = fast; work; b.d",
    "b; done; else; ; ; e",
    "b.d; after 1s; ; x = 0; rest; =",
    "b; other; x in {1, 3}; ; cancel work; a",
)  # fmt: skip


def far(*rows: str) -> str:
    return FAR + table("Transitions", "source; event; if; update; effects; target", *rows)


STEPS = {"form": TABLE, "parts": [], "at": {}, "proofs": []}


def test_rows_match_the_compiled_step_at_every_configuration():
    claim = Claim(far(*FAR_ROWS), STEPS)
    require_same_steps(loads(far(*FAR_ROWS)), claim)
    for place, row in enumerate(FAR_ROWS):
        for old, new in [("<", "<="), ("== 3", "== 2"), ("x -= 1", "x -= 2"), ("; cancel;", "; ;"), ("; work;", "; ;"), ("slow;", "fast;"),
                         ("= fast", "= slow"), ("b.d", "b.c"), ("; ; e", "; ; a"), ("1s", "2s"), ("= 0", "= 1"), ("; rest; =", "; rest; b.c"), ("work, rest", "rest, work"),
                         ("3}", "2}"), ("cancel work", "cancel rest"), ("cancel work", "cancel"), ("; rest;", "; rest, work;")]:  # fmt: skip
            if old not in row:
                continue
            changed = far(*FAR_ROWS[:place], row.replace(old, new), *FAR_ROWS[place + 1 :])
            with pytest.raises(AssertionError, match="the generated step differs from the table in"):
                require_same_steps(loads(changed), claim)
        with pytest.raises(AssertionError, match="the generated step differs from the table in"):
            require_same_steps(loads(far(*FAR_ROWS[:place], *FAR_ROWS[place + 1 :])), claim)


def test_table_has_every_occurrence_once():
    """Events from outside, answers and failures of both effects, and the timer, in each leaf, for all values of the names in the rows."""
    claim = Claim(far(*FAR_ROWS), STEPS)
    entries = [
        (leaf, sorted(out), known, sorted(order), happened) for (leaf, out, known, order), happened, _ in claim.table()
    ]
    assert all(entry not in entries[:place] for place, entry in enumerate(entries))
    assert {(leaf, happened[0]) for leaf, _, _, _, happened in entries} == set(
        product(("a", "b.c", "b.d", "e"), ("go", "done", "other", "work.failed", "rest.failed", "b.d after 1s"))
    )
    taken = {(leaf, happened[0]) for (leaf, *_), happened, after in claim.table() if after is not None}
    assert taken == {
        ("a", "go"),
        ("b.c", "done"),
        ("b.c", "other"),
        ("b.d", "done"),
        ("b.d", "other"),
        ("b.d", "b.d after 1s"),
    }


def test_steps_are_compared_at_the_values_of_the_claim():
    for rmax in "3", "2", "0":
        require_same_steps(DUAL_STATE, Claim(TEXT, STEPS | {"at": {"rmax": rmax}}))
    with pytest.raises(AssertionError, match="the generated step differs from the table in validating on verdict"):
        require_same_steps(OFF_BY_ONE, Claim(TEXT, STEPS | {"at": {"rmax": "2"}}))
    for at in {"rmax": "-1"}, {"rmax": "１"}, {"rmax": " 2"}, {"rmax": "02"}, {"rmax": "2", "more": "1"}:
        with pytest.raises(AssertionError):
            require_same_steps(DUAL_STATE, Claim(TEXT, STEPS | {"at": at}))
    for at in {}, None:
        with pytest.raises(REFUSED):
            require_same_steps(DUAL_STATE, Claim(TEXT, STEPS | {"at": at}))
