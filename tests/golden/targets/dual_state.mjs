// dual_state, for XState 5, written by `dsa export --to xstate` for rmax = 3.
// Bind the effects: machine.provide({ actions: { name: () => .. } }); when a final state is reached, stop what still runs.
import { assign, cancel, createMachine, raise } from 'xstate';

export const machine = createMachine({
  id: 'dual_state',
  context: { satisfied: false, retries: 0, waiting: { query_llm: false, execute_guard: false } },
  initial: 'idle',
  states: {
    idle: {
      id: 'idle',
      tags: ['idle'],
      on: {
        specification: [
          // line 46: idle | specification | generating
          { target: '#generating', actions: [assign(({ context: c }) => ({ waiting: { ...c.waiting, query_llm: true } })), { type: 'query_llm' }] },
        ],
      },
    },
    generating: {
      id: 'generating',
      tags: ['generating'],
      on: {
        artifact: [
          // line 47: generating | artifact | validating
          { guard: ({ context: c }) => c.waiting.query_llm, target: '#validating', actions: [assign(({ context: c }) => ({ waiting: { ...c.waiting, query_llm: false, execute_guard: true } })), { type: 'execute_guard' }] },
        ],
      },
    },
    validating: {
      id: 'validating',
      tags: ['validating'],
      on: {
        verdict: [
          // line 48: validating | verdict | succeeded
          { guard: ({ context: c, event: e }) => c.waiting.execute_guard && (e.verdicts?.['g'] === 'passed'), target: '#succeeded', actions: [assign(({ context: c }) => ({ satisfied: true, retries: 0, waiting: { ...c.waiting, query_llm: false, execute_guard: false } })), { type: 'advance_state' }, { type: 'reply_to_user' }] },
          // line 49: validating | verdict | generating
          { guard: ({ context: c, event: e }) => c.waiting.execute_guard && (e.verdicts?.['g'] === 'failed') && c.retries < 3, target: '#generating', actions: [assign(({ context: c }) => ({ retries: c.retries + 1, waiting: { ...c.waiting, query_llm: true, execute_guard: false } })), { type: 'refine_context' }, { type: 'query_llm' }] },
          // line 50: validating | verdict | escalated
          { guard: ({ context: c, event: e }) => c.waiting.execute_guard && (e.verdicts?.['g'] === 'fatal'), target: '#escalated', actions: [assign(({ context: c }) => ({ waiting: { ...c.waiting, query_llm: false, execute_guard: false } })), { type: 'escalate_to_user' }] },
          // line 51: validating | verdict | failed
          { guard: ({ context: c }) => c.waiting.execute_guard, target: '#failed', actions: [assign(({ context: c }) => ({ waiting: { ...c.waiting, query_llm: false, execute_guard: false } })), { type: 'refine_context' }, { type: 'reply_failure' }] },
        ],
      },
    },
    succeeded: {
      id: 'succeeded',
      type: 'final',
      tags: ['succeeded'],
    },
    failed: {
      id: 'failed',
      type: 'final',
      tags: ['failed'],
    },
    escalated: {
      id: 'escalated',
      type: 'final',
      tags: ['escalated'],
    },
  },
});
