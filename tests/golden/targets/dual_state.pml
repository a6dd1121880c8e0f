/* dual_state, for SPIN 6, written by `dsa export --to promela`
 * for rmax = 3; export it again for other values.
 * All configurations: spin -a FILE && gcc -O2 -DSAFETY -o pan pan.c && ./pan -m1000000
 * One property: spin -DPROPERTY_1 -a FILE && gcc -O2 -o pan pan.c && ./pan -a -m1000000
 * An error is a counterexample (of `possible`, a witness); spin -t -p FILE shows it.
 * A run may end anywhere here; `dsa check` reports runs that get stuck. */

#define p_rmax 3
#define at_idle 0
#define at_generating_waits_query_llm 1
#define at_validating_waits_execute_guard 2
#define at_succeeded 3
#define at_failed 4
#define at_escalated 5

byte at = at_idle;
bool v_satisfied = false;
byte v_retries = 0;

#define said_g_failed (step == 4 || step == 5)
#define said_g_fatal (step == 6)
#define in_succeeded (at == at_succeeded)
#define event_specification (step == 1)
#define in_failed (at == at_failed)
#define in_escalated (at == at_escalated)
#define effect_query_llm (step == 1 || step == 4)

#ifdef PROPERTY_1  /* always retries <= rmax, line 54 */
inline watch() { assert(v_retries <= p_rmax) }
#define START d_step { step = 0; watch() }
hidden int step;  /* which step was taken: scratch */
#define TAKEN(number) ; step = number; watch()
#endif

#ifdef PROPERTY_2  /* on g.failed or g.fatal: satisfied unchanged, line 55 */
hidden int before_0;
#define BEFORE before_0 = (v_satisfied);
inline watch() { assert(!(said_g_failed || said_g_fatal) || (before_0 == (v_satisfied))) }
#define START skip;
hidden int step;  /* which step was taken: scratch */
#define TAKEN(number) ; step = number; watch()
#endif

#ifdef PROPERTY_3  /* never succeeded and not satisfied, line 56 */
inline watch() { assert(!(in_succeeded && !v_satisfied)) }
#define START d_step { step = 0; watch() }
hidden int step;  /* which step was taken: scratch */
#define TAKEN(number) ; step = number; watch()
#endif

#ifdef PROPERTY_4  /* specification leads to succeeded or failed or escalated, line 57 */
int step = 0;  /* which step was taken; 0 at the start and while a run rests */
byte turn = 0;  /* which condition of fairness comes next; 255: this run is not fair */
bool round = false;
inline watch() {
  round = false;
  if :: turn == 0 && (!(at == at_validating_waits_execute_guard) || step == 3 || step == 4 || step == 5 || step == 6) -> turn = 1 :: else fi;
  if :: turn == 1 && (!(at == at_generating_waits_query_llm) || step == 2) -> turn = 2 :: else fi;
  if :: turn == 2 -> turn = 0; round = true :: else fi
}
#define TAKEN(number) ; step = number; watch()
#define REST :: d_step { at == at_idle || at == at_succeeded || at == at_failed || at == at_escalated -> step = 0; watch() }
never {
  do :: (event_specification) && !(in_succeeded || in_failed || in_escalated) -> break :: true od;
owed:
  do :: !(in_succeeded || in_failed || in_escalated) && !round :: !(in_succeeded || in_failed || in_escalated) && round -> goto accept_owed od;
accept_owed:
  if :: !(in_succeeded || in_failed || in_escalated) -> goto owed fi
}
#endif

#ifdef PROPERTY_5  /* at most rmax + 1 query_llm, line 58 */
int count = 0;
inline watch() { if :: (effect_query_llm) -> assert(count < p_rmax + 1); count = count + 1 :: else fi }
#define START d_step { step = 0; watch() }
hidden int step;  /* which step was taken: scratch */
#define TAKEN(number) ; step = number; watch()
#endif

#ifndef BEFORE
#define BEFORE
#endif
#ifndef TAKEN
#define TAKEN(number)
#endif
#ifndef START
#define START
#endif
#ifndef REST
#define REST
#endif

active proctype machine()
{
  START
end:
  do
  /* 1. line 46: idle | specification | generating */
  :: d_step { at == at_idle -> BEFORE at = at_generating_waits_query_llm TAKEN(1) }
  /* 2. line 47: generating | artifact | validating */
  :: d_step { at == at_generating_waits_query_llm -> BEFORE at = at_validating_waits_execute_guard TAKEN(2) }
  /* 3. line 48: validating | verdict | succeeded (g.passed) */
  :: d_step { at == at_validating_waits_execute_guard -> BEFORE v_satisfied = true; v_retries = 0; at = at_succeeded TAKEN(3) }
  /* 4. line 49: validating | verdict | generating (g.failed) */
  :: d_step { at == at_validating_waits_execute_guard && v_retries < p_rmax -> BEFORE v_retries = v_retries + 1; at = at_generating_waits_query_llm TAKEN(4) }
  /* 5. line 51: validating | verdict | failed (g.failed) */
  :: d_step { at == at_validating_waits_execute_guard && v_retries >= p_rmax -> BEFORE at = at_failed TAKEN(5) }
  /* 6. line 50: validating | verdict | escalated (g.fatal) */
  :: d_step { at == at_validating_waits_execute_guard -> BEFORE at = at_escalated TAKEN(6) }
  /* Never taken: without this step, SPIN would drop variables that are never read. */
  :: d_step { at == 6 && v_satisfied + v_retries == 0 -> skip }
  REST
  od
}
