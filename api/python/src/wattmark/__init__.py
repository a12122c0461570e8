"""Measure what a GPU really draws, and read what was measured.

    import wattmark
    with wattmark.measure("step") as m:
        train_step()
    print(m.energy, "J +-", m.uncertainty, "J")
    task = wattmark.task(m.task)            # in a notebook: energy, verdict and a plot
    frame = task.samples().pandas()

measure() calls libwattmark.so. tasks() and task() run the program wattmark (on PATH, or
WATTMARK_PROGRAM) on a task database. Energies are in joules, with expanded
uncertainties at k = 2, times in seconds, power in watts.
"""

from typing import TYPE_CHECKING, Any

from ._measure import (BusyError, HostError, IncompleteError, Measurement, Monitor, WattmarkError, Window, benchmark,
                       measure)

if TYPE_CHECKING:
    from ._data import Table, Task, task, tasks
    from ._ranges import profile, range
    from ._windows import window

__all__ = ["Measurement", "WattmarkError", "BusyError", "IncompleteError", "HostError", "measure", "benchmark",
           "Monitor", "Window", "Table", "Task", "task", "tasks", "profile", "range", "window"]


def __getattr__(name: str) -> Any:
    """Import what reads only when it is needed: measure() does without NumPy."""
    if name in ("Table", "Task", "task", "tasks"):
        from . import _data
        return getattr(_data, name)
    if name in ("profile", "range"):
        from . import _ranges
        return getattr(_ranges, name)
    if name == "window":
        from . import _windows
        return _windows.window
    raise AttributeError("module 'wattmark' has no attribute %r" % name)
