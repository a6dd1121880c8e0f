"""`--budget`: a run stops before it spends more, and continues with a larger budget."""

import json

DOCUMENT = """# pair

## Steps
| step | guard | rmax | task |
| ---- | ----- | ---- | ---- |
| code | cases | 3 | Write twice(x). |

## Cases: code
| call | expected |
| - | - |
| twice(2) | 4 |
"""
REPLIES = "\n\n".join(f"```python\ndef twice(x): return {body}\n```" for body in ("0", "1", "2 * x"))


def test_run_stops_at_its_budget_and_continues_with_a_larger_one(dsa, tmp_path):
    (tmp_path / "pair.md").write_text(DOCUMENT)
    (tmp_path / "script.md").write_text(REPLIES)
    run = dsa("run", "pair.md", "--model", "scripted:script.md", "--budget", "query_llm.calls=1", "--json")
    told = json.loads(run.stdout)
    assert run.returncode == 1
    assert told["failure"]["message"] == "query_llm (line 6) failed: the budget is spent: at most 1 call of query_llm"
    assert told["totals"]["calls"] == 1
    again = dsa("resume", "last")
    assert again.returncode == 1, "it keeps its budget"
    assert "the budget is spent: at most 1 call of query_llm" in again.stdout
    more = dsa("resume", "last", "--budget", "calls=6", "--json")
    assert (more.returncode, json.loads(more.stdout)["outcome"]) == (0, "succeeded")


def test_invalid_budget_is_a_usage_error(dsa):
    done = dsa("run", "dual_state", "--budget", "calls=many")
    assert (done.returncode, "'calls=many' is not a budget: 'many' is not a number of 0 or more" in done.stderr) == (
        2,
        True,
    )
