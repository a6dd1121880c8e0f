// review, for XState 5, written by `dsa export --to xstate`.
// Bind the effects: machine.provide({ actions: { name: () => .. } }); when a final state is reached, stop what still runs.
import { assign, cancel, createMachine, raise } from 'xstate';

export const machine = createMachine({
  id: 'review',
  context: { approved: false, rounds: 0, waiting: { write_draft: false, run_checks: false } },
  initial: 'idle',
  states: {
    idle: {
      id: 'idle',
      tags: ['idle'],
      on: {
        submitted: [
          // line 41: idle | submitted | review
          { target: '#review_drafting', actions: [assign(({ context: c }) => ({ waiting: { ...c.waiting, write_draft: true } })), { type: 'notify_reviewer' }, { type: 'write_draft' }] },
        ],
        shutdown: [
          // line 53: * | shutdown | closed
          { target: '#closed', actions: [assign(({ context: c }) => ({ waiting: { ...c.waiting, write_draft: false, run_checks: false } })), { type: 'cancel', params: { effect: null } }] },
        ],
      },
    },
    review: {
      id: 'review',
      entry: [raise({ type: 'after 30s of review' }, { id: 'after 30s of review', delay: 30000 })],
      exit: [cancel('after 30s of review')],
      initial: 'review_drafting',
      states: {
        review_drafting: {
          id: 'review_drafting',
          tags: ['review.drafting'],
          on: {
            draft: [
              // line 44: review.drafting | draft | review.checking
              { guard: ({ context: c }) => c.waiting.write_draft, target: '#review_checking', actions: [assign(({ context: c }) => ({ waiting: { ...c.waiting, write_draft: false, run_checks: true } })), { type: 'run_checks' }] },
            ],
            withdrawn: [
              // line 43: review | withdrawn | closed
              { target: '#closed', actions: [assign(({ context: c }) => ({ approved: false, waiting: { ...c.waiting, write_draft: false, run_checks: false } })), { type: 'cancel', params: { effect: null } }, { type: 'archive' }] },
            ],
            shutdown: [
              // line 53: * | shutdown | closed
              { target: '#closed', actions: [assign(({ context: c }) => ({ waiting: { ...c.waiting, write_draft: false, run_checks: false } })), { type: 'cancel', params: { effect: null } }] },
            ],
            'after 30s of review': [
              // line 42: review | after 30s | review.waiting
              { target: '#review_waiting', actions: [assign(({ context: c }) => ({ waiting: { ...c.waiting, run_checks: false } })), cancel('after 30s of review'), raise({ type: 'after 30s of review' }, { id: 'after 30s of review', delay: 30000 }), { type: 'cancel', params: { effect: 'run_checks' } }, { type: 'remind' }] },
            ],
          },
        },
        review_checking: {
          id: 'review_checking',
          tags: ['review.checking'],
          on: {
            checked: [
              // line 45: review.checking | checked | review
              { guard: ({ context: c, event: e }) => c.waiting.run_checks && (e.verdicts?.['g'] === 'failed') && c.rounds < 2, target: '#review_drafting', actions: [assign(({ context: c }) => ({ rounds: c.rounds + 1, waiting: { ...c.waiting, write_draft: true, run_checks: false } })), { type: 'write_draft' }] },
              // line 46: review.checking | checked | review.done
              { guard: ({ context: c, event: e }) => c.waiting.run_checks && (e.verdicts?.['g'] === 'passed'), target: '#review_done', actions: [assign(({ context: c }) => ({ approved: true, waiting: { ...c.waiting, write_draft: false, run_checks: false } }))] },
              // line 47: review.checking | checked | closed
              { guard: ({ context: c, event: e }) => c.waiting.run_checks && (e.verdicts?.['g'] === 'fatal'), target: '#closed', actions: [assign(({ context: c }) => ({ waiting: { ...c.waiting, write_draft: false, run_checks: false } })), { type: 'archive' }] },
              // line 48: review.checking | checked | review.waiting
              { guard: ({ context: c }) => c.waiting.run_checks && !c.approved, target: '#review_waiting', actions: [assign(({ context: c }) => ({ rounds: c.rounds - 2, waiting: { ...c.waiting, run_checks: false } })), { type: 'remind' }] },
            ],
            withdrawn: [
              // line 43: review | withdrawn | closed
              { target: '#closed', actions: [assign(({ context: c }) => ({ approved: false, waiting: { ...c.waiting, write_draft: false, run_checks: false } })), { type: 'cancel', params: { effect: null } }, { type: 'archive' }] },
            ],
            shutdown: [
              // line 53: * | shutdown | closed
              { target: '#closed', actions: [assign(({ context: c }) => ({ waiting: { ...c.waiting, write_draft: false, run_checks: false } })), { type: 'cancel', params: { effect: null } }] },
            ],
            'after 30s of review': [
              // line 42: review | after 30s | review.waiting
              { target: '#review_waiting', actions: [assign(({ context: c }) => ({ waiting: { ...c.waiting, run_checks: false } })), cancel('after 30s of review'), raise({ type: 'after 30s of review' }, { id: 'after 30s of review', delay: 30000 }), { type: 'cancel', params: { effect: 'run_checks' } }, { type: 'remind' }] },
            ],
          },
        },
        review_waiting: {
          id: 'review_waiting',
          tags: ['review.waiting'],
          entry: [raise({ type: 'after 20s of review.waiting' }, { id: 'after 20s of review.waiting', delay: 20000 })],
          exit: [cancel('after 20s of review.waiting')],
          on: {
            draft: [
              // line 52: * | draft | =
              { guard: ({ context: c }) => c.waiting.write_draft, actions: [assign(({ context: c }) => ({ waiting: { ...c.waiting, write_draft: false } }))] },
            ],
            nudged: [
              // line 49: review.waiting | nudged | =
              { actions: [assign(() => ({ rounds: 0 })), { type: 'remind' }] },
            ],
            resumed: [
              // line 50: review.waiting | resumed | review.drafting
              { target: '#review_drafting', actions: [assign(({ context: c }) => ({ waiting: { ...c.waiting, write_draft: true } })), { type: 'cancel', params: { effect: 'write_draft' } }, { type: 'write_draft' }] },
            ],
            withdrawn: [
              // line 43: review | withdrawn | closed
              { target: '#closed', actions: [assign(({ context: c }) => ({ approved: false, waiting: { ...c.waiting, write_draft: false, run_checks: false } })), { type: 'cancel', params: { effect: null } }, { type: 'archive' }] },
            ],
            shutdown: [
              // line 53: * | shutdown | closed
              { target: '#closed', actions: [assign(({ context: c }) => ({ waiting: { ...c.waiting, write_draft: false, run_checks: false } })), { type: 'cancel', params: { effect: null } }] },
            ],
            'after 20s of review.waiting': [
              // line 51: review.waiting | after 20s | closed
              { target: '#closed', actions: [assign(({ context: c }) => ({ waiting: { ...c.waiting, write_draft: false, run_checks: false } })), { type: 'cancel', params: { effect: null } }, { type: 'archive' }] },
            ],
            'after 30s of review': [
              // line 42: review | after 30s | review.waiting
              { target: '#review_waiting', reenter: true, actions: [assign(({ context: c }) => ({ waiting: { ...c.waiting, run_checks: false } })), cancel('after 30s of review'), raise({ type: 'after 30s of review' }, { id: 'after 30s of review', delay: 30000 }), { type: 'cancel', params: { effect: 'run_checks' } }, { type: 'remind' }] },
            ],
          },
        },
        review_done: {
          id: 'review_done',
          type: 'final',
          tags: ['review.done'],
          entry: [cancel('after 30s of review')],
        },
      },
    },
    closed: {
      id: 'closed',
      type: 'final',
      tags: ['closed'],
    },
  },
});
