"""The kernel: small, alone, and not to be talked into anything."""

import ast
import hashlib
import io
import json
import random
import subprocess
import sys
import tokenize
from itertools import product
from pathlib import Path

import pytest

import dsa.kernel
from dsa.checks.certify import Certifier, behaviour, certify_proofs, certify_verdicts
from dsa.checks.certify_proofs import NoProofError, Prover
from dsa.checks.certify_steps import steps_digest
from dsa.checks.prove import prove
from dsa.checks.report import check
from dsa.edge.files import load
from dsa.kernel import GUARDED, REST, STUCK, TABLE, Claim, Unknown, value, verify
from dsa.lang import dumps, loads

SOURCE = Path(dsa.kernel.__file__)
MOST_LINES = 200
#: How the kernel refuses: it says why, or trips over what is no certificate.
REFUSED = (AssertionError, SyntaxError, TypeError, KeyError, ValueError, IndexError, AttributeError, StopIteration)
DUAL_STATE = load("dual_state")
TEXT = dumps(behaviour(DUAL_STATE))


def certificate(machine=DUAL_STATE) -> dict:
    about = behaviour(machine)
    certifier = Certifier(about, dumps(about))
    certify_proofs(certifier, prove(machine))
    certify_verdicts(certifier, check(machine))
    return certifier.certified().certificate


@pytest.fixture(scope="module")
def good() -> dict:
    return certificate()


def with_machine(content: dict, text: str) -> str:
    return json.dumps(content | {"machine": text, "digest": hashlib.sha256(text.encode()).hexdigest()})


# -- small and alone ---------------------------------------------------------------------------------------------------


def test_it_is_small():
    """200 lines of code; blank lines, comments and docstrings are not counted."""
    text = SOURCE.read_text()
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    bodies = [node.body[0] for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
    prose = {n for node in bodies if _is_text(node) for n in range(node.lineno, node.end_lineno + 1)}
    white = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in white]
    code = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - prose
    assert len(code) <= MOST_LINES


def _is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def test_it_imports_the_standard_library_alone():
    imported = [
        node for node in ast.walk(ast.parse(SOURCE.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    names = [alias.name for node in imported for alias in node.names]
    assert imported
    assert all(isinstance(node, ast.Import) for node in imported)
    assert set(names) <= sys.stdlib_module_names


def test_it_runs_alone(tmp_path, good):
    (tmp_path / "kernel.py").write_text(SOURCE.read_text())
    (tmp_path / "good.json").write_text(json.dumps(good))
    (tmp_path / "bad.json").write_text(json.dumps(good | {"digest": "0"}))

    def run(*words):
        done = subprocess.run([sys.executable, "-I", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    code, told = run("kernel.py", "good.json")
    assert code == 0
    assert told.splitlines() == list(verify(json.dumps(good)))
    assert told.startswith(f"# dual_state {hashlib.sha256(TEXT.encode()).hexdigest()}\nno fault: for all values\n")
    for said in STUCK, GUARDED, REST, "at most rmax + 1 query_llm":
        assert f"{said}: for all values\n" in told
    for said in STUCK, TABLE, "at most rmax + 1 query_llm":
        assert f"{said}: rmax = 3\n" in told
    assert run("kernel.py", "bad.json") == (1, "refused: the machine is another one\n")
    assert run("-O", "kernel.py", "good.json")[0] == 1


@pytest.mark.parametrize(
    "text", [None, "", "x", "{", "[]", "{}", "null", "3", '{"machine": 1, "digest": "", "claims": []}', "\xff"]
)
def test_alone_it_says_how_it_is_used_where_there_is_no_certificate(tmp_path, text):
    arguments = [] if text is None else ["no.json"]
    (tmp_path / "no.json").write_bytes((text or "").encode("latin-1"))
    done = subprocess.run(
        [sys.executable, "-I", SOURCE, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.startswith("usage: python kernel.py CERTIFICATE")
    assert len(done.stdout.splitlines()) == 1


# -- what it can be told -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["1.5", "x.y.z()", "'a' == 'a'", "x ** 2", "x # y", "x\n", "x if y else z", "[x]", "x in y", "() in x", "(*x,)", "(x := 1)",
     "lambda: 1", "x / 2", "x & y", "~x", "x @ y", "__import__", "x < (1, 2)", "x + (1,)", "0x10", "1_000", "1e5", "true.real"],
)  # fmt: skip
def test_what_is_no_expression_is_refused(text):
    """Whatever the kernel cannot ask both ways must not slip through as something that Python decides by itself."""
    Unknown.path = [], [], []
    with pytest.raises((AssertionError, SyntaxError, TypeError, KeyError)):
        value(text, {"x": Unknown({("x",): 1}), "y": Unknown({("y",): 1}), "true": True})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("## States", "## Steps"),
        ("## Guards", "## States"),
        ("| idle       | initial |", "| idle |"),
        ("| judges  |", "| judge   |"),
    ],
)
def test_a_table_that_it_does_not_know_is_refused(good, old, new):
    assert old in TEXT
    with pytest.raises(REFUSED):
        list(verify(with_machine(good, TEXT.replace(old, new, 1))))


# -- the off-by-one table ----------------------------------------------------------------------------------------------

OFF_BY_ONE = loads(dumps(DUAL_STATE).replace("retries < rmax", "retries <= rmax"))
OFF_TEXT = dumps(behaviour(OFF_BY_ONE))


def test_nothing_about_runs_of_the_off_by_one_table_is_certified():
    """Its workflow state is set by guards, and its generated step does what the rows say, wrong as they are."""
    made = certificate(OFF_BY_ONE)
    assert {claim["form"] for claim in made["claims"]} == {GUARDED, TABLE}


def test_the_certificate_of_the_right_table_does_not_fit_the_off_by_one_table(good):
    for claim in good["claims"]:
        if claim["form"] == GUARDED:
            continue  # it carries no evidence, and is true of both
        with pytest.raises(REFUSED):
            list(verify(with_machine(good | {"claims": [claim]}, OFF_TEXT)))


LEMMAS = (
    "retries < rmax", "retries <= rmax", "rmax >= 1", "retries == 0", "false", "not true", "retries in {0}", "0 <= retries",
    "retries * retries <= rmax * rmax", ":flag", ":count <= 0", "pending query_llm", "pending nothing", "retries + 1 <= rmax",
)  # fmt: skip


#: What names alone allow in dual_state.
LOCATIONS = frozenset({"idle", "generating query_llm", "validating execute_guard", "succeeded", "failed", "escalated"})


@pytest.mark.parametrize("form", ["no fault", "always retries <= rmax"])
def test_no_lemmas_certify_the_off_by_one_table(form):
    """The honest prover, handed every pair of wrong lemmas: nothing that it can find is accepted."""
    claim = (
        {"form": "no fault", "parts": []} if form == "no fault" else {"form": "always {}", "parts": ["retries <= rmax"]}
    )
    for one, other in product(LEMMAS, repeat=2):
        everywhere = {key: [one] for key in ("idle", "generating query_llm")} | {"validating execute_guard": [other]}
        with pytest.raises(NoProofError):
            Prover(OFF_TEXT, LOCATIONS).proved(claim | {"lemmas": everywhere})


def test_no_proofs_certify_the_off_by_one_table(good):
    """A forger may write any uses and multipliers, also fractions, negative and huge ones: no sum of what is true is negative."""
    source = random.Random(1)
    base = next(claim for claim in good["claims"] if claim["form"] == "no fault" and "at" not in claim)
    numbers = [0, 1, 2, 3, -1, -2, 0.5, 1e16, -1e16, 1e308, 10**30, -(10**30), True, None, "1"]
    for _ in range(2_000):
        proofs = [
            [
                source.sample(range(6), source.randrange(4)),
                *([[source.choice(numbers), *source.sample(range(5), source.randrange(3))] for _ in range(source.randrange(4))]
                  for _ in range(source.randrange(3))),
            ]
            for _ in base["proofs"]
        ]  # fmt: skip
        lemmas = {key: source.sample(LEMMAS, 2) for key in ("validating execute_guard", "generating query_llm")}
        with pytest.raises(REFUSED):
            Claim(OFF_TEXT, base | {"proofs": proofs, "lemmas": lemmas if source.random() < 0.5 else {}}).explore()


def table(title: str, header: str, *rows: str) -> str:
    cells = [
        f"| {' | '.join(row.split('; '))} |" for row in (header, "; ".join("---" for _ in header.split("; ")), *rows)
    ]
    return "\n## " + "\n".join([title, *cells, ""])


#: Two parameters that nothing relates, and a state in which nothing happens.
IDLE = "# idle\n" + table("Parameters", "parameter; domain; default", "p; 0..; 0", "r; 0..; 0")
IDLE += table("States", "state; kind", "a; initial")


@pytest.mark.parametrize(
    ("part", "proof"),
    [
        ("p <= 5", [[0, 1], [[1, 2], [-1, 0]]]),  # (p - 6) - p is -6
        ("p != r or p <= 5", [[0, 1], [[1e16, 3], [1, 4], [1e16, 2]]]),  # 1e16 + 1 - 1e16 is 0 in floating point
        ("p <= 5", [[0, 1], [[True, 2]]]),
        ("p <= 5", [[0, 1], []]),
        ("p <= 5", [[0, 1]]),
    ],
)
def test_multipliers_are_whole_numbers_from_0(part, proof):
    with pytest.raises(AssertionError, match=f"not always {part}"):
        Claim(IDLE, {"form": "always {}", "parts": [part], "proofs": [proof]}).explore()


@pytest.mark.parametrize(("p", "is_value"), [("0", True), ("7", True), ("-1", False), ("r", False), ("", False), ("1.0", False),
                                             ("1 - 1", False), (0, False), (0.5, False), (True, False), (None, False)])  # fmt: skip
def test_values_are_values_of_the_domain(p, is_value):
    claim = Claim(IDLE, {"form": "always {}", "parts": ["p >= 0"], "proofs": [], "at": {"p": "0", "r": "3"}})
    claim.explore()
    assert claim.keys == {"a :flag=0 :count=0"}
    given = {"form": "always {}", "parts": ["p >= 0"], "proofs": [], "at": {"p": p, "r": "3"}}
    if is_value:
        Claim(IDLE, given).explore()
    else:
        for proofs in [], [[[0]]]:  # at given values no proof excuses anything
            with pytest.raises(REFUSED):
                Claim(IDLE, given | {"proofs": proofs}).explore()


# -- forged ranks ------------------------------------------------------------------------------------------------------

#: An effect that is asked for again with each answer, and an event from outside; only `leave` leads out.
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


@pytest.mark.parametrize("reason", ["", "ask", "fair again", "fair leave", "fair go", "other", "fair answer"])
@pytest.mark.parametrize("number", ["0", "1", "-1", "1 - 1", ":count", "true"])
def test_no_rank_shows_what_is_owed_for_ever(reason, number):
    for fair in ("again", "again, answer", None):
        form = "{} leads to {}" if fair is None else "{} leads to {} assuming fair {}"
        parts = ["a", "b"] if fair is None else ["a", "b", fair]
        claim = {"form": form, "parts": parts, "at": {}, "proofs": []}
        for ranks in ([[number, reason]], [[number, reason], ["0", ""]], [["0", ""], [number, reason]], []):
            with pytest.raises(REFUSED):
                Claim(LOOP, claim | {"ranks": {WAIT[1]: ranks}}).explore()
    fairly = {"form": "{} leads to {} assuming fair {}", "parts": ["a", "b", "leave"], "at": {}, "proofs": []}
    Claim(LOOP, fairly | {"ranks": {WAIT[1]: [["0", "fair leave"]]}}).explore()


@pytest.mark.parametrize(
    "ranks", [{"s": 0}, {"s": 1, "a ask": 0}, {"s": 0, "a ask": 0, "b": 0}, {"s": -1, "a ask": -2}, {}]
)
@pytest.mark.parametrize("reason", ["", "ask"])
def test_no_rank_shows_that_what_never_happens_is_possible(ranks, reason):
    written = {f"{key} :flag=1 :count=0": [[str(number), reason]] for key, number in ranks.items()}
    for form in "possible {}", "from everywhere possible {}":
        claim = {"form": form, "parts": ["b and go"], "at": {}, "proofs": [], "ranks": written}
        with pytest.raises(REFUSED):
            Claim(LOOP, claim).explore()


@pytest.mark.parametrize("reason", ["", "ask", "fair answer", "other"])
@pytest.mark.parametrize("number", ["0", "1", "-1", ":count", "0 - :count", "true"])
def test_no_rank_shows_that_what_goes_round_comes_to_rest(number, reason):
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
def test_a_rank_that_falls_without_end_shows_nothing(number):
    """x grows for ever (no document has such a variable); a number that goes on falling below 0 shows no end."""
    growing = "# growing\n" + table("Variables", "variable; scope; domain; initial", "x; environment; 0..; 0")
    growing += table("Events", "event; from", "answer; ask", "go; outside") + table(
        "States", "state; kind", "s; initial", "a; "
    )
    rows = "s; go; ; ; ask; a", "a; answer; ; x += 1; ask; ="
    growing += table("Transitions", "source; event; if; update; effects; target", *rows)
    ranks = {key: [[number, ""]] for key in ("s", "a ask")}
    with pytest.raises(NoProofError):
        Prover(growing, frozenset(ranks)).proved({"form": REST, "parts": [], "ranks": ranks})


def test_two_promises_that_are_kept_in_turn_end_nothing():
    """What one state waits for is asked for again in the other."""
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


# -- what every machine owes -------------------------------------------------------------------------------------------

#: Where `go` is, `a` is left as long as p is more than r; a parameter each.
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
def test_a_machine_is_stuck_where_nothing_can_happen(row, is_stuck):
    text = STAYS + table("Transitions", "source; event; if; update; effects; target", row)
    at = {"p": "2", "r": "2"}
    attempts = (
        lambda: Claim(text, {"form": STUCK, "parts": [], "proofs": [], "at": at}).explore(),
        lambda: Prover(text, frozenset({"a", "b"})).proved({"form": STUCK, "parts": []}),
    )
    for attempt in attempts:
        if is_stuck:
            with pytest.raises((AssertionError, NoProofError), match="no way on"):
                attempt()
        else:
            attempt()


JUDGED = "# judged\n" + table("Parameters", "parameter; domain; default", "p; 0..; 0")
JUDGED += table("Variables", "variable; scope; domain; initial", "x; workflow; bool; false", "y; environment; 0..p; 0")
JUDGED += table("Events", "event; from", "said; outside", "read; outside", "approved; outside")
JUDGED += table("Guards", "guard; judges; verdicts", "g; said; ", "h; ; passed, failed")
JUDGED += table("States", "state; kind", "a; initial", "b; ")


@pytest.mark.parametrize(
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
        (["a; said; g.passed; y = p + 1; ; b", "b; said; g.failed; x = true; ; a"], False),  # nor does a fault hide anything
        (["a; said; g.passed; x = true; ; b", "a; said; h.failed; ; ; a"], True),  # a guard of another row
        (["a; said; g.passed; x = true; ; b", "a; said; h.failed or g.fatal; ; ; a", "a; said; else; x = false; ; a"], False),
    ],
)  # fmt: skip
def test_workflow_state_is_set_by_guards_that_passed(rows, is_guarded):
    text = JUDGED + table("Transitions", "source; event; if; update; effects; target", *rows)
    claim = Claim(text, {"form": GUARDED, "parts": [], "proofs": []})
    if is_guarded:
        claim.explore()
    else:
        with pytest.raises(AssertionError, match="x is set"):
            claim.explore()


# -- the generated step ------------------------------------------------------------------------------------------------

#: x is 0 wherever a run leads; what happens at other values is nobody's business but the step's.
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


def generated(text: str) -> str:
    return steps_digest(loads(text), 10_000)


def test_the_rows_are_what_the_generated_step_does_at_every_configuration():
    text = far(*FAR_ROWS)
    claim = {"form": TABLE, "parts": [], "at": {}, "proofs": []}
    Claim(text, claim | {"steps": generated(text)}).compare()
    for place, row in enumerate(FAR_ROWS):
        for old, new in [("<", "<="), ("== 3", "== 2"), ("x -= 1", "x -= 2"), ("; cancel;", "; ;"), ("; work;", "; ;"), ("slow;", "fast;"),
                         ("= fast", "= slow"), ("b.d", "b.c"), ("; ; e", "; ; a"), ("1s", "2s"), ("= 0", "= 1"), ("; rest; =", "; rest; b.c"), ("work, rest", "rest, work"),
                         ("3}", "2}"), ("cancel work", "cancel rest"), ("cancel work", "cancel"), ("; rest;", "; rest, work;")]:  # fmt: skip
            if old not in row:
                continue
            changed = far(*FAR_ROWS[:place], row.replace(old, new), *FAR_ROWS[place + 1 :])
            with pytest.raises(AssertionError, match="other steps"):
                Claim(text, claim | {"steps": generated(changed)}).compare()
        with pytest.raises(AssertionError, match="other steps"):
            Claim(text, claim | {"steps": generated(far(*FAR_ROWS[:place], *FAR_ROWS[place + 1 :]))}).compare()


def test_steps_are_compared_at_the_values_that_are_named():
    claim = {"form": TABLE, "parts": [], "proofs": [], "steps": steps_digest(behaviour(DUAL_STATE), 1_000)}
    Claim(TEXT, claim | {"at": {"rmax": "3"}}).compare()
    for at in {"rmax": "2"}, {}, None:
        with pytest.raises(REFUSED):
            Claim(TEXT, claim | {"at": at}).compare()
    for steps in None, "", {}, hashlib.sha256(b"").hexdigest():  # no hash is one for all values
        with pytest.raises(REFUSED):
            Claim(IDLE, claim | {"at": None, "steps": steps}).compare()
    Claim(IDLE, claim | {"at": {"p": "0", "r": "0"}, "steps": hashlib.sha256(b"").hexdigest()}).compare()
