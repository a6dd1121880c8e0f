"""Proofs for all parameter values: invariants, ranks and strategies are found here, and checked with z3."""
