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
from dsa.checks.certify_proofs import NoProofError, proved
from dsa.checks.certify_ranks import Reached, explored, reached
from dsa.checks.prove import prove
from dsa.checks.report import check
from dsa.edge.files import load
from dsa.kernel import Claim, Unknown, value, verify
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
    assert "at most rmax + 1 query_llm: for all values" in told
    assert "at most rmax + 1 query_llm: rmax = 3, 15 configurations" in told
    assert run("kernel.py", "bad.json") == (1, "refused: AssertionError('the machine is another one')\n")
    assert run("kernel.py", "no.json")[0] == 1
    assert run("-O", "kernel.py", "good.json")[0] == 1


# -- what it can be told -----------------------------------------------------------------------------------------------


def test_every_verdict_of_the_shipped_machine_is_certified(good):
    proved_claims = [claim for claim in good["claims"] if "at" not in claim]
    assert len(proved_claims) == 1 + len(DUAL_STATE.properties)
    assert len(good["claims"]) == 3 * (1 + len(DUAL_STATE.properties))


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
        ("| generating | artifact ", "| generating | artefact "),
    ],
)
def test_a_table_that_it_does_not_know_is_refused(good, old, new):
    assert old in TEXT
    with pytest.raises(REFUSED):
        list(verify(with_machine(good, TEXT.replace(old, new, 1))))


# -- the off-by-one table ----------------------------------------------------------------------------------------------

OFF_BY_ONE = loads(dumps(DUAL_STATE).replace("retries < rmax", "retries <= rmax"))
OFF_TEXT = dumps(behaviour(OFF_BY_ONE))


def test_the_off_by_one_table_is_not_certified():
    made = certificate(OFF_BY_ONE)
    assert made["claims"] == []


def test_the_certificate_of_the_right_table_does_not_fit_the_off_by_one_table(good):
    for claim in good["claims"]:
        with pytest.raises(REFUSED):
            list(verify(with_machine(good | {"claims": [claim]}, OFF_TEXT)))


LEMMAS = (
    "retries < rmax", "retries <= rmax", "rmax >= 1", "retries == 0", "false", "not true", "retries in {0}", "0 <= retries",
    "retries * retries <= rmax * rmax", ":flag", ":count <= 0", "pending query_llm", "pending nothing", "retries + 1 <= rmax",
)  # fmt: skip


@pytest.mark.parametrize("form", ["no fault", "always retries <= rmax"])
def test_no_lemmas_certify_the_off_by_one_table(form):
    """The honest prover, handed every pair of wrong lemmas: nothing that it can find is accepted."""
    claim = (
        {"form": "no fault", "parts": []} if form == "no fault" else {"form": "always {}", "parts": ["retries <= rmax"]}
    )
    for one, other in product(LEMMAS, repeat=2):
        everywhere = {key: [one] for key in ("idle", "generating query_llm")} | {"validating execute_guard": [other]}
        with pytest.raises(NoProofError):
            proved(OFF_TEXT, claim | {"lemmas": everywhere}, None)


def test_no_proofs_certify_the_off_by_one_table(good):
    """A forger may write any uses and multipliers, also fractions, negative and huge ones: no sum of what is true is negative."""
    source = random.Random(1)
    base = next(claim for claim in good["claims"] if claim["form"] == "no fault" and "at" not in claim)
    numbers = [0, 1, 2, 3, -1, -2, 0.5, 1e16, -1e16, 1e308, 10**30, -(10**30), True, None, "1"]
    for _ in range(2_000):
        proofs = [
            [
                source.sample(range(6), source.randrange(4)),
                [[[source.choice(numbers), *source.sample(range(5), source.randrange(3))] for _ in range(source.randrange(4))]
                 for _ in range(source.randrange(3))],
            ]
            for _ in base["proofs"]
        ]  # fmt: skip
        lemmas = {key: source.sample(LEMMAS, 2) for key in ("validating execute_guard", "generating query_llm")}
        with pytest.raises(REFUSED):
            Claim(OFF_TEXT, base | {"proofs": proofs, "lemmas": lemmas if source.random() < 0.5 else {}}).run()


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
        ("p <= 5", [[0, 1], [[[1, 2], [-1, 0]]]]),  # (p - 6) - p is -6
        ("p != r or p <= 5", [[0, 1], [[[1e16, 3], [1, 4], [1e16, 2]]]]),  # 1e16 + 1 - 1e16 is 0 in floating point
        ("p <= 5", [[0, 1], [[[True, 2]]]]),
        ("p <= 5", [[0, 1], [[]]]),
        ("p <= 5", [[0, 1], []]),
    ],
)
def test_multipliers_are_whole_numbers_from_0(part, proof):
    with pytest.raises(AssertionError, match=f"not always {part}"):
        Claim(IDLE, {"form": "always {}", "parts": [part], "proofs": [proof]}).run()


def test_what_is_proved_beyond_the_obligations_is_refused():
    claim = {"form": "always {}", "parts": ["p >= 0"], "proofs": [[[0, 1], []]]}
    Claim(IDLE, claim).run()
    for proofs, why in ([[[0, 1], []], [[], []]], "more than is claimed"), ([[[0, 1], [[]]]], "more than fails"):
        with pytest.raises(AssertionError, match=why):
            Claim(IDLE, claim | {"proofs": proofs}).run()


@pytest.mark.parametrize("p", ["false", "1 - 1", "r", "", "1.0", "-1", "0 "])
def test_values_are_values_of_the_domain(p):
    claim = {"form": "always {}", "parts": ["p >= 0"], "proofs": []}
    assert Claim(IDLE, claim | {"at": {"p": "0", "r": "3"}}).run()[0] == 1
    with pytest.raises(AssertionError):
        Claim(IDLE, claim | {"at": {"p": p, "r": "3"}}).run()


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
                Claim(LOOP, claim | {"ranks": {WAIT[1]: ranks}}).run()
    fairly = {"form": "{} leads to {} assuming fair {}", "parts": ["a", "b", "leave"], "at": {}, "proofs": []}
    Claim(LOOP, fairly | {"ranks": {WAIT[1]: [["0", "fair leave"]]}}).run()


@pytest.mark.parametrize(
    "ranks", [{"s": 0}, {"s": 1, "a ask": 0}, {"s": 0, "a ask": 0, "b": 0}, {"s": -1, "a ask": -2}, {}]
)
def test_no_rank_shows_that_what_never_happens_is_possible(ranks):
    written = {f"{key} :flag=0 :count=0": [[str(number), ""]] for key, number in ranks.items()}
    for form in "possible {}", "from everywhere possible {}":
        claim = {"form": form, "parts": ["b and go"], "at": {}, "proofs": [], "ranks": written}
        with pytest.raises(REFUSED):
            Claim(LOOP, claim).run()


# -- two explorations --------------------------------------------------------------------------------------------------


def test_the_generated_step_and_the_rows_are_compared():
    about = behaviour(DUAL_STATE)
    claim = {"form": "no fault", "parts": [], "at": {"rmax": "3"}}
    found = reached(about, 100)
    assert explored(TEXT, claim, found, 100)["reached"] == [15, *found.hashes]
    other = reached(behaviour(OFF_BY_ONE.at(rmax=2)), 100)
    with pytest.raises(NoProofError, match="other configurations"):
        explored(TEXT, claim, other, 100)
    with pytest.raises(NoProofError, match="other steps"):
        explored(TEXT, claim, Reached(15, (found.hashes[0], other.hashes[1])), 100)
    with pytest.raises(NoProofError, match="more than 10"):
        reached(about, 10)
