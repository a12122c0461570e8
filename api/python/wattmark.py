"""Measure what a GPU really draws, around a block of Python.

    import wattmark
    with wattmark.measure("step", user="lab") as m:
        train_step()
        m.mark("validation")
        validate()
    print(m.energy, "J +-", m.uncertainty, "J, task", m.task)

It calls libwattmark.so (make install-lib) and needs nothing but Python's own
ctypes. With torch imported and CUDA in use there, the markers are played in
torch's current device and stream, and the work in that stream is waited for;
else they are played in the calling thread's current context, or on the first
GPU, and all of that context's work is waited for.

WATTMARK_LIBRARY names the library where it is not on the loader's path.
"""

import ctypes
import math
import os
import sys

__all__ = ["Measurement", "WattmarkError", "BusyError", "IncompleteError", "HostError", "measure"]

OK, BUSY, INCOMPLETE, HOST = 0, 4, 9, 13
NO_SENSOR = 1

STATES = {1: "unfinished", 2: "complete", 3: "incomplete", 4: "untrimmed", 5: "failed"}


class WattmarkError(RuntimeError):
    """A call failed. code is wm_code of wattmark.h; the text has all causes."""

    def __init__(self, code, text):
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


_library = None


def _load():
    """Load the library once, when it is first needed."""
    global _library
    if _library is not None:
        return _library
    name = os.environ.get("WATTMARK_LIBRARY", "libwattmark.so")
    try:
        lib = ctypes.CDLL(name)
    except OSError as e:
        raise WattmarkError(12, "%s cannot be loaded: %s; run make install-lib, or set WATTMARK_LIBRARY" % (name, e)) from e
    lib.wm_error.restype = ctypes.c_char_p
    lib.wm_options_init.argtypes = [ctypes.POINTER(_Options)]
    lib.wm_options_init.restype = None
    lib.wm_begin.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(_Options), ctypes.POINTER(ctypes.c_int64)]
    lib.wm_marker.argtypes = [ctypes.c_int64, ctypes.c_char_p, ctypes.c_void_p]
    lib.wm_end.argtypes = [ctypes.c_int64, ctypes.POINTER(_Result)]
    lib.wm_cancel.argtypes = [ctypes.c_int64]
    _library = lib
    return lib


def _check(code):
    if code == OK:
        return
    text = _load().wm_error().decode("utf-8", "replace")
    raise {BUSY: BusyError, INCOMPLETE: IncompleteError, HOST: HostError}.get(code, WattmarkError)(code, text)


def _bytes(text, what):
    if text is None:
        return None
    data = os.fsencode(text)
    if b"\0" in data:
        raise ValueError("%s %r: a NUL character" % (what, text))
    return data


def _torch_stream():
    """torch's current stream, and its device made current on this thread; None without torch."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    torch.cuda.set_device(torch.cuda.current_device())  # makes its context current here
    return torch.cuda.current_stream().cuda_stream


class Measurement:
    """One measurement; results are None until its block has ended.

    energy and uncertainty (k = 2) in J, seconds, mean and peak in W, sensor (by
    the GPU's own sensor) in J, samples, gaps, lost, task, state, reason.
    Numbers that are not known are None.
    """

    def __init__(self, name, user, options, streams):
        self.name, self.user = name, user
        self._options, self._streams = options, streams
        self._handle = None
        self.task = self.state = self.reason = None
        self.energy = self.uncertainty = self.seconds = self.mean = self.peak = self.sensor = None
        self.samples = self.gaps = self.lost = None

    def __enter__(self):
        if self._handle is not None:
            raise WattmarkError(3, "this measurement has begun already: call wattmark.measure again")
        handle = ctypes.c_int64()
        _check(_load().wm_begin(_bytes(self.user, "user"), _bytes(self.name, "name"), ctypes.byref(self._options), ctypes.byref(handle)))
        self._handle = handle.value
        return self

    def mark(self, label, stream=None):
        """Name what follows in a stream (a number, or an object with cuda_stream)."""
        if self._handle is None:
            raise WattmarkError(3, "mark: the measurement has not begun")
        stream = getattr(stream, "cuda_stream", stream)
        _check(_load().wm_marker(self._handle, _bytes(label, "label"), stream))

    def __exit__(self, kind, error, trace):
        if kind is not None:
            _load().wm_cancel(self._handle)  # the block's own error is the one to tell
            return False
        result = _Result(size=ctypes.sizeof(_Result))
        code = _load().wm_end(self._handle, ctypes.byref(result))
        self._take(result)
        _check(code)
        return False

    def _take(self, r):
        known = lambda v: None if math.isnan(v) else v
        self.task, self.state = r.task or None, STATES.get(r.state)
        self.reason = r.reason.decode("utf-8", "replace")
        if r.task == 0:
            return
        self.energy, self.uncertainty, self.seconds = known(r.energy_j), known(r.energy_u_j), known(r.seconds)
        self.mean, self.peak, self.sensor = known(r.mean_w), known(r.peak_w), known(r.sensor_j)
        self.samples, self.gaps, self.lost = r.samples, r.gaps, r.lost


def measure(name, user=None, *, monitor=None, database=None, device=None, stream=None, warm_up=0.2, wait=0.0, lease=30.0, sensor=True, host=None):
    """A measurement for a with block. Times are in seconds.

    host: the daemon (wattmark host) as "unix:PATH", or "none" to measure without
    one; default: WATTMARK_HOST, else the one at the default socket, else none.
    monitor and database are the daemon's where there is one.

    stream: CUstream as a number, or an object with cuda_stream (torch's);
    default: torch's current stream where torch uses CUDA, else the default one.
    """
    lib = _load()
    options = _Options()
    lib.wm_options_init(ctypes.byref(options))
    options.monitor, options.database, options.device = _bytes(monitor, "monitor"), _bytes(database, "database"), _bytes(device, "device")
    options.host = _bytes(host, "host")
    options.warm_up_ms, options.wait_ms, options.lease_ms = (_milliseconds(v, n) for v, n in ((warm_up, "warm_up"), (wait, "wait"), (lease, "lease")))
    options.flags = 0 if sensor else NO_SENSOR
    if stream is None and device is None:
        stream = _torch_stream()
    streams = None
    if stream:  # 0 is the default stream, which has the whole context waited for
        streams = (ctypes.c_void_p * 1)(getattr(stream, "cuda_stream", stream))
        options.streams, options.stream_count = streams, 1
    return Measurement(name, user, options, streams)


def _milliseconds(seconds, what):
    if not 0 <= seconds <= 4e6:
        raise ValueError("%s=%r: seconds from 0 to 4 million" % (what, seconds))
    return round(1e3 * seconds)
