"""measure(): a block of Python between markers, by libwattmark.so and ctypes.

With torch imported and CUDA in use there, the markers are played in torch's current device and
stream, and the work in that stream is waited for; else they are played in the calling thread's
current context, or on the first GPU, and all of that context's work is waited for.
WATTMARK_GPU=sim:SOCKET, or the same as device, names the simulated GPU of wattmark emulate --gpu
SOCKET. WATTMARK_LIBRARY names the library where it is not on the loader's path.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from dataclasses import dataclass
from typing import Any, Optional

OK, STATE, BUSY, INCOMPLETE, FAILED, HOST = 0, 3, 4, 9, 12, 13
NO_SENSOR = 1

STATES = {1: "unfinished", 2: "complete", 3: "incomplete", 4: "untrimmed", 5: "failed"}


class WattmarkError(RuntimeError):
    """A call failed. code is wm_code of wattmark.h; the text has all causes."""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code = code


class BusyError(WattmarkError):
    """Somebody else holds the bench."""


class IncompleteError(WattmarkError):
    """Measured, but something is missing; the measurement has what there is."""


class HostError(WattmarkError):
    """The host daemon does not answer, or was lost amid the measurement."""


class _Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("monitor", ctypes.c_char_p),
        ("database", ctypes.c_char_p),
        ("device", ctypes.c_char_p),
        ("streams", ctypes.POINTER(ctypes.c_void_p)),
        ("stream_count", ctypes.c_size_t),
        ("warm_up_ms", ctypes.c_uint),
        ("wait_ms", ctypes.c_uint),
        ("lease_ms", ctypes.c_uint),
        ("flags", ctypes.c_uint),
        ("host", ctypes.c_char_p),
    ]


class _Result(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("task", ctypes.c_int64),
        ("state", ctypes.c_int),
        ("energy_j", ctypes.c_double),
        ("energy_u_j", ctypes.c_double),
        ("seconds", ctypes.c_double),
        ("mean_w", ctypes.c_double),
        ("peak_w", ctypes.c_double),
        ("sensor_j", ctypes.c_double),
        ("samples", ctypes.c_uint64),
        ("gaps", ctypes.c_uint64),
        ("lost", ctypes.c_uint64),
        ("reason", ctypes.c_char * 1024),
    ]


_library: Any = None


def _load() -> Any:
    """Load the library once, when it is first needed."""
    global _library
    if _library is not None:
        return _library
    name = os.environ.get("WATTMARK_LIBRARY", "libwattmark.so.0")
    try:
        lib = ctypes.CDLL(name)
    except OSError as e:
        raise WattmarkError(FAILED, "%s cannot be loaded: %s; install the package libwattmark, or run make "
                            "install-lib, or set WATTMARK_LIBRARY" % (name, e)) from e
    lib.wm_error.restype = ctypes.c_char_p
    lib.wm_options_init.argtypes = [ctypes.POINTER(_Options)]
    lib.wm_options_init.restype = None
    lib.wm_begin.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(_Options), ctypes.POINTER(ctypes.c_int64)]
    lib.wm_marker.argtypes = [ctypes.c_int64, ctypes.c_char_p, ctypes.c_void_p]
    lib.wm_end.argtypes = [ctypes.c_int64, ctypes.POINTER(_Result)]
    lib.wm_cancel.argtypes = [ctypes.c_int64]
    _library = lib
    return lib


def _check(code: int) -> None:
    if code == OK:
        return
    text = _load().wm_error().decode("utf-8", "replace")
    raise {BUSY: BusyError, INCOMPLETE: IncompleteError, HOST: HostError}.get(code, WattmarkError)(code, text)


def _bytes(text: Any, what: str) -> Optional[bytes]:
    if text is None:
        return None
    data = os.fsencode(text)
    if b"\0" in data:
        raise ValueError("%s %r: a NUL character" % (what, text))
    return data


def _torch_stream() -> Optional[int]:
    """torch's current stream, and its device made current on this thread; None without torch."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    torch.cuda.set_device(torch.cuda.current_device())  # makes its context current here
    return torch.cuda.current_stream().cuda_stream  # type: ignore[no-any-return]


class Measurement:
    """One measurement; results are None until its block has ended.

    energy and uncertainty (k = 2) in J, seconds, mean and peak in W, sensor (by
    the GPU's own sensor) in J, samples, gaps, lost, task, state, reason.
    Numbers that are not known are None.
    """

    def __init__(self, name: str, user: Optional[str], options: _Options, streams: Any):
        self.name, self.user = name, user
        self._options, self._streams = options, streams
        self._handle: Optional[int] = None
        self.task: Optional[int] = None
        self.state: Optional[str] = None
        self.reason: Optional[str] = None
        self.energy: Optional[float] = None
        self.uncertainty: Optional[float] = None
        self.seconds: Optional[float] = None
        self.mean: Optional[float] = None
        self.peak: Optional[float] = None
        self.sensor: Optional[float] = None
        self.samples: Optional[int] = None
        self.gaps: Optional[int] = None
        self.lost: Optional[int] = None

    def __repr__(self) -> str:
        energy = "no energy" if self.energy is None else "%.5g ± %.2g J (k = 2)" % (self.energy, self.uncertainty or math.nan)
        return "<task %s %s: %s, %s>" % (self.task, self.name, energy, self.state)

    def __enter__(self) -> Measurement:
        if self._handle is not None:
            raise WattmarkError(STATE, "this measurement has begun already: call wattmark.measure again")
        handle = ctypes.c_int64()
        _check(_load().wm_begin(_bytes(self.user, "user"), _bytes(self.name, "name"), ctypes.byref(self._options),
                                ctypes.byref(handle)))
        self._handle = handle.value
        return self

    def mark(self, label: str, stream: Any = None) -> None:
        """Name what follows in a stream (a number, or an object with cuda_stream)."""
        if self._handle is None:
            raise WattmarkError(STATE, "mark: the measurement has not begun")
        stream = getattr(stream, "cuda_stream", stream)
        _check(_load().wm_marker(self._handle, _bytes(label, "label"), stream))

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            _load().wm_cancel(self._handle)  # the block's own error is the one to tell
            return
        result = _Result(size=ctypes.sizeof(_Result))
        code = _load().wm_end(self._handle, ctypes.byref(result))
        self._take(result)
        _check(code)

    def _take(self, r: _Result) -> None:
        def known(v: float) -> Optional[float]:
            return None if math.isnan(v) else v

        self.task, self.state = r.task or None, STATES.get(r.state)
        self.reason = r.reason.decode("utf-8", "replace")
        if r.task == 0:
            return
        self.energy, self.uncertainty, self.seconds = known(r.energy_j), known(r.energy_u_j), known(r.seconds)
        self.mean, self.peak, self.sensor = known(r.mean_w), known(r.peak_w), known(r.sensor_j)
        self.samples, self.gaps, self.lost = r.samples, r.gaps, r.lost


def measure(name: str, user: Optional[str] = None, *, monitor: Optional[str] = None, database: Any = None,
            device: Optional[str] = None, stream: Any = None, warm_up: float = 0.2, wait: float = 0.0,
            lease: float = 30.0, sensor: bool = True, host: Optional[str] = None) -> Measurement:
    """A measurement for a with block. Times are in seconds.

    host: the daemon (wattmark host) as "unix:PATH", or "none" to measure without
    one; default: WATTMARK_HOST, else the one at the default socket, else none.
    monitor and database are the daemon's where there is one.

    device: index, UUID or PCI bus id of a GPU; "sim:SOCKET" for the simulated one of
    wattmark emulate --gpu sim:SOCKET, which also WATTMARK_GPU can name.

    stream: CUstream as a number, or an object with cuda_stream (torch's);
    default: torch's current stream where torch uses CUDA, else the default one.
    """
    lib = _load()
    options = _Options()
    lib.wm_options_init(ctypes.byref(options))
    options.monitor, options.database = _bytes(monitor, "monitor"), _bytes(database, "database")
    options.device, options.host = _bytes(device, "device"), _bytes(host, "host")
    options.warm_up_ms, options.wait_ms = _milliseconds(warm_up, "warm_up"), _milliseconds(wait, "wait")
    options.lease_ms = _milliseconds(lease, "lease")
    options.flags = 0 if sensor else NO_SENSOR
    simulated = os.environ.get("WATTMARK_GPU", "").startswith("sim:")
    if stream is None and device is None and not simulated:
        stream = _torch_stream()
    streams = None
    if stream:  # 0 is the default stream, which has the whole context waited for
        streams = (ctypes.c_void_p * 1)(getattr(stream, "cuda_stream", stream))
        options.streams, options.stream_count = streams, 1
    return Measurement(name, user, options, streams)


def _milliseconds(seconds: float, what: str) -> int:
    if not 0 <= seconds <= 4e6:
        raise ValueError("%s=%r: seconds from 0 to 4 million" % (what, seconds))
    return round(1e3 * seconds)


def benchmark(kernel: str, seconds: float) -> None:
    """Run a built-in kernel ("half", "compute" or "memory") for a time on the GPU that is being measured.

    On a simulated GPU it is the only work that there is. Outside of a measurement it runs on the
    GPU of WATTMARK_GPU or of the current context. wattmark run --auto records it on a simulated GPU.
    """
    if kernel not in ("half", "compute", "memory"):
        raise ValueError("benchmark %r: want half, compute or memory" % kernel)
    if getattr(_load(), "P_%s_test" % kernel)(_milliseconds(seconds, "seconds")) != OK:
        raise WattmarkError(FAILED, _load().wm_error().decode("utf-8", "replace"))


@dataclass(frozen=True)
class Window:
    """What a window of Monitor drew: seconds, and J by GPU, with expanded uncertainties (k = 2)."""

    time: float
    gpu_energy: dict[int, float]
    gpu_uncertainty: dict[int, float]
    task: int

    @property
    def total_energy(self) -> float:
        """J of all GPUs."""
        return sum(self.gpu_energy.values())


class Monitor:
    """The calls of ZeusMonitor (Zeus, zeus.monitor.energy), by the external meter.

    One window at a time: the bench has one meter. Each window is a task, and costs the time of its markers.
    options are those of measure(); energies come under the index of device, else 0.
    """

    def __init__(self, **options: Any):
        self._options = options
        self._open: dict[str, Measurement] = {}

    def begin_window(self, key: str, sync_execution: bool = True) -> None:
        """Begin a window. BusyError where one is open; ValueError without sync_execution: markers wait for the GPU."""
        if not sync_execution:
            raise ValueError("begin_window: markers wait for the GPU's work: sync_execution=False cannot be")
        if self._open:
            raise BusyError(BUSY, "begin_window %r: window %r is open: one at a time" % (key, *self._open))
        self._open[key] = measure(key, **self._options).__enter__()

    def end_window(self, key: str, sync_execution: bool = True, cancel: bool = False) -> Optional[Window]:
        """End a window; None for one that is cancelled. WattmarkError where no such window is open."""
        if key not in self._open:
            raise WattmarkError(STATE, "end_window %r: no such window is open" % key)
        m = self._open.pop(key)
        if cancel:
            m.__exit__(KeyboardInterrupt, None, None)
            return None
        m.__exit__(None, None, None)
        device = str(self._options.get("device") or "0")
        gpu = int(device) if device.isdigit() else 0
        return Window(m.seconds or math.nan, {gpu: m.energy or math.nan}, {gpu: m.uncertainty or math.nan}, m.task or 0)
