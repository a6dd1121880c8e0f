"""The history of a workspace: marks of its state, the changes between two marks, and their undo."""

from machines.coding.history.marks import UNKEPT, UNKNOWN, CallMark, ChangedFile, Conflict, UndoResult, WorkspaceHistory

__all__ = ["UNKEPT", "UNKNOWN", "CallMark", "ChangedFile", "Conflict", "UndoResult", "WorkspaceHistory"]
