"""Ranges of a program that wattmark run --auto records, and joules in torch.profiler's trace."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
from typing import Any, Iterator, Optional

from ._measure import measure

_injected: Optional[ctypes.CDLL] = None


class range(contextlib.ContextDecorator):  # noqa: A001 -- wattmark.range
    """A range for a with block, or a function: its kernels' energy is in wattmark show TASK --ranges.

    Ranges nest, by thread. Where the program does not run under wattmark run --auto it does nothing. NVTX's
    ranges (torch.cuda.nvtx) are recorded as well.
    """

    def __init__(self, name: str):
        self._name = name.encode()

    def __enter__(self) -> range:
        global _injected
        library = os.environ.get("CUDA_INJECTION64_PATH")
        if _injected is None and library and "WATTMARK_AUTO" in os.environ:
            _injected = ctypes.CDLL(library)
        if _injected is not None:
            _injected.wattmark_range_push(self._name)
        return self

    def __exit__(self, *error: Any) -> None:
        if _injected is not None:
            _injected.wattmark_range_pop()


@contextlib.contextmanager
def profile(name: str = "profile", trace: str = "trace.json", *, database: Any = None,
            activities: Any = None, **options: Any) -> Iterator[Any]:
    """Measure a with block under torch.profiler, and write its trace with joules.

    Yields the torch.profiler.profile. trace is written as that exports it, and beside it TRACE.joules.json with
    the energies of its kernels and ranges; the task has them too (show --kernels, --ranges). After the block the
    profile's attribute wattmark has wattmark annotate's result. options are measure()'s.
    """
    torch_profiler: Any = importlib.import_module("torch.profiler")
    from ._data import _run
    if activities is None:
        activities = [torch_profiler.ProfilerActivity.CPU, torch_profiler.ProfilerActivity.CUDA]
    with measure(name, database=database, **options) as m:
        with torch_profiler.profile(activities=activities) as prof:
            yield prof
    prof.export_chrome_trace(trace)
    prof.wattmark = _run(database, "annotate", str(m.task), "--trace", trace, "--json")
