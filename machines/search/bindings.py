"""The policies of the search agent, by the name under which `dsa run --policy` and the effects of machines find them."""

from machines.search.policies import registry as policies

__all__ = ["policies"]
