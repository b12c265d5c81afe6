"""The error that the operator is to mend. It has no imports, so that the command line knows it before anything is loaded."""


class OperatorError(Exception):
    """Its text is all that a command prints of it; `code` is the command's exit code."""

    code = 1

    def text(self, language: str) -> str:
        """Return the text in this language, if it is there in several."""
        return str(self)
