"""The history of a workspace: marks of what it was like, what has changed between two of them, and how that is put back."""

from machines.coding.history.begun import Begun
from machines.coding.history.changes import Changed, Conflict
from machines.coding.history.looking import HistoryError
from machines.coding.history.marks import History, Undone

__all__ = ["Begun", "Changed", "Conflict", "History", "HistoryError", "Undone"]
