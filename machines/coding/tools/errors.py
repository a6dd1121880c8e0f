"""What goes wrong in a tool, as data for the model that has called it."""

from dsa.errors import DsaError


class ToolError(DsaError):
    """Raised when a call cannot be done as asked; `code` names the rule or the fault, the text says what is allowed instead."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
