import pytest

from dsa.runtime.ledger import (
    ArtifactEntry,
    CallEntry,
    CallResultEntry,
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
from dsa.runtime.timeline import Spans, trace_id_of

FIRST = MachineEntry("r1", "letters", "d" * 64, {}, {"model": "openai/gpt-4o"})
WRITES = EventEntry(1, "specification"), RowEntry(33, "idle", "writing"), EffectEntry("1/1", "query_llm")
MADE = ArtifactEntry(
    "1/1", "g", 1, "a" * 64, "b" * 64, (), "llm", "openai/gpt-4o", 1.0, 12, 3, 0.01, "gpt-4o-2026", ("A_KEY",)
)
FAILED = error_step("query_llm", "rate_limit", "slow down").to_json()


class SpanRecorder:
    """Records the spans of entries seen one second apart."""

    def __init__(self, *recalled):
        self.spans, self.now_s, self.over = Spans("query_llm"), 0, []
        for entry in recalled:
            self.spans.recall(entry)

    def __call__(self, *entries):
        for entry in entries:
            self.now_s += 1
            self.over += self.spans.observe(entry, self.now_s * 10**9)
        return self.over

    def close(self, error=None):
        self.now_s += 1
        self.over += self.spans.close(self.now_s * 10**9, error)
        return self.over


def test_model_call_has_the_attributes_of_the_genai_conventions():
    (span,) = SpanRecorder()(FIRST, *WRITES, MADE, ResultEntry("1/1", (), 1.5))
    assert (span.name, span.kind, span.error) == ("chat gpt-4o", "client", None)
    assert (span.start_ns, span.end_ns) == (4 * 10**9, 6 * 10**9)
    assert span.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.model": "gpt-4o-2026",
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 3,
        "dsa.cost_usd": 0.01,
        "dsa.effect": "query_llm",
        "dsa.key": "1/1",
        "dsa.try": 1,
        "dsa.event": "specification",
        "dsa.line": 33,
        "dsa.source": "idle",
        "dsa.target": "writing",
        "dsa.step": "g",
        "dsa.attempt": 1,
        "dsa.artifact": "a" * 64,
        "dsa.redacted": ("A_KEY",),
    }


@pytest.mark.parametrize(("model", "provider", "name", "kind"), [
    ("vertex_ai/gemini-2", "gcp.vertex_ai", "gemini-2", "client"),
    ("bedrock/anthropic.claude", "aws.bedrock", "anthropic.claude", "client"),
    ("somebody/x", "somebody", "x", "client"),
    ("SmolLM2-135M-Instruct", "in_process", "SmolLM2-135M-Instruct", "internal"),
])  # fmt: skip
def test_providers_have_the_names_of_the_conventions(model, provider, name, kind):
    made = ArtifactEntry("1/1", "g", 1, "a" * 64, "b" * 64, (), "llm", model)
    (span,) = SpanRecorder()(FIRST, *WRITES, made, ResultEntry("1/1"))
    assert (span.name, span.kind) == (f"chat {name}", kind)
    assert span.attributes["gen_ai.provider.name"] == provider
    assert "gen_ai.usage.input_tokens" not in span.attributes


def test_each_try_is_a_span_and_a_failed_one_has_its_error():
    spans = SpanRecorder()(
        FIRST,
        *WRITES,
        ResultEntry("1/1", (FAILED,), 0.2),
        MADE,
        ResultEntry("1/1", (), 0.5),
    )
    first, second = spans
    assert (first.error, first.attributes["error.type"], first.attributes["dsa.try"]) == ("slow down", "rate_limit", 1)
    assert first.attributes["gen_ai.request.model"] == "gpt-4o", "the run was started with it"
    assert (second.error, second.attributes["dsa.try"]) == (None, 2)
    assert first.span_id != second.span_id
    assert first.parent_id == second.parent_id


def test_verdicts_are_events_of_their_effect_which_links_to_the_model_call():
    judges = (EventEntry(2, "artifact"), RowEntry(34, "writing", "judging"), EffectEntry("2/1", "execute_guard"))
    said = VerdictEntry(
        "2/1", "g", 1, "a" * 64, [GuardVerdict("syntax", "passed"), GuardVerdict("g", "failed", "x" * 2000)]
    )
    made, judged = SpanRecorder()(FIRST, *WRITES, MADE, ResultEntry("1/1"), *judges, said, ResultEntry("2/1"))
    assert (judged.name, judged.kind, judged.links) == ("execute_guard", "internal", (made.span_id,))
    passed, failed = judged.events
    about = {"dsa.step": "g", "dsa.attempt": 1, "dsa.artifact": "a" * 64}
    assert passed.name == failed.name == "gen_ai.evaluation.result"
    assert passed.attributes == {"gen_ai.evaluation.name": "syntax", "gen_ai.evaluation.score.label": "passed", **about}
    assert failed.attributes["gen_ai.evaluation.explanation"] == "x" * 1000


def test_life_has_rows_and_refusals_as_events_and_is_the_parent_of_effects():
    recorder = SpanRecorder()
    recorder(
        FIRST,
        *WRITES,
        ResultEntry("1/1"),
    )
    recorder(EventEntry(2, "specification"), RefusalEntry("invalid_state", "no row", ("approved",)))
    effect, life = recorder.close("query_llm failed: no")
    assert effect.parent_id == life.span_id
    assert (life.name, life.parent_id, life.links, life.error) == (
        "invoke_workflow letters",
        None,
        (),
        "query_llm failed: no",
    )
    assert life.attributes == {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": "letters",
        "dsa.run": "r1",
        "dsa.digest": "d" * 64,
        "dsa.entries_before": 0,
    }
    step, refusal = life.events
    assert (step.name, step.attributes) == (
        "dsa.transition",
        {"dsa.event": "specification", "dsa.line": 33, "dsa.source": "idle", "dsa.target": "writing"},
    )
    assert refusal.attributes == {
        "dsa.event": "specification",
        "dsa.reason": "invalid_state",
        "dsa.accepted": ("approved",),
    }
    assert recorder.spans.close(0) == []


def test_lives_of_a_run_share_a_trace_and_the_second_links_to_the_first():
    first = SpanRecorder()
    first(FIRST, *WRITES)
    unfinished, life = first.close()
    assert (unfinished.name, unfinished.attributes["dsa.unfinished"]) == ("chat gpt-4o", True)

    second = SpanRecorder(FIRST, *WRITES)
    second(ResumedEntry("ann", effects={"1/1": "retry"}), MADE, ResultEntry("1/1"))
    again, later = second.close()
    assert {span.trace_id for span in (unfinished, life, again, later)} == {trace_id_of("r1")}
    assert later.links == (life.span_id,)
    assert later.attributes["dsa.entries_before"] == 4
    assert len({span.span_id for span in (unfinished, life, again, later)}) == 4
    assert (again.start_ns, again.parent_id) == (10**9, later.span_id)
    resumed = later.events[0]
    assert (resumed.name, resumed.attributes) == (
        "dsa.resumed",
        {"dsa.by": "ann", "dsa.effects": ("query_llm 1/1: retry",)},
    )


def test_ids_have_the_length_of_the_trace_context():
    recorder = SpanRecorder()
    recorder(FIRST, *WRITES)
    for span in recorder.close():
        assert len(bytes.fromhex(span.trace_id)) == 16
        assert len(bytes.fromhex(span.span_id)) == 8
    assert trace_id_of("r1") != trace_id_of("r2")


def test_calls_are_spans_below_their_callers():
    key, tell = "1/1", (EventEntry(1, "e"), RowEntry(1, "a", "b"), EffectEntry("1/1", "tell"))
    calls = [
        CallEntry(key, "1.1", "ask", "d", {}),
        CallEntry(key, "1.1.1", "look", "d", {}),
        CallEntry(key, "1.1.2", "ask", "d"),
    ]
    given = [
        CallResultEntry(key, "1.1.1", [error_step("look", "GONE", "nothing there").to_json()]),
        CallResultEntry(key, "1.1.2"),
        CallResultEntry(key, "1.1"),
    ]
    look, turn, ask, effect = SpanRecorder()(FIRST, *tell, *calls, *given, ResultEntry(key))
    assert (look.name, look.error, look.attributes["error.type"]) == ("execute_tool look", "nothing there", "GONE")
    assert look.attributes["gen_ai.tool.name"] == "look"
    assert (turn.name, "gen_ai.tool.name" in turn.attributes) == ("turn of ask", False)
    assert (look.parent_id, turn.parent_id, ask.parent_id) == (ask.span_id, ask.span_id, effect.span_id)


ASKED = (MachineEntry("r2", "policy", "d"), RowEntry(24, "idle", "performing"), EffectEntry("1/1", "perform"))


def test_root_policy_is_an_agent_span_with_its_calls_below():
    recorder = SpanRecorder()
    look, agent = recorder(
        *ASKED,
        CallEntry("1/1", "1.1", "search", "d", {}),
        CallEntry("1/1", "1.1.1", "look", "d", {}),
        CallResultEntry("1/1", "1.1.1"),
        CallResultEntry("1/1", "1.1"),
    )
    effect, life = recorder.close()[-2:]
    assert (agent.name, agent.attributes["gen_ai.agent.name"]) == ("invoke_agent search", "search")
    assert (look.name, look.parent_id, agent.parent_id) == ("execute_tool look", agent.span_id, effect.span_id)
    assert life.name == "invoke_workflow policy"


def test_interrupted_call_is_unfinished():
    recorder = SpanRecorder()
    recorder(*ASKED, CallEntry("1/1", "1.1", "look", "d", {}), CallEntry("1/1", "1.1.1", "look", "d", {}))
    _, call, _, life = recorder.close("interrupted")
    assert (call.name, call.attributes["dsa.unfinished"], life.error) == ("execute_tool look", True, "interrupted")


def test_life_without_new_entries_has_no_span():
    assert SpanRecorder(FIRST, *WRITES).close() == []
