"""The documents that `dsa new` writes; a test checks, lays out and runs them."""

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
