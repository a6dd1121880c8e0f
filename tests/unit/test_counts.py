"""Counts of conditions: parsing, simplification, and the results of checks."""

import json
import random
from itertools import product

import pytest
import rulebook
from each_row import each_row

from dsa.checks.certificate_writer import FAULTLESS, Certifier, behaviour, certify_proofs
from dsa.checks.document_diff import canonical
from dsa.checks.explanation import why
from dsa.checks.mutants import row_mutants
from dsa.checks.odds.retry_target import limit
from dsa.checks.proof.prover import prove
from dsa.checks.report import check
from dsa.errors import MachineError, UndecidedError
from dsa.expr import (
    COMPARISONS,
    FALSE,
    TRUE,
    And,
    Arithmetic,
    Compare,
    Count,
    Integer,
    Name,
    Not,
    Or,
    children,
    evaluate,
    simplify,
    unparse,
    with_children,
)
from dsa.kernel import verify, verify_claim
from dsa.lang import dumps, format_document, loads, spell_out
from dsa.system import closed_system
from dsa.targets.picture import outcome_of
from dsa.targets.prism import SYNTAX as PRISM
from dsa.targets.promela import SYNTAX as PROMELA
from dsa.targets.scxml import SYNTAX as SCXML
from dsa.targets.tla import SYNTAX as TLA
from dsa.targets.xstate import SYNTAX as XSTATE

A, B, C = (Name(letter, "variable") for letter in "abc")

DOCUMENT = """# m

## Families
| family | index |
| ------ | ----- |
| f      | 1..3  |
| count  | {{p, q}} |

## Variables
| variable  | domain | initial |
| --------- | ------ | ------- |
| x[f]      | bool   | false   |
| on[count] | bool   | false   |
| level[f]  | 0..9   | 0       |
| n         | 0..9   | 0       |

## Events
| event  | from      |
| ------ | --------- |
| go     | outside   |
| up[f]  | outside   |
| say[count] | outside |
| came[f] | fetch[f] |
| judged | outside   |

## Guards
| guard | judges |
| ----- | ------ |
| g     | judged |
| h     | judged |

## Transitions
| source | event   | if          | update   | effects | target |
| ------ | ------- | ----------- | -------- | ------- | ------ |
| idle   | go      | {condition} | {update} | all f: fetch[f] | idle |
| idle   | came[f] |             |          |         | idle   |
| idle   | judged  | {judged}    |          |         | idle   |
"""


def read(condition="", update="", judged=""):
    return loads(DOCUMENT.format(condition=condition, update=update, judged=judged), "m.md")


def condition_of(text):
    return read(text).transitions[0].condition


@each_row(
    ("text", "spelled_out"),
    [
        ("(count f: x[f]) >= 2", "count(x[1], x[2], x[3]) >= 2"),
        ("(count f: x[f] and x[f+1]) == n", "count(x[1] and x[2], x[2] and x[3], x[3] and x[1]) == n"),
        ("(count f: f != 2 and x[f]) > 0", "count(x[1], x[3]) > 0"),
        ("(count f: f == 2 or x[f]) > 1", "count(x[1], true, x[3]) > 1"),
        ("(count f: f >= 2) == n", "2 == n"),
        ("(count f: f > 5) == n", "0 == n"),
        ("(count f: f > 1) == 2", "true"),
        ("(count f: (count f: x[f]) > f) > 1", "count(count(x[1], x[2], x[3]) > 1, count(x[1], x[2], x[3]) > 2, count(x[1], x[2], x[3]) > 3) > 1"),
        ("(count f: level[f] in {1, 2}) + 1 < n", "count(level[1] in {1, 2}, level[2] in {1, 2}, level[3] in {1, 2}) + 1 < n"),
        ("(count f: pending fetch[f]) > 0", "count(pending fetch[1], pending fetch[2], pending fetch[3]) > 0"),
        ("(count count: on[count]) == 1", "count(on[p], on[q]) == 1"),
        ("count(x[1]) == 1", "count(x[1]) == 1"),
        ("count(x[1] or x[2], x[3], all f: x[f]) == 1", "count(x[1] or x[2], x[3], x[1] and x[2] and x[3]) == 1"),
        ("-count(x[1]) * 2 < (count f: x[f]) - 1", "-count(x[1]) * 2 < count(x[1], x[2], x[3]) - 1"),
        ("not (count f: x[f]) in {0, 3}", "not count(x[1], x[2], x[3]) in {0, 3}"),
    ],
)  # fmt: skip
def test_counts_are_spelled_out_and_read_again(text, spelled_out):
    machine = read(text)
    assert unparse(machine.transitions[0].condition) == spelled_out
    assert condition_of(spelled_out) == machine.transitions[0].condition
    assert loads(dumps(machine)) == machine
    assert text in dumps(machine)
    assert loads(dumps(spell_out(machine))) == machine


def test_family_named_count_expands_a_row_only_as_an_index_or_a_value():
    text = DOCUMENT.format(condition="", update="n = (count count: on[count])", judged="")
    row = "| idle | say[count] | count(x[1], x[2]) > 0 and on[count] | n = count(x[1]) | | idle |\n"
    machine = loads(text + row)
    assert [unparse(each.condition) for each in machine.transitions[-2:]] == [
        f"count(x[1], x[2]) > 0 and on[{index}]" for index in "pq"
    ]
    assert len(loads(text + row.replace("say[count]", "go").replace("on[count]", "x[1]")).transitions) == 6


def test_count_is_an_ordinary_name_elsewhere():
    machine = loads("""# m
## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| count     | 0..9   | 2       |
## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| x        | bool   | false   |
| n        | 0..9   | count   |
## Transitions
| source | event | if                                | update            | target |
| ------ | ----- | --------------------------------- | ----------------- | ------ |
| idle   | go    | count > 1 and count + count(x) > 2 | n = count(x) * count | idle |
## Properties
- at most count (go)
- at most count(x, not x) go
- always count == 2
""")
    bounds = [unparse(claim.form.bound) for claim in machine.properties[:2]]
    assert bounds == ["count", "count(x, not x)"]
    assert loads(dumps(machine)) == machine


def test_quantified_text_means_one_body_for_each_index():
    """Random texts with `all`, `any` and `count` have the right value at random values of the variables."""
    source, indices = random.Random(7), (1, 2, 3)
    for _ in range(150):
        text, meaning = quantified(source, (), 3)
        condition = condition_of(text)
        for _ in range(8):
            flags, levels = ([source.randrange(limit) for _ in indices] for limit in (2, 10))
            known = {f"x[{f}]": bool(flags[f - 1]) for f in indices} | {f"level[{f}]": levels[f - 1] for f in indices}
            expected = meaning(lambda f, x=flags: bool(x[f - 1]), lambda f, x=levels: x[f - 1], {})
            assert evaluate(condition, known) is rulebook.value(condition, known) is expected, text


def quantified(source, families, depth):
    """Return a random condition as text, and a function of the values of x, level and the families that gives its meaning."""
    forms = ["flag", "level", "same"] if depth == 0 else ["all", "any", "count", "not", "and", "or"]
    form, family = source.choice(forms), source.choice("fe")
    inner = lambda bound=families: quantified(source, bound, depth - 1)  # noqa: E731
    if form in {"all", "any", "count"}:
        text, body = inner((*families, "f"))
        each = lambda x, level, at: [body(x, level, {**at, "f": f}) for f in (1, 2, 3)]  # noqa: E731
        if form != "count":
            join = all if form == "all" else any
            return f"({form} f: {text})", lambda x, level, at: join(each(x, level, at))
        sign, number = source.choice([*COMPARISONS]), source.randrange(5)
        holds = COMPARISONS[sign]
        return f"(count f: {text}) {sign} {number}", lambda x, level, at: holds(sum(each(x, level, at)), number)
    if form == "not":
        text, body = inner()
        return f"not ({text})", lambda x, level, at: not body(x, level, at)
    if form in {"and", "or"}:
        (one, first), (two, second) = inner(), inner()
        if form == "and":
            return f"({one} and {two})", lambda x, level, at: first(x, level, at) and second(x, level, at)
        return f"({one} or {two})", lambda x, level, at: first(x, level, at) or second(x, level, at)
    fixed = source.randrange(1, 4)
    index, at_index = ("f", lambda at: at["f"]) if families and family == "f" else (str(fixed), lambda _: fixed)
    if form == "flag":
        return f"x[{index}]", lambda x, _, at: x(at_index(at))
    number = source.randrange(10)
    if form == "level" or index != "f":
        return f"level[{index}] >= {number}", lambda _, level, at: level(at_index(at)) >= number
    return f"f != {fixed}", lambda _x, _level, at: at["f"] != fixed


def test_count_has_at_most_64_conditions():
    most = ", ".join(["x[1]"] * 64)
    assert len(condition_of(f"count({most}) > 2").first.operands) == 64
    with pytest.raises(MachineError, match="a count has at most 64 conditions"):
        read(f"count({most}, x[1]) > 2")


def test_counts_are_nested_like_parentheses():
    text = "x[1]"
    for _ in range(20):
        text = f"count({text}, x[2]) >= 1"
    assert unparse(condition_of(text)) == text
    with pytest.raises(MachineError, match="nested more than 60 levels deep"):
        read("count(" * 61 + "x[1]" + ") > 0" * 61)


VALUES = [dict(zip("abc", values, strict=True)) for values in product((False, True), repeat=3)]


@each_row("parts", [(A,), (A, B), (A, B, C), (A, A, B), (A, Not(A)), (TRUE, A, FALSE, B), (TRUE, TRUE), (FALSE,)])
def test_folded_comparisons_of_counts_mean_the_same(parts):
    for sign, number in product(COMPARISONS, range(-1, 5)):
        for whole in (
            Compare(Count(parts), ((sign, Integer(number)),)),
            Compare(Integer(number), ((sign, Count(parts)),)),
        ):
            small = simplify(whole)
            assert all(evaluate(small, values) is evaluate(whole, values) for values in VALUES)
            assert simplify(small) == small


@each_row(
    ("sign", "number", "small"),
    [
        (">=", 0, TRUE),
        ("<", 0, FALSE),
        (">", 3, FALSE),
        (">=", 1, Or((A, B, C))),
        (">", 2, And((A, B, C))),
        ("==", 0, And((Not(A), Not(B), Not(C)))),
        ("<", 3, Or((Not(A), Not(B), Not(C)))),
        ("!=", 3, Or((Not(A), Not(B), Not(C)))),
        (">=", 2, Compare(Count((A, B, C)), ((">=", Integer(2)),))),
        ("!=", 2, Compare(Count((A, B, C)), (("!=", Integer(2)),))),
    ],
)
def test_trivial_thresholds_of_counts_become_plain_conditions(sign, number, small):
    assert simplify(Compare(Count((A, B, C)), ((sign, Integer(number)),))) == small


def test_tree_can_be_rebuilt_from_its_parts():
    whole = condition_of("not (count f: level[f] + 1 in {2, n}) - 1 < -n < 3 or x[1]")
    assert with_children(whole, children(whole)) == whole
    assert unparse(with_children(Count((A, B)), (B, C))) == "count(b, c)"
    assert with_children(A, ()) is A


@each_row(
    ("cell", "formatted"),
    [
        ("(count f :x[f])>=2", "(count f: x[f]) >= 2"),
        ("count( x[1],x[2] )>=2", "count(x[1], x[2]) >= 2"),
        ("( count  f: count(x[f],x[1])>1 )==n", "(count f: count(x[f], x[1]) > 1) == n"),
        ("count (x)", "count (x)"),
    ],
)
def test_counts_are_formatted(cell, formatted):
    text = format_document(DOCUMENT.format(condition=cell, update="", judged=""))
    assert f"| {formatted} " in text


def test_guard_in_a_count_must_judge_the_event():
    with pytest.raises(MachineError, match="guard 'g' does not judge the event 'go'"):
        read("count(g.passed, x[1]) > 1")
    assert read(judged="count(g.passed, h.passed) == 1").transitions[-1].condition


def test_counted_verdict_gives_a_row_no_outcome():
    machine = read(judged="count(g.passed, h.passed) == 0")
    assert outcome_of(machine.transitions[-1]) is None


QUORUM = """# quorum

## Families
| family | index |
| ------ | ----- |
| f      | 1..3  |

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| x[f]     | bool   | false   |
| n        | 0..3   | 0       |

## States
| state | kind    |
| ----- | ------- |
| idle  | initial |
| over  | final   |

## Transitions
| source | event | if                       | update                      | target |
| ------ | ----- | ------------------------ | --------------------------- | ------ |
| idle   | go[f] | not x[f]                 | x[f] = true                 | =      |
| idle   | stop  | (count f: x[f]) >= 2     | n = (count f: x[f]) + 0     | over   |

## Events
| event | from    |
| ----- | ------- |
| go[f] | outside |
| stop  | outside |
"""


def test_why_lists_the_true_conditions_of_a_count():
    machine = loads(QUORUM)
    shown = why(machine, "stop", "idle", {"x[1]": False, "x[2]": True, "x[3]": False}).show()
    assert "not taken: count(x[1], x[2], x[3]) >= 2 (1 of 3: x[2]) is false" in shown
    refused = [case for case in why(machine, "stop", "idle").cases if case.outcome != "taken"]
    # All for the same reason; the conditions shown are those of the first case.
    assert [case.count for case in refused] == [4]
    assert refused[0].rows[0].false_conjuncts == ("count(x[1], x[2], x[3]) >= 2 (0 of 3)",)


def test_mutants_drop_a_condition_of_a_count():
    listed = "count(x[1], x[2], x[3])"
    machine = loads(QUORUM.replace("(count f: x[f])", listed))
    what = [mutant.what for mutant in row_mutants(machine) if mutant.at is machine.transitions[-1]]
    for fewer in ("x[2], x[3]", "x[1], x[3]", "x[1], x[2]"):
        assert f"'count({fewer})' instead of 'count(x[1], x[2], x[3])'" in what
    # In the condition, and in the update.
    assert what.count("'count(x[1], x[2])' instead of 'count(x[1], x[2], x[3])'") == 2
    assert "'count(x[1], x[2], x[3]) >= 3' instead of 'count(x[1], x[2], x[3]) >= 2'" in what
    assert "n = count(x[1], x[2], x[3]) + 1 instead of count(x[1], x[2], x[3]) + 0" in what


def test_mutants_do_not_drop_a_condition_of_a_count_over_a_family():
    machine = loads(QUORUM)
    what = [mutant.what for mutant in row_mutants(machine) if mutant.at is machine.transitions[-1]]
    assert not [each for each in what if each.startswith("'count(x[1], x[2])")]
    assert "'count(x[1], x[2], x[3]) >= 3' instead of 'count(x[1], x[2], x[3]) >= 2'" in what


def test_order_of_conditions_in_a_count_makes_no_difference():
    assert canonical(Count((A, Or((B, C)), B))) == canonical(Count((B, A, Or((C, B)))))
    assert canonical(Count((A, A, B))) != canonical(Count((A, B, B)))


@each_row(
    ("syntax", "text"),
    [
        (PROMELA, "((a -> 1 : 0) + (!b -> 1 : 0) + (b || c -> 1 : 0)) > 2 * (c -> 1 : 0) + 1"),
        (
            TLA,
            "((IF a THEN 1 ELSE 0) + (IF ~b THEN 1 ELSE 0) + (IF b \\/ c THEN 1 ELSE 0)) > 2 * (IF c THEN 1 ELSE 0) + 1",
        ),
        (PRISM, "((a ? 1 : 0) + (!b ? 1 : 0) + (b | c ? 1 : 0)) > 2 * (c ? 1 : 0) + 1"),
        (XSTATE, "((a ? 1 : 0) + (!b ? 1 : 0) + (b || c ? 1 : 0)) > 2 * (c ? 1 : 0) + 1"),
        (SCXML, "((0 + (a)) + (0 + (b == false)) + (0 + (b || c))) > 2 * (0 + (c)) + 1"),
    ],
)
def test_exports_add_up_the_true_conditions(syntax, text):
    more = Arithmetic("+", Arithmetic("*", Integer(2), Count((C,))), Integer(1))
    whole = Compare(Count((A, Not(B), Or((B, C)))), ((">", more),))
    assert syntax.write(whole, lambda node: node.name) == text


LENIENT = """# lenient

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| lenient   | bool   | false   |

## Variables
| variable | domain               | initial |
| -------- | -------------------- | ------- |
| n        | 0..1 + count(lenient) | count(not lenient) |

## Transitions
| source | event | if                       | update | target |
| ------ | ----- | ------------------------ | ------ | ------ |
| idle   | go    | n < 1 + count(lenient, n > 7) | n += count(true) | idle |
"""


@each_row(
    ("text", "form", "part", "is_true"),
    [
        (QUORUM, "always {}", "count(x[1], x[2], x[3]) <= 3", True),
        (QUORUM, "always {}", "count(x[1], x[2], x[3], not x[1]) >= 1", True),
        (QUORUM, "never {}", "over and n < 2", True),
        (QUORUM, "never {}", "over and n != count(x[1], x[2], x[3])", True),
        (QUORUM, "never {}", "count(x[1], x[2], x[3]) == 3", False),
        (QUORUM, "always {}", "count(x[1], x[1], x[2]) < 3", False),
        (LENIENT, "always {}", "n <= 1 + count(lenient)", True),
        (LENIENT, "always {}", "n <= 1 + count(not lenient)", False),
    ],
)
def test_kernel_counts_true_conditions(text, form, part, is_true):
    machine = spell_out(loads(text))
    for lenient in ("true", "false") if machine.parameters and is_true else ("true",):
        claim = {"form": form, "parts": [part], "proofs": [], "at": {"lenient": lenient} if machine.parameters else {}}
        if is_true:
            assert verify_claim(dumps(machine), claim)
        else:
            with pytest.raises(AssertionError, match="not "):
                verify_claim(dumps(machine), claim)


def test_kernel_accepts_proofs_about_counts():
    machine = loads(LENIENT + "\n## Properties\n- always n <= 1 + count(lenient)\n")
    certifier = Certifier(behaviour(machine), dumps(behaviour(machine)))
    certify_proofs(certifier, prove(machine))
    accepted = list(verify(json.dumps(certifier.draft().certificate), lambda _: ""))
    assert "always n <= 1 + count(lenient): for all values" in accepted
    assert f"{FAULTLESS}: for all values" in accepted


STEPS = """# steps

## Steps
| step   | requires                       | guard |
| ------ | ------------------------------ | ----- |
| one    |                                | g     |
| two    |                                | g     |
| three  |                                | g     |
| report | count(one, two, three) - 1 > 0 | g     |

Goal: report and count(one, two, three) in {2, 3}

## Guards
| guard | is     |
| ----- | ------ |
| g     | syntax |
"""


def test_steps_may_require_a_number_of_other_steps():
    machine = loads(STEPS)
    conditions = [unparse(row.condition) for row in machine.transitions if row.source == "choosing"]
    sums = "count(sigma.one, sigma.two, sigma.three)"
    assert any(f"{sums} - 1 > 0 and not sigma.report" in text for text in conditions)
    assert conditions[0] == f"sigma.report and {sums} in {{2, 3}}"
    assert loads(dumps(machine)) == machine


CHANCE = """# chance

## Families
| family | index |
| ------ | ----- |
| f      | 1..3  |

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| x[f]     | bool   | false   |
| n        | 0..3   | 0       |

## Events
| event   | from    |
| ------- | ------- |
| go      | outside |
| came[f] | ask[f]  |
| added   | add     |

## Guards
| guard | judges  | verdicts       | pass |
| ----- | ------- | -------------- | ---- |
| g     | came[f] | passed, failed | 0.5  |

## States
| state     | kind    |
| --------- | ------- |
| idle      | initial |
| asking    |         |
| succeeded | final   |
| failed    | final   |

## Transitions
| source | event   | if                        | update                       | effects  | target    |
| ------ | ------- | ------------------------- | ---------------------------- | -------- | --------- |
| idle   | go      |                           |                              | ask[1]   | asking    |
| asking | came[f] | g.passed and f != 3       | x[f] = true                  | ask[f+1] | =         |
| asking | came[f] | g.failed and f != 3       |                              | ask[f+1] | =         |
| asking | came[f] | g.passed and f == 3       | x[f] = true; n = count(x[1], x[2]) + 1 | add | =        |
| asking | came[f] | g.failed and f == 3       | n = (count f: x[f])          | add      | =         |
| asking | added   | (count f: x[f]) == n >= 2 |                              |          | succeeded |
| asking | added   | else                      |                              |          | failed    |

## Properties
- succeeded with probability >= 0.5
- succeeded with probability <= 0.5
- n == 3 with probability >= 0.125
- n == 3 with probability <= 0.125
"""


def test_odds_of_counts_are_exact():
    assert [claim.verdict for claim in check(loads(CHANCE)).properties] == ["HOLDS"] * 4


BOUND = """# bound

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| rmax      | 0..    | 2       |

## Variables
| variable | domain  | initial |
| -------- | ------- | ------- |
| retries  | 0..rmax | 0       |
| x        | bool    | false   |

## Events
| event  | from    |
| ------ | ------- |
| go     | outside |
| answer | ask     |

## Guards
| guard | judges | pass |
| ----- | ------ | ---- |
| g     | answer | 0.5  |

## States
| state     | kind    |
| --------- | ------- |
| idle      | initial |
| asking    |         |
| succeeded | final   |
| failed    | final   |

## Transitions
| source | event  | if                          | update       | effects | target    |
| ------ | ------ | --------------------------- | ------------ | ------- | --------- |
| idle   | go     |                             |              | ask     | asking    |
| asking | answer | g.passed                    |              |         | succeeded |
| asking | answer | not g.passed and CONDITION  | retries += 1 | ask     | =         |
| asking | answer | else and not g.passed       |              |         | failed    |
"""


@each_row(
    ("condition", "is_ceiling"),
    [
        ("count(retries < rmax, x) >= 1", True),
        ("count(retries < rmax, x) > 0 and retries < rmax", True),
        ("count(retries >= rmax, x, false) < 1 and retries < rmax", True),
        ("count(retries < rmax, not x, true) == 3", True),
        ("2 <= count(retries < rmax, not x)", True),
    ],
)
def test_bound_in_a_count_may_be_infinite(condition, is_ceiling):
    machine = loads(BOUND.replace("CONDITION", condition))
    found = limit(closed_system(machine), ["rmax"], ["succeeded"])
    assert [variable.name for variable in found.system.variables] in ([], ["x"])
    assert found.is_ceiling == is_ceiling
    states = {found.system.locations[command.target].state for command in found.system.commands}
    assert "failed" not in states or "x" in condition


@each_row(
    "condition",
    [
        "count(retries < rmax, x, not x) >= 2",
        "count(retries >= rmax, x, not x) < 2",
        "2 <= count(retries < rmax, x, not x)",
        "count(retries < rmax, x) >= 1",
    ],
)
def test_success_after_a_bound_in_a_count_makes_the_limit_no_ceiling(condition):
    text = BOUND.replace("CONDITION", condition).replace("| failed    | final   |", "| failed    |         |")
    machine = loads(text + "| failed | after 1s | | | | succeeded |\n")
    assert not limit(closed_system(machine), ["rmax"], ["succeeded"]).is_ceiling


@each_row(
    ("condition", "reason"),
    [
        ("count(retries == rmax, x) < 1", "rmax is compared for equality"),
        ("(retries < rmax) == x and retries < rmax", "rmax is read outside of a comparison"),
        ("count(x, true) < rmax - retries and count(x, retries != rmax) > 1", "rmax is compared for equality"),
    ],
)
def test_count_with_an_unsupported_use_of_the_bound_is_refused(condition, reason):
    machine = loads(BOUND.replace("CONDITION", condition))
    with pytest.raises(UndecidedError, match=reason):
        limit(closed_system(machine), ["rmax"], ["succeeded"])
