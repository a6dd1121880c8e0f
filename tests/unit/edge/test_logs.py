import io
import json
import logging

import pytest
from moments import show_to

from dsa.edge.telemetry import LOGGER, LedgerLog, describe_entry, log_to
from dsa.runtime.ledger import (
    ArtifactEntry,
    CallEntry,
    CallResultEntry,
    ChangeEntry,
    DecidedEntry,
    EffectEntry,
    EventEntry,
    GuardVerdict,
    MachineEntry,
    RefusalEntry,
    ResultEntry,
    ResumedEntry,
    RowEntry,
    VerdictEntry,
)
from dsa.runtime.policy.policies import error_step
from dsa.runtime.secrets import Secrets

SECRETS = Secrets({"WORD": "opensesame"}, ())
FAILED = (error_step("tell", "GONE", "a long story").to_json(),)
ENTRIES = [
    MachineEntry("r1", "letters", "d" * 64),
    EventEntry(1, "specification", data="a text of a person"),
    RowEntry(33, "idle", "writing", {"retries": 1}),
    EffectEntry("1/1", "query_llm"),
    ArtifactEntry("1/1", "g", 1, "a" * 64, "b" * 64, (), "llm", "m", 0.25, 12, 3, redacted=("A_KEY",)),
    VerdictEntry("1/1", "g", 1, "a" * 64, [GuardVerdict("g", "failed", "a text of a guard")], 0.5),
    ResultEntry("1/1", (), 0.75),
    EventEntry(2, "verdict", {"g": "failed"}, None, None, "1/1"),
    RefusalEntry("late", "too late", ("approved", "rejected")),
    DecidedEntry("1/1", "retry"),
    ResumedEntry("ann", model="m", effects={"1/1": "retry"}),
    ResultEntry("1/1", FAILED, 1.0),
    CallEntry("1/1", "1.1", "look", "d", {}),
    CallResultEntry("1/1", "1.1"),
    ChangeEntry("letters2", "e" * 64, "# a document"),
]


def lines(*entries, level="debug", form="json"):
    """Return the lines that are written for entries."""
    stream, log = io.StringIO(), LedgerLog()
    with log_to(stream, level, form, SECRETS):
        show_to(log.on_moment, *entries)
    return stream.getvalue().splitlines()


def test_each_entry_is_one_line_without_its_texts():
    told = [json.loads(line) for line in lines(*ENTRIES)]
    assert [line.pop("kind") for line in told] == [
        "machine", "event", "row", "effect", "artifact", "verdict", "result", "event", "refusal", "decided",
        "resumed", "result", "call", "call_result", "change",
    ]  # fmt: skip
    assert all(line.pop("time").endswith("Z") and line.pop("logger") == "dsa" for line in told)
    key, where = {"key": "1/1"}, {"run": "r1", "seq": 1, "state": "writing"}
    about = {"step": "g", "attempt": 1, "artifact": "a" * 64}
    assert told == [
        {"level": "info", "run": "r1", "seq": 0, "machine": "letters", "digest": "d" * 64},
        {"level": "info", "run": "r1", "seq": 1, "event": "specification"},
        {"level": "info", **where, "line": 33, "source": "idle", "changed": {"retries": 1}},
        {"level": "info", **where, "effect": "query_llm", **key},
        {"level": "warning", **where, **key, "seconds": 0.25, **about, "model": "m", "prompt_tokens": 12, "completion_tokens": 3, "redacted": ["A_KEY"]},
        {"level": "info", **where, **key, "seconds": 0.5, **about, "verdict": "failed", "guards": {"g": "failed"}},
        {"level": "info", **where, "effect": "query_llm", **key, "seconds": 0.75},
        {"level": "info", **where, "seq": 2, "event": "verdict", **key, "verdicts": {"g": "failed"}},
        {"level": "warning", **where, "seq": 2, "reason": "late", "accepted": ["approved", "rejected"]},
        {"level": "info", **where, "seq": 2, "effect": "query_llm", **key, "handling": "retry"},
        {"level": "warning", **where, "seq": 2, "by": "ann", "model": "m", "effects": ["query_llm 1/1: retry"]},
        {"level": "warning", **where, "seq": 2, "effect": "query_llm", **key, "seconds": 1.0, "code": "GONE"},
        {"level": "debug", **where, "seq": 2, "policy": "look", **key, "path": "1.1"},
        {"level": "debug", **where, "seq": 2, **key, "path": "1.1"},
        {"level": "info", **where, "seq": 2, "machine": "letters2", "digest": "e" * 64},
    ]  # fmt: skip


def test_text_line_has_words_and_key_value_pairs():
    first, second = lines(ENTRIES[0], ENTRIES[3], form="text")
    assert first.split(maxsplit=3)[1:3] == ["INFO", "machine"]
    assert second.endswith("effect      run=r1 seq=0 effect=query_llm key=1/1")


@pytest.mark.parametrize(("level", "kinds"), [
    ("info", 13), ("warning", 4), ("error", 0),
])  # fmt: skip
def test_level_leaves_out_lower_levels(level, kinds):
    assert len(lines(*ENTRIES, level=level)) == kinds


def test_every_kind_of_entry_has_a_description_and_a_level():
    for entry in ENTRIES:
        kind, level, fields = describe_entry(entry)
        assert kind
        assert level in (logging.DEBUG, logging.INFO, logging.WARNING)
        json.dumps(fields)


def test_earlier_entries_are_not_logged_again_but_their_state_is_known():
    stream, log = io.StringIO(), LedgerLog()
    with log_to(stream, "info", "json", SECRETS):
        show_to(log.on_moment, *ENTRIES[:3], is_new=False)
        show_to(log.on_moment, ENTRIES[3])
    (line,) = stream.getvalue().splitlines()
    assert {"run": "r1", "seq": 1, "state": "writing"}.items() <= json.loads(line).items()


def test_failure_that_stops_a_run_is_logged_as_an_error():
    stream, log = io.StringIO(), LedgerLog()
    with log_to(stream, "error", "json", SECRETS):
        show_to(log.on_moment, ENTRIES[0])
        log.failure("tell", 34, "GONE", "it says opensesame")
    line = json.loads(stream.getvalue())
    assert (line["level"], line["what"], line["line"], line["message"]) == (
        "error",
        "tell",
        34,
        "it says [secret WORD]",
    )


def test_other_loggers_below_dsa_are_written_without_secrets():
    stream = io.StringIO()
    with log_to(stream, "info", "text", SECRETS):
        logging.getLogger("dsa.mine").info("say %s\nand more", "opensesame")
        try:
            int("opensesame")
        except ValueError:
            logging.getLogger("dsa.mine").exception("it broke")
        logging.getLogger("dsa.mine").debug("not this")
    first, second = stream.getvalue().splitlines()
    assert first.endswith(r'message     message="say [secret WORD]\nand more"')
    assert "Traceback" in second
    assert "invalid literal for int() with base 10: '[secret WORD]'" in second


def test_unconfigured_logging_prints_nothing_and_configured_gets_records(capfd, caplog):
    log = LedgerLog()
    show_to(log.on_moment, *ENTRIES)
    log.failure("tell", None, "GONE", "x")
    assert capfd.readouterr() == ("", "")
    with caplog.at_level(logging.INFO, "dsa"):
        show_to(log.on_moment, ENTRIES[2])
    record = caplog.records[-1]
    assert (record.name, record.getMessage(), record.dsa["state"]) == ("dsa", "row", "writing")


def test_logger_is_restored_afterwards():
    before = (LOGGER.level, LOGGER.propagate, list(LOGGER.handlers))
    lines(*ENTRIES)
    assert (LOGGER.level, LOGGER.propagate, list(LOGGER.handlers)) == before
