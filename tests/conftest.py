"""The session: signals as the tests need them, a limit for each test, and a summary of faults that fired, figures and what could not be tested here.

All of it works across xdist's workers.
"""

import gc
import os
import signal
from collections import Counter
from contextlib import contextmanager
from importlib.util import find_spec
from operator import itemgetter

import pytest
import sample_sizes
from hypothesis import HealthCheck, settings

# Beside other work drawing is slow at times, which says nothing of the tested code. Each test has a limit of its own.
settings.register_profile("any load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any load")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # a test that asks whether LiteLLM is here imports it
os.environ.setdefault(
    "DSA_RETRY_S", "0"
)  # a server that fails on purpose is not waited for; tests of the waiting set it

# A shell that starts tests with & has them ignore Ctrl-C, and nohup has them ignore SIGHUP. The programs that tests start would ignore both, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)  # the tests outlive their terminal; a program has the default again

#: Seconds that the set-up, the call and the end of a test may take each; the mark `limit` allows more, or less.
LIMIT_S, LIMIT_OF_FULL_S = 120, 3_600

NOT_TESTED = "NOT TESTED"

#: Documents that are wrong on purpose: what is claimed of them is tested, not they themselves.
collect_ignore_glob = ["golden/forged/*"]


def require_package(name, reason):
    """Skip a module of tests where a package is not installed. Each worker collects each module, so it is not imported here."""
    if find_spec(name) is None:
        pytest.skip(reason, allow_module_level=True)


class TimeLimitError(BaseException):
    """Raised in a test that takes too long. It is not an `Exception`, so that neither the tested code nor Hypothesis goes on after it."""


gc.disable()  # until all is collected: what modules and their cases are made of stays


def pytest_configure(config):
    """Make tests draw random cases in full where tests marked `full` run."""
    marks = config.option.markexpr
    sample_sizes.IS_FULL = not marks or "full" in marks.replace("not full", "")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes():
    """Start the processes that fork commands before the workers, which share them. They import nothing until they are asked."""
    import forked

    forked.start()


def pytest_collection_finish():
    """Exclude the collected tests from garbage collection, and make it run less often: it took an eighth of the time of all tests."""
    gc.freeze()
    gc.set_threshold(5_000, 20, 20)
    gc.enable()


@contextmanager
def limited(item, phase):
    """End a phase of a test when its limit is over. What holds the interpreter for longer ends with `faulthandler_timeout`."""
    mark, full = item.get_closest_marker("limit"), item.get_closest_marker("full")
    seconds = mark.args[0] if mark else LIMIT_OF_FULL_S if full else LIMIT_S

    def end(*_):
        raise TimeLimitError(f"{phase} of {item.nodeid} takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, end)
    # Again and again: a callback of asyncio may lose the first one.
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds / 10)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    """Limit the set-up."""
    with limited(item, "the set-up"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Limit the call."""
    with limited(item, "the call"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """Limit the end; and end the Temporal server of this process where it has nothing to do in the next module."""
    with limited(item, "the end"):
        result = yield
    namespaces = item.config.stash.get(NAMESPACES, None)
    is_left = nextitem is not None and nextitem.path != item.path
    if namespaces is not None and is_left and "namespaces" not in getattr(nextitem, "fixturenames", ()):
        namespaces.end_server()
    return result


@pytest.fixture
def told(record_property):
    """Add a line to the summary: `told(line)`."""
    return lambda line: record_property("told", line)


@pytest.fixture
def figures(record_property):
    """Add figures to a line of a table in the summary: `figures(table, line, column=number, ..)`."""
    return lambda table, line, **numbers: record_property("figures", [table, line, numbers])


#: The key of the addresses of the Temporal server.
NAMESPACES = pytest.StashKey()


@pytest.fixture(scope="session")
def namespaces(pytestconfig):
    """Yield addresses of namespaces of a Temporal server, for one test each: all tests of a process share the server."""
    import temporal_server

    if temporal_server.temporal_program() is None:
        pytest.skip(temporal_server.MISSING)
    addresses = pytestconfig.stash[NAMESPACES] = temporal_server.Namespaces()
    yield addresses
    addresses.end_server()


@pytest.fixture
def fired(figures):
    """Add faults of a kind to the summary: how many were planned, and how many of them fired."""
    return lambda kind, planned, number: figures("faults", kind, planned=planned, fired=number)


def pytest_terminal_summary(terminalreporter):
    """Print the summary: figures, lines, and what could not be tested here."""
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
        terminalreporter.section("summary of figures and notes")
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
