"""Blocks that show a machine in a page, as Markdown."""

import pytest

from dsa import check
from dsa.docs.blocks import Caption, CheckedDocument, Grid, Sentence, markdown, parts_of
from dsa.edge.document_files import locate, read_document
from dsa.lang import loads, read_machine
from dsa.targets import mermaid, table

DUAL_STATE = locate("dual_state").read_text(encoding="utf-8")


def block(kind, name="dual_state", **options):
    reading = read_document(name)
    return markdown(parts_of(kind, options, CheckedDocument(reading.machine, reading.diagnostics, check)))


def block_of_text(kind, text, **options):
    reading = read_machine(text, "m.md")
    return markdown(parts_of(kind, options, CheckedDocument(reading.machine, reading.diagnostics, check)))


def test_diagram_is_what_draw_prints():
    machine = loads(DUAL_STATE)
    assert block("diagram") == f"```mermaid\n{mermaid(machine)}```"
    assert block("diagram", direction="LR") == f"```mermaid\n{mermaid(machine, direction='LR')}```"


def test_drawing_is_named_after_the_machine_or_by_the_option_file():
    assert block("diagram", format="svg") == "![The states of dual_state and the rows between them](dual_state.svg)"
    assert block("diagram", format="svg", file="a/my b.svg").endswith("](<a/my b.svg>)")


def test_table_is_what_draw_prints():
    assert f"{block('table')}\n" == table(loads(DUAL_STATE))


def test_grouped_table_has_a_grid_for_each_source():
    text = block("table", grouped="")
    assert [line for line in text.split("\n") if line.startswith("**")] == [
        "**idle**",
        "**generating**",
        "**validating**",
    ]
    rows = [line for line in text.split("\n") if line.startswith("|")]
    assert len(rows) == len(loads(DUAL_STATE).transitions) + 3 * 2
    assert "source" not in text


def test_table_of_steps_has_the_steps_and_on_request_the_rows():
    assert (
        block("table", "workflow").split("\n")[0].replace(" ", "") == "|step|requires|generator|guard|uses|rmax|task|"
    )
    assert f"{block('table', 'workflow', rows='')}\n" == table(read_document("workflow").machine)
    assert "**generating.g_test**" in block("table", "workflow", grouped="")


def test_verdicts_name_every_property_and_what_it_relies_on():
    text = block("verdicts", "specs/dual_state")
    machine = read_document("specs/dual_state").machine
    assert text.startswith(
        "Explored: 15 configurations, 17 transitions at rmax = 3; 6 configurations, 5 transitions at rmax = 0.\n\n|"
    )
    assert text.count("| HOLDS ") == len(machine.properties)
    assert "| HOLDS   | if query_llm, execute_guard answer and do not fail |" in text
    assert text.endswith(
        "It rests in: idle.\n\nChecked: 0 errors, 0 warnings, 9 of 9 scenarios pass, 24 of 24 properties HOLD at rmax = 3 and at rmax = 0."
    )
    assert block("verdicts", "specs/dual_state", format="line") == text.split("\n")[-1]


def test_verdicts_say_why_a_property_does_not_hold():
    text = block_of_text("verdicts", DUAL_STATE.replace("at most rmax + 1 query_llm", "at most rmax query_llm"))
    (row,) = [line for line in text.split("\n") if "VIOLATED" in line and line.startswith("|")]
    assert [cell.strip() for cell in row.split("|")[1:-1]] == [
        "`at most rmax query_llm`", "VIOLATED", "the count of query_llm at step 7 is more than 3, at rmax = 3",
    ]  # fmt: skip
    assert text.endswith("4 of 5 properties HOLD at rmax = 3 and at rmax = 0, 1 VIOLATED.")


def test_verdicts_name_the_errors_that_prevent_a_judgement():
    text = block_of_text("verdicts", DUAL_STATE.replace("g.failed and retries < rmax", "g.failed and retries <= rmax"))
    assert (
        "| UNKNOWN | no property can be shown to hold until this is fixed: a value outside its domain (DSA306) |"
        in text
    )


def test_scenarios_have_a_caption_and_a_grid_each():
    text = block("scenarios")
    machine = loads(DUAL_STATE)
    assert [f"**{scenario.name}**" in text for scenario in machine.scenarios] == [True] * 3
    assert "**refinement loop** at rmax = 1\n\n| percept " in text
    assert block("scenarios", "workflow") == "The machine has no scenarios."


def test_blocks_do_not_depend_on_the_place_of_the_document(tmp_path, monkeypatch):
    here = {kind: block(kind, "specs/dual_state") for kind in ("diagram", "table", "verdicts", "scenarios")}
    path = tmp_path / "other.md"
    path.write_text(f"\n\n{DUAL_STATE}", encoding="utf-8")
    spec = tmp_path / "spec.md"
    spec.write_text(
        locate("specs/dual_state").read_text(encoding="utf-8").replace("Machine: dual_state", "Machine: other.md")
    )
    monkeypatch.chdir(tmp_path)
    assert {kind: block(kind, "spec.md") for kind in here} == here


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (Sentence("a*b <!-- /dsa --> `c` [d] _e_ f_g"), r"a\*b &lt;!-- /dsa --> \`c\` \[d\] \_e\_ f_g"),
        (Caption("*", "at x = 1"), r"**\*** at x = 1"),
        (Grid(("a", "b"), [("x | y", "<!-- /dsa -->")]), "| a      | b                |\n| ------ | ---------------- |\n| x \\| y | &lt;!-- /dsa --> |"),
        (Grid(("a",), [("x | y",), ("`z`",), ("",)], frozenset({"a"})), "| a        |\n| -------- |\n| `x \\| y` |\n| `z`      |\n|          |"),
    ],
)  # fmt: skip
def test_markdown_in_texts_is_escaped(part, text):
    assert markdown([part]) == text
