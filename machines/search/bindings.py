"""Policies of the search agent, under the name by which `dsa run --policy` and the effects of machines find them."""

from machines.search.policies import registry as policies

__all__ = ["policies"]
