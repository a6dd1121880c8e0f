"""What tests tell at the end of a session: faults that fired, figures, and what could not be tested here. Works across xdist's workers."""

import os
import signal
from collections import Counter
from operator import itemgetter

import pytest

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # a test that asks whether LiteLLM is here imports it
os.environ.setdefault(
    "DSA_RETRY_S", "0"
)  # a server that fails on purpose is not waited for; tests of the waiting set it

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell that starts tests with & has them ignore Ctrl-C, and what they start too

NOT_TESTED = "NOT TESTED"

#: Documents that are wrong on purpose: what is claimed of them is tested, not they themselves.
collect_ignore_glob = ["golden/forged/*"]


@pytest.fixture
def told(record_property):
    """Have a line told at the end."""
    return lambda line: record_property("told", line)


@pytest.fixture
def figures(record_property):
    """Have figures added to a line of a table: `figures(table, line, column=number, ..)`."""
    return lambda table, line, **numbers: record_property("figures", [table, line, numbers])


@pytest.fixture
def fired(figures):
    """Have faults of a kind told at the end: how many were planned, and how many of them fired."""
    return lambda kind, planned, number: figures("faults", kind, planned=planned, fired=number)


def pytest_terminal_summary(terminalreporter):
    """Print what was told."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    ends = [report for report in reports if getattr(report, "when", None) == "teardown"]
    told = [pair for report in ends for pair in report.user_properties]
    skipped = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", ())]
    lines = [
        *_tables([value for name, value in told if name == "figures"]),
        *(value for name, value in told if name == "told"),
        *sorted({reason.removeprefix("Skipped: ") for reason in skipped if NOT_TESTED in reason}),
    ]
    if lines:
        terminalreporter.section("what was told")
        for line in lines:
            terminalreporter.write_line(line)


def _tables(figures):
    """Return the lines of all tables, with sums, the figures of a line added up."""
    for title in sorted({table for table, _, _ in figures}):
        sums = {}
        for _, line, numbers in sorted((f for f in figures if f[0] == title), key=itemgetter(1)):
            for name in (line, "in all"):
                sums.setdefault(name, Counter()).update(numbers)
        total = sums.pop("in all")
        width = max(map(len, [title, *sums]))
        yield "  ".join([f"{title:{width}}", *(f"{column:>8}" for column in total)])
        for name, numbers in [*sums.items(), ("in all", total)]:
            yield "  ".join([f"{name:{width}}", *(f"{numbers[column]:8,}" for column in total)])
