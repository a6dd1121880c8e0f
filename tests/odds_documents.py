"""Documents for tests of odds, and what they come to in closed form."""

from math import prod

from dsa.lang import loads


def chain(*steps, rmax=3, extra=""):
    """Return a Steps document whose steps follow one another; each may be a name, or a name with its guard's odds."""
    named = [step if isinstance(step, str) else step[0] for step in steps]
    before = ["", *named]
    rows = [f"| {name} | {before[place]} | llm | syntax | {rmax} |" for place, name in enumerate(named)]
    head = ["# chain", "", "## Steps", "| step | requires | generator | guard | rmax |", "| - | - | - | - | - |"]
    return loads("\n".join([*head, *rows, "", extra, ""]))


def loose(names, requires=None, rmax=3):
    """Return a Steps document whose steps may come in any order but for what each requires."""
    rows = [f"| {name} | {(requires or {}).get(name, '')} | llm | syntax | {rmax} |" for name in names]
    head = ["# loose", "", "## Steps", "| step | requires | generator | guard | rmax |", "| - | - | - | - | - |"]
    return loads("\n".join([*head, *rows, ""]))


def closed_form(odds, rmax):
    """Return success, exhausted, fatal and calls of steps in order; `odds` has (pass, fatal) for each step."""
    success, failed, fatal, calls = 1.0, 0.0, 0.0, 0.0
    for passes, dies in odds:
        again = 1 - passes - dies
        attempts = (rmax + 1) if again == 1 else (1 - again ** (rmax + 1)) / (1 - again)
        calls += success * attempts
        failed += success * again ** (rmax + 1)
        fatal += success * dies * attempts
        success *= passes * attempts
    return success, failed, fatal, calls


def ceiling(odds):
    """Return what success tends to as retries grow without end."""
    return prod(passes / (passes + dies) for passes, dies in odds)


#: Retries with nothing that counts them.
UNLIMITED = """# unlimited

## Events
| event         | from          |
| ------------- | ------------- |
| specification | outside       |
| artifact      | query_llm     |
| verdict       | execute_guard |

## Guards
| guard | judges  | pass | fatal |
| ----- | ------- | ---- | ----- |
| g     | verdict | 0.6  | 0.1   |

## States
| state      | kind    |
| ---------- | ------- |
| idle       | initial |
| generating |         |
| validating |         |
| succeeded  | final   |
| escalated  | final   |

## Transitions
| source     | event         | if       | effects       | target     |
| ---------- | ------------- | -------- | ------------- | ---------- |
| idle       | specification |          | query_llm     | generating |
| generating | artifact      |          | execute_guard | validating |
| validating | verdict       | g.passed |               | succeeded  |
| validating | verdict       | g.failed | query_llm     | generating |
| validating | verdict       | g.fatal  |               | escalated  |
"""

#: A model that may ask for a tool or be done, up to three times; its calls may fail, and a person may be asked.
TOOLS = """# tools

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| used     | 0..3   | 0       |

## Events
| event    | from     |
| -------- | -------- |
| question | outside  |
| allowed  | outside  |
| refused  | outside  |
| call     | ask      |
| done     | ask      |
| result   | run_tool |

## States
| state     | kind    |
| --------- | ------- |
| idle      | initial |
| thinking  |         |
| working   |         |
| waiting   |         |
| succeeded | final   |
| failed    | final   |

## Transitions
| source   | event      | if       | update    | effects  | target    |
| -------- | ---------- | -------- | --------- | -------- | --------- |
| idle     | question   |          |           | ask      | thinking  |
| thinking | call       | used < 3 | used += 1 | run_tool | working   |
| thinking | call       | else     |           |          | waiting   |
| thinking | done       |          |           |          | succeeded |
| thinking | ask.failed |          |           |          | failed    |
| working  | result     |          |           | ask      | thinking  |
| waiting  | allowed    |          | used = 0  | ask      | thinking  |
| waiting  | refused    |          |           |          | failed    |
"""

#: A person with a timer beside them.
HUM = """# hum

## Events
| event | from    |
| ----- | ------- |
| ask   | outside |
| yes   | outside |

## States
| state     | kind    |
| --------- | ------- |
| idle      | initial |
| waiting   |         |
| succeeded | final   |
| failed    | final   |

## Transitions
| source  | event    | target    |
| ------- | -------- | --------- |
| idle    | ask      | waiting   |
| waiting | yes      | succeeded |
| waiting | after 4h | failed    |
"""

#: A counter that runs down from `rmax`, and whose domain ends at 5.
DOWN = """# down

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| rmax      | 0..    | 3       |

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| left     | 0..5   | rmax    |

## Events
| event   | from    |
| ------- | ------- |
| go      | outside |
| verdict | query   |

## Guards
| guard | judges  | pass |
| ----- | ------- | ---- |
| g     | verdict | 0.5  |

## States
| state     | kind    |
| --------- | ------- |
| idle      | initial |
| work      |         |
| succeeded | final   |
| failed    | final   |

## Transitions
| source | event   | if                        | update    | effects | target    |
| ------ | ------- | ------------------------- | --------- | ------- | --------- |
| idle   | go      |                           |           | query   | work      |
| work   | verdict | g.passed                  |           |         | succeeded |
| work   | verdict | not g.passed and left > 0 | left -= 1 | query   | work      |
| work   | verdict | else                      |           |         | failed    |
"""
