"""Ledger entries shown to an observer as the moments of a run."""

from dsa.runtime.timeline import Moment


def show_to(on_moment, *entries, is_new=True):
    """Show entries to an observer, by default as new ones."""
    for number, entry in enumerate(entries, 1):
        on_moment(Moment("r1", number, entry), is_new)
