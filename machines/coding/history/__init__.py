"""The history of a workspace: marks of what it was like, what has changed between two of them, and how that is put back."""

from machines.coding.history.marks import UNKEPT, UNKNOWN, CallMark, ChangedFile, Conflict, Undone, WorkspaceHistory
from machines.coding.history.workspace_scan import HistoryError

__all__ = ["UNKEPT", "UNKNOWN", "CallMark", "ChangedFile", "Conflict", "HistoryError", "Undone", "WorkspaceHistory"]
