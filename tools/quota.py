"""The quota of a folder that tools write to, and commands besides them."""

import sys
import time

from tools.limits import ENTRY_BYTES, stored_bytes
from tools.tool import ToolError

COUNT_SECONDS = 60
COUNT_PAUSES = 10
"""The pause after a count, in multiples of the time it took."""


class FolderUse:
    """Bytes of a folder on the disk: counted now and then, as commands write there, too; tools add what they write."""

    def __init__(self) -> None:
        self._stored, self._counted, self._seconds = 0, float("-inf"), 0.0

    def charge(self, folder: str, more: int, most: int) -> None:
        """Raises ToolError."""
        age = time.monotonic() - self._counted
        is_doubtful = self._stored + more > most or age > COUNT_SECONDS
        if is_doubtful and age > self._seconds * COUNT_PAUSES:
            began = time.monotonic()
            stored = stored_bytes((folder,), entries_max=most // ENTRY_BYTES)
            self._stored = sys.maxsize if stored is None else stored
            self._counted = time.monotonic()
            self._seconds = self._counted - began
        if more > 0 and self._stored + more > most:
            what = f"the files here may take {most:,} bytes in all (tools.files.quotaBytes)"
            raise ToolError("QUOTA_EXCEEDED", f"{what}; delete what is not needed, or tell the user")
        self._stored = max(0, self._stored + more)
