"""The kernel: it runs alone, and accepts no wrong claim."""

import ast
import hashlib
import json
import random
import subprocess
import sys
from functools import partial
from itertools import islice, product
from pathlib import Path

import pytest
from each_row import each_row
from kernel_tables import IDLE

import dsa.kernel
from dsa.checks.certificate_proofs import Prover, require_same_steps
from dsa.checks.certificate_writer import Certifier, behaviour, certify_proofs, certify_verdicts
from dsa.checks.proof.prover import prove
from dsa.checks.report import check
from dsa.edge.document_files import load
from dsa.errors import UndecidedError
from dsa.kernel import CONDITION, DEFINITION_4, NO_DEADLOCK, NUMBER, REST, TABLE, Claim, KernelParser, verify
from dsa.lang import dumps, loads

SOURCE = Path(dsa.kernel.__file__)
#: How the kernel refuses: with a reason, or with the error of a malformed certificate.
REFUSED = (AssertionError, SyntaxError, TypeError, KeyError, ValueError, IndexError, AttributeError, StopIteration)
DUAL_STATE = load("dual_state")
TEXT = dumps(behaviour(DUAL_STATE))


def certificate(machine=DUAL_STATE) -> dict:
    about = behaviour(machine)
    certifier = Certifier(about, dumps(about))
    certify_proofs(certifier, prove(machine))
    certify_verdicts(certifier, check(machine))
    return certifier.draft().certificate


@pytest.fixture(scope="module")
def good() -> dict:
    return certificate()


def with_machine(content: dict, text: str) -> str:
    return json.dumps(content | {"machine": text, "digest": hashlib.sha256(text.encode()).hexdigest()})


# -- alone ---------------------------------------------------------------------------------------------------


def test_kernel_imports_only_the_standard_library():
    imported = [
        node for node in ast.walk(ast.parse(SOURCE.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    names = [alias.name for node in imported for alias in node.names]
    assert imported
    assert all(isinstance(node, ast.Import) for node in imported)
    assert set(names) <= sys.stdlib_module_names


def test_kernel_runs_alone(tmp_path, good):
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
    for said in NO_DEADLOCK, DEFINITION_4, REST, "at most rmax + 1 query_llm":
        assert f"{said}: for all values\n" in told
    for said in NO_DEADLOCK, "at most rmax + 1 query_llm":
        assert f"{said}: rmax = 3\n" in told
    needs = "not established, because the check needs FILE (`dsa verify CERTIFICATE FILE`): "
    assert [line for line in told.splitlines() if TABLE in line] == [f"{needs}{TABLE}: rmax = {n}" for n in "3030"]
    assert run("kernel.py", "bad.json") == (1, "refused: the digest does not match the machine\n")
    assert run("-O", "kernel.py", "good.json")[0] == 1


@pytest.mark.parametrize(
    "text", [None, "", "x", "{", "[]", "{}", "null", "3", '{"machine": 1, "digest": "", "claims": []}', "\xff"]
)
def test_kernel_prints_its_usage_without_a_certificate(tmp_path, text):
    arguments = [] if text is None else ["no.json"]
    (tmp_path / "no.json").write_bytes((text or "").encode("latin-1"))
    done = subprocess.run(
        [sys.executable, "-I", SOURCE, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.startswith("usage: python kernel.py CERTIFICATE")
    assert len(done.stdout.splitlines()) == 1


# -- expressions -------------------------------------------------------------------------------------------------------


#: Names of every type, as claims have them.
TYPES = {"x": NUMBER, "y": NUMBER, "p": CONDITION, "q": CONDITION, "c": frozenset({"red", "blue"}), "d": frozenset({"blue", "green"}),
         "red": frozenset({"red"}), "blue": frozenset({"blue"}), "green": frozenset({"green"}), "pending e": CONDITION, "end.failed": CONDITION}  # fmt: skip


def code_of(text):
    parser = KernelParser(text, TYPES, ())
    return parser.whole(parser.expression)


@each_row(
    "text",
    ["", "1.5", "x.y.z()", "'a' == 'a'", "x ** 2", "2 ** -1", "x # y", "x\n", "\tx", "x if y else z", "[x]", "x in y", "() in x",
     "(*x,)", "(x := 1)", "lambda: 1", "x / 2", "x // 2", "x & y", "~x", "x @ y", "__import__", "x < (1, 2)", "x + (1,)", "0x10", "1_000",
     "1e5", "true.real", "True", "None", "p = q", "p == not q", "()", "{x}", "{x < 0}", "p, q", "x y", "p == 1", "p < q", "p + 1", "not x", "x and p", "x or x",
     "x in {p}", "x in {}", "c == x", "c == p", "c < d", "red == green", "-p", "- red", "p not q", "not not", "x not in y", "pending", "pending x",
     "pending p", "(p", "p)", "failed", "end", "x == 1 == p", "1234567890123456789", "\N{FULLWIDTH DIGIT ONE}", "\N{ARABIC-INDIC DIGIT ONE}", "p\xa0and q",
     "x;y", "x == 1; y", "!p", "p && q", "p || q", "x <> y", "x === y", ":flag", "names", "p" + " and p" * 40 + " and", "(" * 70 + "p" + ")" * 70],
)  # fmt: skip
def test_invalid_expression_is_refused(text):
    """The kernel must refuse each text whose truth it cannot reason about, even if Python could evaluate it."""
    with pytest.raises(AssertionError):
        code_of(text)


@each_row(
    ("text", "value"),
    [
        ("x - 1 - 1 == 3", True), ("x - (1 - 1) == 5", True), ("2 + 3 * x == 17", True), ("-x * -2 == 10", True), ("- - x == 5", True),
        ("not x == 5 or y == 7", True), ("not (x == 5 or y == 7)", False), ("1 < x < 7 == y", True), ("1 < x < 5 == y", False),
        ("p or q and false", True), ("(p or q) and false", False), ("x in {1, y - 2}", True), ("x not in {1, y - 2}", False), ("not x in {5}", False),
        ("x != 5", False), ("c in {red, blue}", True), ("c == d", True), ("c != red", True), ("p != q", True),
        ("pending e", True), ("end.failed or p", True), ("007 == y", True), ("x==5and y==7", True),
    ],
)  # fmt: skip
def test_expression_means_what_the_language_says(text, value):
    kind, code = code_of(text)
    names = {
        "x": 5,
        "y": 7,
        "p": True,
        "q": False,
        "c": 1,
        "d": 1,
        "red": 0,
        "blue": 1,
        "green": 2,
        "pending e": True,
        "end.failed": False,
    }
    assert kind == CONDITION
    assert bool(eval(code, {"names": names})) is value


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("## States", "## Steps"),
        ("## Guards", "## States"),
        ("| idle       | initial |", "| idle |"),
        ("| judges  |", "| judge   |"),
    ],
)
def test_unknown_table_is_refused(good, old, new):
    assert old in TEXT
    with pytest.raises(REFUSED):
        list(verify(with_machine(good, TEXT.replace(old, new, 1))))


# -- the off-by-one table ----------------------------------------------------------------------------------------------

OFF_BY_ONE = loads(dumps(DUAL_STATE).replace("retries < rmax", "retries <= rmax"))
OFF_TEXT = dumps(behaviour(OFF_BY_ONE))


def test_no_claim_about_runs_of_the_off_by_one_table_is_certified():
    """Only two claims remain true: guards set its workflow state, and its generated step does what its wrong rows say."""
    made = certificate(OFF_BY_ONE)
    assert {claim["form"] for claim in made["claims"]} == {DEFINITION_4, TABLE}


def test_certificate_of_the_right_table_does_not_fit_the_off_by_one_table(good):
    for claim in good["claims"]:
        if claim["form"] == DEFINITION_4:
            continue  # it carries no evidence, and is true of both
        with pytest.raises(REFUSED):
            list(verify(with_machine(good | {"claims": [claim]}, OFF_TEXT), partial(require_same_steps, DUAL_STATE)))


LEMMAS = (
    "retries < rmax", "retries <= rmax", "rmax >= 1", "retries == 0", "false", "not true", "retries in {0}", "0 <= retries",
    "retries * retries <= rmax * rmax", ":flag", ":count <= 0", "pending query_llm", "pending nothing", "retries + 1 <= rmax",
)  # fmt: skip


#: The locations of dual_state, found by names alone.
LOCATIONS = frozenset({"idle", "generating query_llm", "validating execute_guard", "succeeded", "failed", "escalated"})


@pytest.mark.parametrize("share", [3, pytest.param(1, marks=pytest.mark.full)], ids=["a third", "all"])
@pytest.mark.parametrize("form", ["no fault", "always retries <= rmax"])
def test_no_lemmas_certify_the_off_by_one_table(form, share):
    """The honest prover gets pairs of wrong lemmas and finds no proof that the kernel accepts."""
    claim = (
        {"form": "no fault", "parts": []} if form == "no fault" else {"form": "always {}", "parts": ["retries <= rmax"]}
    )
    for one, other in islice(product(LEMMAS, repeat=2), 0, None, share):
        everywhere = {key: [one] for key in ("idle", "generating query_llm")} | {"validating execute_guard": [other]}
        with pytest.raises(UndecidedError, match="z3 proves the claim, but dsa found no evidence"):
            Prover(OFF_TEXT, LOCATIONS).prove_claim(claim | {"lemmas": everywhere})


def test_no_proofs_certify_the_off_by_one_table(good):
    """A forger may write any uses and multipliers, also fractions, negative and huge ones; the kernel accepts none of them."""
    source = random.Random(1)
    base = next(claim for claim in good["claims"] if claim["form"] == "no fault" and "at" not in claim)
    numbers = [0, 1, 2, 3, -1, -2, 0.5, 1e16, -1e16, 1e308, 10**30, -(10**30), True, None, "1"]
    for _ in range(1_000):
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


@each_row(("p", "is_value"), [("0", True), ("7", True), ("-1", False), ("r", False), ("", False), ("1.0", False),
                                             ("1 - 1", False), (0, False), (0.5, False), (True, False), (None, False)])  # fmt: skip
def test_parameter_values_must_be_values_of_the_domain(p, is_value):
    claim = Claim(IDLE, {"form": "always {}", "parts": ["p >= 0"], "proofs": [], "at": {"p": "0", "r": "3"}})
    claim.explore()
    assert claim.keys == {"a :flag=0 :count=0"}
    given = {"form": "always {}", "parts": ["p >= 0"], "proofs": [], "at": {"p": p, "r": "3"}}
    if is_value:
        Claim(IDLE, given).explore()
    else:
        for proofs in [], [[[0]]]:  # at named values a proof does not help
            with pytest.raises(REFUSED):
                Claim(IDLE, given | {"proofs": proofs}).explore()
