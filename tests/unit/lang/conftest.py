"""A valid document, and the findings in it after some of its text was replaced."""

import pytest

from dsa.lang import read_machine

DUAL = """# m

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| rmax      | 0..    | 3       |

## Variables
| variable | scope       | domain       | initial |
| -------- | ----------- | ------------ | ------- |
| done     | workflow    | bool         | false   |
| retries  | environment | 0..rmax      | 0       |
| colour   | environment | {red, green} | red     |

## Events
| event         | from          |
| ------------- | ------------- |
| specification | outside       |
| artifact      | query_llm     |
| verdict       | execute_guard |

## Guards
| guard | judges  | is    |
| ----- | ------- | ----- |
| g     | verdict | cases |

## States
| state        | kind    |
| ------------ | ------- |
| idle         | initial |
| work         |         |
| work.writing | initial |
| work.judging |         |
| over         | final   |

## Transitions
| source  | event         | if                          | update                    | effects       | target  |
| ------- | ------------- | --------------------------- | ------------------------- | ------------- | ------- |
| idle    | specification |                             |                           | query_llm     | work    |
| writing | artifact      |                             |                           | execute_guard | judging |
| judging | verdict       | g.passed                    | done = true; retries = 0  | log           | over    |
| judging | verdict       | g.failed and retries < rmax | retries += 1              | query_llm     | writing |
| judging | verdict       | else                        | colour = green            |               | over    |
| work    | after 30s     | colour == red               |                           | cancel, log   | over    |

## Properties
- always retries <= rmax
- never done and writing

## Scenario: one
| percept          | action        | state   | retries |
| ---------------- | ------------- | ------- | ------- |
| specification    | query_llm     | writing | 0       |
| artifact         | execute_guard | judging |         |
| verdict g.failed | query_llm     | writing | 1       |
"""


@pytest.fixture
def dual():
    return DUAL


def after(*changes):
    """Return the document after each (old, new) was replaced once."""
    text = DUAL
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


@pytest.fixture
def faults():
    """Return a function that gives the code and the marked text of each finding in the changed document."""

    def found(*changes):
        reading = read_machine(after(*changes))
        assert (reading.machine is None) == any(d.severity == "error" for d in reading.diagnostics)
        return [(d.code, d.span.text[d.span.column - 1 : d.span.end - 1]) for d in reading.diagnostics]

    return found


@pytest.fixture
def machine():
    """Return a function that reads the machine of the changed document."""

    def read(*changes):
        reading = read_machine(after(*changes))
        assert reading.machine is not None, [d.render() for d in reading.diagnostics]
        return reading.machine

    return read
