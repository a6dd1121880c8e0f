"""Other people's SCXML: what is read, what it means in rows, and what is refused with its line."""

import pytest

from dsa.checks.explore import explore
from dsa.expr import unparse
from dsa.lang.from_scxml import from_scxml
from dsa.lang.scxml_exprs import ForeignError, read_foreign
from dsa.meaning import Occurrence, Taken, start, step
from dsa.tables import transition_cells


def read(body, **attributes):
    given = "".join(f' {name}="{value}"' for name, value in attributes.items())
    return from_scxml(f'<scxml xmlns="http://www.w3.org/2005/07/scxml" version="1.0"{given}>\n{body}\n</scxml>')


def rows(found):
    assert found.machine is not None, found.findings
    return [tuple(transition_cells(row).values()) for row in found.machine.transitions]


def errors(found):
    return [(finding.line, finding.message) for finding in found.findings if finding.is_error]


DATUM = "<datamodel><data id='n' expr='0'/></datamodel>"


def walk(machine, *events):
    here = start(machine)
    for event in events:
        answer = step(machine, here, Occurrence(event))
        here = answer.configuration
    return here, isinstance(answer, Taken)


def test_the_first_transition_that_is_enabled_is_taken():
    found = read("""<datamodel><data id="n" expr="0"/></datamodel>
<state id="a"><transition event="go" cond="n &lt; 2" target="b"/><transition event="go" cond="n &lt; 5" target="c"/>
<transition event="go"/></state><state id="b"/><state id="c"/>""")
    assert [row[2] for row in rows(found)] == ["n < 2", "n < 5 and n >= 2", "else"]


def test_an_outer_transition_is_tried_when_no_inner_one_is_enabled():
    found = read("""<datamodel><data id="n" expr="1"/></datamodel>
<state id="p" initial="q"><transition event="go" target="end"/>
<state id="q"><transition event="go" cond="n == 0"/></state></state><final id="end"/>""")
    assert rows(found) == [
        ("p", "go", "", "", "", "end"),
        ("p.q", "go", "n == 0", "", "", "="),
        ("p.q", "go", "else", "", "", "end"),
    ]
    assert walk(found.machine, "go") == (start(found.machine).__class__("end", (1,), frozenset()), True)


def test_events_match_by_whole_words():
    found = read("""<state id="a"><transition event="user.login user.logout" target="a"/><transition event="user" target="b"/>
<transition event="*" target="c"/></state><state id="b"><transition event="users" target="a"/></state><state id="c"/>""")
    targets = {(row[0], row[1]): row[5] for row in rows(found)}
    assert targets == {
        ("a", "user.login"): "a",
        ("a", "user.logout"): "a",
        ("a", "user"): "b",
        ("a", "users"): "c",
        ("b", "users"): "a",
    }


def test_assignments_one_after_the_other_become_updates_at_once():
    found = read("""<datamodel><data id="a" expr="1"/><data id="b" expr="2"/><data id="t" expr="0"/></datamodel>
<state id="s"><transition event="swap"><assign location="t" expr="a"/><assign location="a" expr="b"/>
<assign location="b" expr="t"/></transition></state>""")
    assert rows(found)[0][3] == "t = a; a = b; b = a"


def test_branches_become_rows():
    found = read("""<datamodel><data id="c" expr="'red'"/><data id="on" expr="false"/></datamodel>
<state id="s"><transition event="x"><if cond="c == 'red'"><assign location="c" expr="'green'"/><elseif cond="!on"/>
<assign location="on" expr="true"/><else/><send event="done_with" target="#_parent"/></if></transition></state>""")
    assert [(row[2], row[3], row[4]) for row in rows(found)] == [
        ("c == red", "c = green", ""),
        ("c != red and not on", "on = true", ""),
        ("c != red and on", "", "done_with"),
    ]


def test_verdicts_are_guards_and_exclude_each_other():
    found = read("""<state id="s"><transition event="judged" cond="_event.data.g == 'passed'" target="e"/>
<transition event="judged" cond="'failed' == _event.data['g']"/><transition event="judged" target="s"/></state><final id="e"/>""")
    assert [row[2] for row in rows(found)] == ["g.passed", "g.failed", "else"]
    assert found.machine.guard_named["g"].judges == ("judged",)


def test_what_is_raised_comes_back_as_an_answer():
    found = read("""<state id="a"><transition event="go" target="b"><raise event="next"/></transition></state>
<state id="b"><transition event="next" target="c"/></state><final id="c"/>""")
    assert rows(found)[0][4] == "raise_next"
    assert explore(found.machine).configurations == 3
    assert walk(found.machine, "next")[1] is False


def test_what_is_raised_may_be_taken_under_a_shorter_name():
    found = read("""<state id="a"><transition event="go" target="b"><raise event="y.z"/></transition></state>
<state id="b"><transition event="y" target="c"/></state><final id="c"/>""")
    assert {event.name: event.origin for event in found.machine.events} == {
        "go": "outside",
        "y": "outside",
        "y.z": "raise_y.z",
    }
    assert [(row[1], row[5]) for row in rows(found) if row[0] == "b"] == [("y", "c"), ("y.z", "c")]


SENT = """<state id="a"><transition event="x" target="b"><send event="y"{}/></transition></state>
<state id="b"><transition event="y" target="a"/></state>"""


@pytest.mark.parametrize(
    ("where", "origin"),
    [
        ("", "raise_y"),
        (' target="#_internal"', "raise_y"),
        (' type="http://www.w3.org/TR/scxml/#SCXMLEventProcessor"', "raise_y"),
        (' target="#_parent"', "outside"),
        (' type="http://www.w3.org/TR/scxml/#BasicHTTPEventProcessor"', "outside"),
    ],
)
def test_only_what_is_sent_to_the_machine_itself_comes_back(where, origin):
    found = read(SENT.format(where))
    assert found.machine.event_named["y"].origin == origin
    assert rows(found)[0][4] == ("raise_y" if origin == "raise_y" else "y_effect")


def test_the_same_name_raised_and_sent_away_is_two_effects():
    found = read("""<state id="a"><transition event="x" target="b"><raise event="y"/></transition>
<transition event="z"><send event="y" target="#_parent"/></transition></state>
<state id="b"><transition event="y" target="a"/></state>""")
    assert [row[4] for row in rows(found)] == ["raise_y", "y_effect", ""]


def test_what_is_sent_elsewhere_after_a_delay_is_sent():
    found = read(
        """<state id="a"><transition event="x"><send event="y" delay="1s" target="#_parent"/></transition></state>"""
    )
    assert rows(found)[0][4] == "y"
    assert [finding.message for finding in found.findings] == ["'y' is sent after a delay, which is left out"]


def test_one_fault_is_told_once():
    found = read(
        "<datamodel><data id='n' expr='0'/></datamodel><state id='a'><transition event='x' cond='f(n)'/></state>"
    )
    assert len(errors(found)) == 1


def test_names_that_a_table_cannot_have_are_changed_and_stay_apart():
    found = read("""<datamodel><data id="after" expr="0"/></datamodel>
<state id="in-put"><transition event="not.2x" cond="after == 0" target="in_put"/></state>
<state id="in_put"><transition event="in_put" target="in-put"/></state>""")
    machine = found.machine
    assert len({state.name for state in machine.states}) == 2
    assert machine.variables[0].name == "after_"


def test_ranges_are_declared_or_guessed():
    found = read("""<datamodel xmlns:dsa="urn:dsa:machine"><data id="n" expr="0" dsa:domain="-1..9"/><data id="m" expr="1"/></datamodel>
<state id="s"><transition event="x" cond="m + 1 &lt; 7"><assign location="m" expr="m + 1"/></transition></state>""")
    assert [(str(found.machine.values_of[name])) for name in ("n", "m")] == ["-1..9", "1..7"]
    assert [finding.message[:30] for finding in found.findings] == ["SCXML gives no range for 'm'; "]


@pytest.mark.parametrize(
    ("body", "line", "words"),
    [
        ("<parallel id='p'/>", 2, "parallel states"),
        ("<state id='a'>\n<history id='h'/></state>", 3, "history"),
        ("<state id='a'><invoke/></state>", 2, "invoke"),
        ("<script>x</script><state id='a'/>", 2, "scripts"),
        ("<state id='a'>\n\n<transition target='a'/></state>", 4, "without an event"),
        ("<state id='a'><transition event='x' target='b'/></state>", 2, "'b' is not there"),
        ("<state id='a'><transition event='x' target='a a'/></state>", 2, "several targets"),
        ("<state id='a'><onentry><raise event='x'/></onentry></state>", 2, "no entry or exit actions"),
        ("<state id='a'><transition event='done.state.a' target='a'/></state>", 2, "event of the platform"),
        ("<state id='a'><transition event='x' cond=\"In('a')\" target='a'/></state>", 2, "cannot stand there"),
        ("<state id='a'><transition event='x' cond='n == 1' target='a'/></state>", 2, "'n' is no datum"),
        ("<state id='a'><transition event='x' cond='1 / 2 == 1' target='a'/></state>", 2, "beyond what a table"),
        ("<state id='a'><transition event='x'><foreach/></transition></state>", 2, "<foreach> is not read"),
        ("<datamodel><data id='n' expr='f(1)'/></datamodel><state id='a'/>", 2, "cannot stand there"),
        ("<datamodel><data id='n' src='x'/></datamodel><state id='a'/>", 2, "read from elsewhere"),
        ("<datamodel><data id='n'/></datamodel><state id='a'/>", 2, "no initial value"),
        ("<state id='a'/><state id='a'/>", 2, "second state"),
        ("<state/>", 2, "no id"),
        ("<final id='f'><transition event='x'/></final>", 2, "which is final"),
        ("<state id='a'><transition event='x' cond=\"_event.data.n == 'high'\"/></state>", 2, "only verdicts are read"),
        ("<state id='a'><transition event='*' target='a'/></state>", 1, "no transition names its event"),
        (f"{DATUM}<state id='a'>\n<transition event='x' cond=\"n == 'high'\"/></state>", 3, "'n' holds no texts"),
        (
            f"{DATUM}<state id='a'>\n<transition event='x'><assign location='n' expr=\"'high'\"/></transition></state>",
            3,
            "'n' holds no texts, and meets 'high'",
        ),
        (SENT.format(" targetexpr='z'"), 2, "where 'y' goes is computed"),
        (SENT.format("/><raise event='y'"), 2, "'y' is raised twice"),
        ("<state id='a'><onentry><send event='t' delay='1s' target='#_parent'/></onentry></state>", 2, "entry or exit"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(body, line, words):
    found = read(body)
    assert found.machine is None
    assert any(at == line and words in message for at, message in errors(found)), found.findings


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a && b || !c", "a and b or not c"),
        ("!a == b", "(not a) == b"),
        ("not a == b", "not a == b"),
        ("a === 'x'", "a == x"),
        ("a - b - -3 * 2", "a - b - -3 * 2"),
        ("(a and (b or c))", "a and (b or c)"),
        ("_event.data.g != 'fatal'", "not g.fatal"),
    ],
)
def test_an_expression_means_what_its_language_says(text, meaning):
    assert unparse(read_foreign(text)) == meaning


@pytest.mark.parametrize(
    "text", ["", "a b", "a ? b : c", "f()", "a.b = 1", "1 < n < 3", "'a' + ", "(" * 99 + "a", "1.5 > a"]
)
def test_an_expression_beyond_a_table_is_refused(text):
    with pytest.raises(ForeignError):
        read_foreign(text)
