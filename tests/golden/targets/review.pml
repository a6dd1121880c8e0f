/* review, for SPIN 6, written by `dsa export --to promela`
 * for a machine without parameters; export it again for other values.
 * All configurations: spin -a FILE && gcc -O2 -DSAFETY -o pan pan.c && ./pan -m1000000
 * A run may end anywhere here; `dsa check` reports runs that get stuck. */

#define at_idle 0
#define at_review_drafting_waits_write_draft 1
#define at_closed 2
#define at_review_checking_waits_run_checks 3
#define at_review_waiting_waits_write_draft_order_1 4
#define at_review_done 5
#define at_review_waiting 6
#define at_review_waiting_order_1 7

byte at = at_idle;
bool v_approved = false;
byte v_rounds = 0;


active proctype machine()
{
end:
  do
  /* 1. line 41: idle | submitted | review */
  :: d_step { at == at_idle -> at = at_review_drafting_waits_write_draft }
  /* 2. line 53: * | shutdown | closed */
  :: d_step { at == at_idle -> at = at_closed }
  /* 3. line 43: review | withdrawn | closed */
  :: d_step { at == at_review_drafting_waits_write_draft -> v_approved = false; at = at_closed }
  /* 4. line 53: * | shutdown | closed */
  :: d_step { at == at_review_drafting_waits_write_draft -> at = at_closed }
  /* 5. line 44: review.drafting | draft | review.checking */
  :: d_step { at == at_review_drafting_waits_write_draft -> at = at_review_checking_waits_run_checks }
  /* 6. line 42: review | after 30s | review.waiting */
  :: d_step { at == at_review_drafting_waits_write_draft -> at = at_review_waiting_waits_write_draft_order_1 }
  /* 7. line 43: review | withdrawn | closed */
  :: d_step { at == at_review_checking_waits_run_checks -> v_approved = false; at = at_closed }
  /* 8. line 53: * | shutdown | closed */
  :: d_step { at == at_review_checking_waits_run_checks -> at = at_closed }
  /* 9. line 46: review.checking | checked | review.done (g.passed) */
  :: d_step { at == at_review_checking_waits_run_checks -> v_approved = true; at = at_review_done }
  /* 10. line 45: review.checking | checked | review (g.failed) */
  :: d_step { at == at_review_checking_waits_run_checks && v_rounds < 2 -> v_rounds = v_rounds + 1; at = at_review_drafting_waits_write_draft }
  /* 11. line 48: review.checking | checked | review.waiting (g.failed) */
  :: d_step { at == at_review_checking_waits_run_checks && v_rounds >= 2 && !v_approved -> v_rounds = v_rounds - 2; at = at_review_waiting }
  /* 12. line 47: review.checking | checked | closed (g.fatal) */
  :: d_step { at == at_review_checking_waits_run_checks -> at = at_closed }
  /* 13. line 42: review | after 30s | review.waiting */
  :: d_step { at == at_review_checking_waits_run_checks -> at = at_review_waiting_order_1 }
  /* 14. line 49: review.waiting | nudged | = */
  :: d_step { at == at_review_waiting_waits_write_draft_order_1 -> v_rounds = 0; at = at_review_waiting_waits_write_draft_order_1 }
  /* 15. line 50: review.waiting | resumed | review.drafting */
  :: d_step { at == at_review_waiting_waits_write_draft_order_1 -> at = at_review_drafting_waits_write_draft }
  /* 16. line 43: review | withdrawn | closed */
  :: d_step { at == at_review_waiting_waits_write_draft_order_1 -> v_approved = false; at = at_closed }
  /* 17. line 53: * | shutdown | closed */
  :: d_step { at == at_review_waiting_waits_write_draft_order_1 -> at = at_closed }
  /* 18. line 52: * | draft | = */
  :: d_step { at == at_review_waiting_waits_write_draft_order_1 -> at = at_review_waiting_order_1 }
  /* 19. line 51: review.waiting | after 20s | closed */
  :: d_step { at == at_review_waiting_waits_write_draft_order_1 -> at = at_closed }
  /* 20. line 49: review.waiting | nudged | = */
  :: d_step { at == at_review_waiting -> v_rounds = 0; at = at_review_waiting }
  /* 21. line 50: review.waiting | resumed | review.drafting */
  :: d_step { at == at_review_waiting -> at = at_review_drafting_waits_write_draft }
  /* 22. line 43: review | withdrawn | closed */
  :: d_step { at == at_review_waiting -> v_approved = false; at = at_closed }
  /* 23. line 53: * | shutdown | closed */
  :: d_step { at == at_review_waiting -> at = at_closed }
  /* 24. line 51: review.waiting | after 20s | closed */
  :: d_step { at == at_review_waiting -> at = at_closed }
  /* 25. line 42: review | after 30s | review.waiting */
  :: d_step { at == at_review_waiting -> at = at_review_waiting_order_1 }
  /* 26. line 49: review.waiting | nudged | = */
  :: d_step { at == at_review_waiting_order_1 -> v_rounds = 0; at = at_review_waiting_order_1 }
  /* 27. line 50: review.waiting | resumed | review.drafting */
  :: d_step { at == at_review_waiting_order_1 -> at = at_review_drafting_waits_write_draft }
  /* 28. line 43: review | withdrawn | closed */
  :: d_step { at == at_review_waiting_order_1 -> v_approved = false; at = at_closed }
  /* 29. line 53: * | shutdown | closed */
  :: d_step { at == at_review_waiting_order_1 -> at = at_closed }
  /* 30. line 51: review.waiting | after 20s | closed */
  :: d_step { at == at_review_waiting_order_1 -> at = at_closed }
  /* Never taken: without this step, SPIN would drop variables that are never read. */
  :: d_step { at == 8 && v_approved + v_rounds == 0 -> skip }
  od
}
