"""Windows of a server's work: stages of requests, inside one long measurement."""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
import weakref
from typing import IO, Any, Dict, Optional

_lock = threading.Lock()
_file: Optional[IO[str]] = None
_pid = 0
_open: weakref.WeakSet[window] = weakref.WeakSet()


@atexit.register
def _never_ended() -> None:
    for w in list(_open):
        if w._line is not None:
            _write(w._line)  # without an end: show --windows counts them


def _write(line: Dict[str, Any]) -> None:
    global _file, _pid
    folder = os.environ.get("WATTMARK_WINDOWS")
    if not folder:
        return
    with _lock:
        if _file is None or _pid != os.getpid():  # a forked process has a file of its own
            _pid = os.getpid()
            _file = open(os.path.join(folder, "%d.jsonl" % _pid), "a", encoding="utf-8", buffering=1)
        _file.write(json.dumps(line) + "\n")


class window:
    """A stage of a request, from here to end(), or a with block; on any thread.

    wattmark show TASK --windows has the joules of each, by stage and class, and by each unit of counts. Windows
    that are open at once share the card's power equally. Where the program does not run under wattmark run it
    does nothing.
    """

    def __init__(self, id: str = "", stage: str = "", cls: str = ""):  # noqa: A002
        self._line: Optional[Dict[str, Any]] = {"id": id, "stage": stage, "class": cls, "begin_ns": time.time_ns()}
        self._counts: Dict[str, float] = {}
        _open.add(self)

    def count(self, **counts: float) -> window:
        """Add to what was done in the window: count(tokens=1)."""
        for unit, n in counts.items():
            self._counts[unit] = self._counts.get(unit, 0) + n
        return self

    def end(self, **counts: float) -> None:
        """End the window. A second end does nothing."""
        line, self._line = self._line, None
        _open.discard(self)
        if line is not None:
            line["end_ns"] = time.time_ns()
            if self.count(**counts)._counts:
                line["counts"] = self._counts
            _write(line)

    def __enter__(self) -> window:
        return self

    def __exit__(self, *error: Any) -> None:
        self.end()
