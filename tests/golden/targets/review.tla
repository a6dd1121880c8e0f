---- MODULE review ----
\* review, written by `dsa export --to tla` for a machine without parameters; export it again for other values.
EXTENDS Integers

VARIABLES at, v_approved, v_rounds
vars == <<at, v_approved, v_rounds>>

Init ==
  /\ at = "idle"
  /\ v_approved = FALSE
  /\ v_rounds = 0

\* line 41: idle | submitted | review
Step1 ==
  /\ at = "idle"
  /\ at' = "review.drafting waits write_draft"
  /\ UNCHANGED <<v_approved, v_rounds>>

\* line 53: * | shutdown | closed
Step2 ==
  /\ at = "idle"
  /\ at' = "closed"
  /\ UNCHANGED <<v_approved, v_rounds>>

\* line 43: review | withdrawn | closed
Step3 ==
  /\ at = "review.drafting waits write_draft"
  /\ at' = "closed"
  /\ v_approved' = FALSE
  /\ UNCHANGED <<v_rounds>>

\* line 53: * | shutdown | closed
Step4 ==
  /\ at = "review.drafting waits write_draft"
  /\ at' = "closed"
  /\ UNCHANGED <<v_approved, v_rounds>>

\* line 44: review.drafting | draft | review.checking
Step5 ==
  /\ at = "review.drafting waits write_draft"
  /\ at' = "review.checking waits run_checks"
  /\ UNCHANGED <<v_approved, v_rounds>>

\* line 42: review | after 30s | review.waiting
Step6 ==
  /\ at = "review.drafting waits write_draft"
  /\ at' = "review.waiting waits write_draft order 1"
  /\ UNCHANGED <<v_approved, v_rounds>>

\* line 43: review | withdrawn | closed
Step7 ==
  /\ at = "review.checking waits run_checks"
  /\ at' = "closed"
  /\ v_approved' = FALSE
  /\ UNCHANGED <<v_rounds>>

\* line 53: * | shutdown | closed
Step8 ==
  /\ at = "review.checking waits run_checks"
  /\ at' = "closed"
  /\ UNCHANGED <<v_approved, v_rounds>>

\* line 46: review.checking | checked | review.done (g.passed)
Step9 ==
  /\ at = "review.checking waits run_checks"
  /\ at' = "review.done"
  /\ v_approved' = TRUE
  /\ UNCHANGED <<v_rounds>>

\* line 45: review.checking | checked | review (g.failed)
Step10 ==
  /\ at = "review.checking waits run_checks"
  /\ (v_rounds < 2)
  /\ at' = "review.drafting waits write_draft"
  /\ v_rounds' = v_rounds + 1
  /\ UNCHANGED <<v_approved>>

\* line 48: review.checking | checked | review.waiting (g.failed)
Step11 ==
  /\ at = "review.checking waits run_checks"
  /\ (v_rounds >= 2 /\ ~v_approved)
  /\ at' = "review.waiting"
  /\ v_rounds' = v_rounds - 2
  /\ UNCHANGED <<v_approved>>

\* line 47: review.checking | checked | closed (g.fatal)
Step12 ==
  /\ at = "review.checking waits run_checks"
  /\ at' = "closed"
  /\ UNCHANGED <<v_approved, v_rounds>>

\* line 42: review | after 30s | review.waiting
Step13 ==
  /\ at = "review.checking waits run_checks"
  /\ at' = "review.waiting order 1"
  /\ UNCHANGED <<v_approved, v_rounds>>

\* line 49: review.waiting | nudged | =
Step14 ==
  /\ at = "review.waiting waits write_draft order 1"
  /\ at' = "review.waiting waits write_draft order 1"
  /\ v_rounds' = 0
  /\ UNCHANGED <<v_approved>>

\* line 50: review.waiting | resumed | review.drafting
Step15 ==
  /\ at = "review.waiting waits write_draft order 1"
  /\ at' = "review.drafting waits write_draft"
  /\ UNCHANGED <<v_approved, v_rounds>>

\* line 43: review | withdrawn | closed
Step16 ==
  /\ at = "review.waiting waits write_draft order 1"
  /\ at' = "closed"
  /\ v_approved' = FALSE
  /\ UNCHANGED <<v_rounds>>

\* line 53: * | shutdown | closed
Step17 ==
  /\ at = "review.waiting waits write_draft order 1"
  /\ at' = "closed"
  /\ UNCHANGED <<v_approved, v_rounds>>

\* line 52: * | draft | =
Step18 ==
  /\ at = "review.waiting waits write_draft order 1"
  /\ at' = "review.waiting order 1"
  /\ UNCHANGED <<v_approved, v_rounds>>

\* line 51: review.waiting | after 20s | closed
Step19 ==
  /\ at = "review.waiting waits write_draft order 1"
  /\ at' = "closed"
  /\ UNCHANGED <<v_approved, v_rounds>>

\* line 49: review.waiting | nudged | =
Step20 ==
  /\ at = "review.waiting"
  /\ at' = "review.waiting"
  /\ v_rounds' = 0
  /\ UNCHANGED <<v_approved>>

\* line 50: review.waiting | resumed | review.drafting
Step21 ==
  /\ at = "review.waiting"
  /\ at' = "review.drafting waits write_draft"
  /\ UNCHANGED <<v_approved, v_rounds>>

\* line 43: review | withdrawn | closed
Step22 ==
  /\ at = "review.waiting"
  /\ at' = "closed"
  /\ v_approved' = FALSE
  /\ UNCHANGED <<v_rounds>>

\* line 53: * | shutdown | closed
Step23 ==
  /\ at = "review.waiting"
  /\ at' = "closed"
  /\ UNCHANGED <<v_approved, v_rounds>>

\* line 51: review.waiting | after 20s | closed
Step24 ==
  /\ at = "review.waiting"
  /\ at' = "closed"
  /\ UNCHANGED <<v_approved, v_rounds>>

\* line 42: review | after 30s | review.waiting
Step25 ==
  /\ at = "review.waiting"
  /\ at' = "review.waiting order 1"
  /\ UNCHANGED <<v_approved, v_rounds>>

\* line 49: review.waiting | nudged | =
Step26 ==
  /\ at = "review.waiting order 1"
  /\ at' = "review.waiting order 1"
  /\ v_rounds' = 0
  /\ UNCHANGED <<v_approved>>

\* line 50: review.waiting | resumed | review.drafting
Step27 ==
  /\ at = "review.waiting order 1"
  /\ at' = "review.drafting waits write_draft"
  /\ UNCHANGED <<v_approved, v_rounds>>

\* line 43: review | withdrawn | closed
Step28 ==
  /\ at = "review.waiting order 1"
  /\ at' = "closed"
  /\ v_approved' = FALSE
  /\ UNCHANGED <<v_rounds>>

\* line 53: * | shutdown | closed
Step29 ==
  /\ at = "review.waiting order 1"
  /\ at' = "closed"
  /\ UNCHANGED <<v_approved, v_rounds>>

\* line 51: review.waiting | after 20s | closed
Step30 ==
  /\ at = "review.waiting order 1"
  /\ at' = "closed"
  /\ UNCHANGED <<v_approved, v_rounds>>

Next ==
  \/ Step1
  \/ Step2
  \/ Step3
  \/ Step4
  \/ Step5
  \/ Step6
  \/ Step7
  \/ Step8
  \/ Step9
  \/ Step10
  \/ Step11
  \/ Step12
  \/ Step13
  \/ Step14
  \/ Step15
  \/ Step16
  \/ Step17
  \/ Step18
  \/ Step19
  \/ Step20
  \/ Step21
  \/ Step22
  \/ Step23
  \/ Step24
  \/ Step25
  \/ Step26
  \/ Step27
  \/ Step28
  \/ Step29
  \/ Step30
  \/ UNCHANGED vars \* a run may end anywhere here; `dsa check` reports runs that get stuck
Spec == Init /\ [][Next]_vars

InDomains ==
  /\ at \in {"idle", "review.drafting waits write_draft", "closed", "review.checking waits run_checks", "review.waiting waits write_draft order 1", "review.done", "review.waiting", "review.waiting order 1"}
  /\ v_approved \in BOOLEAN
  /\ v_rounds \in (0)..(2)


====
