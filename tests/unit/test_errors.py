import pytest
from each_row import each_row

from dsa.checks.odds.markov_chain import odds_error
from dsa.cli.command_line import fault_as_json
from dsa.errors import CODES, Diagnostic, DocumentError, DsaError, MachineError, Span, ToolError, code_of
from dsa.lang import loads
from dsa.runtime.artifacts import artifact_store_error
from dsa.runtime.generation import GenerationError, ServerFault
from dsa.runtime.policy.policies import error_of
from dsa.runtime.secrets import secret_error
from machines.chat.sql.query import load_error


def test_finding_shows_its_line_with_a_caret_below_the_place():
    finding = Diagnostic(
        "DSA201", "error", "'x' is not declared", Span("m.md", 12, 5, 7, "ab \txy z"), "did you mean 'y'?"
    )
    assert finding.render().split("\n") == [
        "m.md:12:5: error DSA201: 'x' is not declared",
        "   12 | ab \txy z",
        "      |    \t^^",
        "        hint: did you mean 'y'?",
    ]


@pytest.mark.parametrize("span", [Span("m.md", 1, 1, 1, ""), Span("m.md", 3, 1, 2, "  ")])
def test_empty_line_is_not_shown(span):
    assert "\n" not in Diagnostic("DSA101", "error", "nothing", span).render()


def test_place_after_the_end_of_the_line_still_has_a_caret():
    assert Diagnostic("DSA108", "error", "m", Span("m.md", 1, 5, 6, "abcd")).render().endswith("    ^")


@pytest.mark.parametrize("column", [1, 50, 390, 25_000, 49_990])
def test_very_long_line_is_shown_only_around_the_place(column):
    text = "".join(f"{n % 10}" for n in range(50_000))
    shown, carets = (
        Diagnostic("DSA201", "error", "m", Span("m.md", 1, column, column + 5, text)).render().split("\n")[1:3]
    )
    assert len(shown) < 500
    assert carets.count("^") == 5
    at = carets.index("^")
    assert shown[at : at + 5] == text[column - 1 : column + 4]


def test_many_faults_in_one_long_line_stay_readable():
    text = "# m\n## Transitions\n|source|event|if|target|\n|-|-|-|-|\n|a|go|" + " and ".join(["b"] * 2_000) + "|a|\n"
    with pytest.raises(MachineError) as caught:
        loads(text)
    assert len(caught.value.diagnostics) == 2_000
    assert len(str(caught.value)) < 2_000 * 1_200


def test_codes_are_sorted_and_each_meaning_is_a_sentence():
    assert list(CODES) == sorted(CODES)
    assert all(meaning.endswith(".") for meaning in CODES.values())


def test_machine_error_is_a_value_error_that_carries_its_findings():
    with pytest.raises(DsaError) as caught:
        loads("")
    assert isinstance(caught.value, ValueError)
    assert {finding.code for finding in caught.value.diagnostics} == {"DSA101", "DSA102"}


def test_error_code_is_the_one_it_was_raised_with_or_its_class():
    assert [code_of(DsaError("no", code="NoLocksError")), code_of(DocumentError("m.md", "no")), code_of(OSError())] == [
        "NoLocksError",
        "DocumentError",
        "OSError",
    ]


def test_json_of_a_failed_command_has_the_code_of_the_error():
    assert fault_as_json(DsaError("no", code="CompileError"))["failure"]["code"] == "CompileError"


def test_failed_effect_has_the_code_of_its_error():
    step = error_of("draft", DsaError("no", code="CompileError"))
    assert step.payload["code"] == "CompileError"


CODED = {
    "ArtifactStoreError": lambda: artifact_store_error("a.git", "no"),
    "LoadError": lambda: load_error("a\nb.csv", "is empty"),
    "OddsError": lambda: odds_error("no"),
    "SecretError": lambda: secret_error("no"),
    "ServerError": lambda: GenerationError("no", "rate_limit", server=ServerFault(429)),
    "GenerationError": lambda: GenerationError("no"),
    "bad_path": lambda: ToolError("no", code="bad_path"),
    "ToolError": lambda: ToolError("no"),
}


@each_row("code", list(CODED))
def test_errors_of_one_class_are_distinguished_by_their_codes(code):
    assert code_of(CODED[code]()) == code


def test_source_of_data_that_cannot_be_loaded_is_named_on_one_line():
    error = load_error("a\nb.csv", "is empty")
    assert (error.path, error.reason, str(error)) == ("a\\nb.csv", "is empty", "a\\nb.csv: is empty")
