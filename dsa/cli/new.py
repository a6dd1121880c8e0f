"""`dsa new NAME`: a starter document. `dsa new --scenarios FILE`: scenarios for the rows that none takes yet."""

from pathlib import Path

import click

from dsa.checks.scenarios import scenarios_for_untaken_rows
from dsa.edge.files import load
from dsa.lang import formatted, scenario_text
from dsa.lang.exprs import NAME, RESERVED

TRANSITIONS = """\
# {name}

A model drafts, a guard judges, and after `rmax` retries the machine gives up.

## Parameters
| parameter | domain | default | note                            |
| --------- | ------ | ------- | ------------------------------- |
| rmax      | 0..    | 3       | retries after the first attempt |

## Variables
| variable | scope       | domain  | initial | note                     |
| -------- | ----------- | ------- | ------- | ------------------------ |
| accepted | workflow    | bool    | false   | set only by a passed row |
| retries  | environment | 0..rmax | 0       |                          |

## Events
| event         | from          | note                    |
| ------------- | ------------- | ----------------------- |
| specification | outside       | what the user asks for  |
| artifact      | query_llm     | what the model wrote    |
| verdict       | execute_guard | what the guard said     |

## Guards
| guard | judges  | is     |
| ----- | ------- | ------ |
| g     | verdict | syntax |

## States
| state      | kind    |
| ---------- | ------- |
| idle       | initial |
| generating |         |
| validating |         |
| succeeded  | final   |
| failed     | final   |
| escalated  | final   |

## Transitions
| source     | event         | if                          | update                       | effects                       | target     |
| ---------- | ------------- | --------------------------- | ---------------------------- | ----------------------------- | ---------- |
| idle       | specification |                             |                              | query_llm                     | generating |
| generating | artifact      |                             |                              | execute_guard                 | validating |
| validating | verdict       | g.passed                    | accepted = true; retries = 0 | advance_state, reply_to_user  | succeeded  |
| validating | verdict       | g.failed and retries < rmax | retries += 1                 | refine_context, query_llm     | generating |
| validating | verdict       | g.fatal                     |                              | escalate_to_user              | escalated  |
| validating | verdict       | else                        |                              | refine_context, reply_failure | failed     |

## Properties
- never succeeded and not accepted
- at most rmax + 1 query_llm

## Scenario: passes at once
| percept       | action                       | state      |
| ------------- | ---------------------------- | ---------- |
| specification | query_llm                    | generating |
| artifact      | execute_guard                | validating |
| verdict       | advance_state, reply_to_user | succeeded  |
"""

STEPS = """\
# {name}

Each step is a generator and a guard; `dsa expand` prints the transitions this stands for.

## Steps
| step   | requires | generator | guard         | rmax | task                                                              |
| ------ | -------- | --------- | ------------- | ---- | ----------------------------------------------------------------- |
| double |          | llm       | syntax, cases | 4    | Write `def double(x):` which returns twice x.                     |
| area   | double   | llm       | syntax, cases | 4    | Write `def area(width, height):` which returns width times height. |

## Cases: double
| call      | expected |
| --------- | -------- |
| double(2) | 4        |
| double(0) | 0        |

## Cases: area
| call       | expected |
| ---------- | -------- |
| area(2, 3) | 6        |
| area(1, 5) | 5        |

## Properties
- sigma.area only after sigma.double
- never succeeded and not (sigma.double and sigma.area)
"""


@click.command("new")
@click.argument("name")
@click.option("--steps", is_flag=True, help="Start from a Steps table instead of transitions.")
@click.option("--scenarios", is_flag=True, help="NAME is a document: print scenarios for the rows that none takes.")
def command(name: str, *, steps: bool, scenarios: bool) -> None:
    """Write a starter document NAME.md in this folder, ready for `dsa check` and `dsa run`."""
    if scenarios and steps:
        raise click.UsageError("--steps is for a new document, --scenarios for one that is there")
    if scenarios:
        _print_scenarios(name)
        return
    name = name.removesuffix(".md")
    if not NAME.fullmatch(name) or set(name.split(".")) & RESERVED:
        raise click.UsageError(f"'{name}' is no name: letters, digits and '_', not starting with a digit")
    path = Path(f"{name}.md")
    text = formatted((STEPS if steps else TRANSITIONS).format(name=name))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as fault:
        raise click.UsageError(f"{path} is there already; nothing was written") from fault
    click.echo(f"wrote {path}; next: dsa check {path}")


def _print_scenarios(file: str) -> None:
    machine = load(file)
    found = scenarios_for_untaken_rows(machine)
    for scenario in found:
        click.echo(f"## Scenario: {scenario.name}\n{scenario_text(scenario)}\n")
    if not found:
        click.echo("every row that can be taken is taken by a scenario", err=True)
