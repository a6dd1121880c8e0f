"""Simulated runs: the real driver, run, ledger and policies in a world where everything goes wrong, one seed for each story.

`campaign.simulate(Subject(machine, text), range(1000))` plays seeds; `story.Story(subject, seed).play()` plays one. Faults and boundaries
are listed in `faults`, what must be true of every run in `oracles`. `dsa sim` is made of these.
"""
