"""Results of effects by the names of their effects, which a ledger says once, where it asks for them."""

from dsa.runtime.ledger import Intents, ResultEntry


def results_of(entries, effect):
    """Return the results of an effect, in the order in which they came."""
    entries = tuple(entries)
    intents = Intents(entries)
    return [entry for entry in entries if isinstance(entry, ResultEntry) and intents.effect(entry.key) == effect]
