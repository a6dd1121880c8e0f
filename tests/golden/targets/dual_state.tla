---- MODULE dual_state ----
\* dual_state, written by `dsa export --to tla` for rmax = 3; export it again for other values.
EXTENDS Integers

p_rmax == 3
VARIABLES at, v_satisfied, v_retries
vars == <<at, v_satisfied, v_retries>>

Init ==
  /\ at = "idle"
  /\ v_satisfied = FALSE
  /\ v_retries = 0

\* line 46: idle | specification | generating
Step1 ==
  /\ at = "idle"
  /\ at' = "generating waits query_llm"
  /\ UNCHANGED <<v_satisfied, v_retries>>

\* line 47: generating | artifact | validating
Step2 ==
  /\ at = "generating waits query_llm"
  /\ at' = "validating waits execute_guard"
  /\ UNCHANGED <<v_satisfied, v_retries>>

\* line 48: validating | verdict | succeeded (g.passed)
Step3 ==
  /\ at = "validating waits execute_guard"
  /\ at' = "succeeded"
  /\ v_satisfied' = TRUE
  /\ v_retries' = 0

\* line 49: validating | verdict | generating (g.failed)
Step4 ==
  /\ at = "validating waits execute_guard"
  /\ (v_retries < p_rmax)
  /\ at' = "generating waits query_llm"
  /\ v_retries' = v_retries + 1
  /\ UNCHANGED <<v_satisfied>>

\* line 51: validating | verdict | failed (g.failed)
Step5 ==
  /\ at = "validating waits execute_guard"
  /\ (v_retries >= p_rmax)
  /\ at' = "failed"
  /\ UNCHANGED <<v_satisfied, v_retries>>

\* line 50: validating | verdict | escalated (g.fatal)
Step6 ==
  /\ at = "validating waits execute_guard"
  /\ at' = "escalated"
  /\ UNCHANGED <<v_satisfied, v_retries>>

Next ==
  \/ Step1
  \/ Step2
  \/ Step3
  \/ Step4
  \/ Step5
  \/ Step6
  \/ UNCHANGED vars \* a run may end anywhere here; `dsa check` reports runs that get stuck
Spec == Init /\ [][Next]_vars

InDomains ==
  /\ at \in {"idle", "generating waits query_llm", "validating waits execute_guard", "succeeded", "failed", "escalated"}
  /\ v_satisfied \in BOOLEAN
  /\ v_retries \in (0)..(3)

in_succeeded == at \in {"succeeded"}

\* line 54: always retries <= rmax
Property_1 == v_retries <= p_rmax

\* line 55: on g.failed or g.fatal: satisfied unchanged
Property_2 == [][(Step4 \/ Step5 \/ Step6) => ((v_satisfied)' = (v_satisfied))]_vars

\* line 56: never succeeded and not satisfied
Property_3 == ~(in_succeeded /\ ~v_satisfied)

\* line 57: specification leads to succeeded or failed or escalated
\* Property 4 is not expressed here: the property is about what happens at a step; the export to promela contains it.

\* line 58: at most rmax + 1 query_llm
\* Property 5 is not expressed here: the property needs memory or probabilities; see the exports to promela and prism.

====
