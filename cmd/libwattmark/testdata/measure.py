"""Drives wattmark.py as a program does. torch, where asked for, is a stand-in."""
import ctypes
import json
import os
import sys
import types

cuda = ctypes.CDLL("libcuda.so.1")
context, stream, module, kernel = (ctypes.c_void_p() for _ in range(4))
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
assert cuda.cuModuleLoadDataEx(ctypes.byref(module), b".version 7.0", 0, None, None) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"user") == 0


def launch(s):
    assert cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, s, None, None) == 0


if "torch" in sys.argv:
    torch = sys.modules["torch"] = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, current_device=lambda: 0, set_device=lambda d: None,
        current_stream=lambda: types.SimpleNamespace(cuda_stream=stream.value))

import wattmark

with wattmark.measure("step", user="lab", warm_up=0.01) as m:
    launch(stream)
    m.mark("second", stream.value)
    launch(stream)
print(json.dumps({"what": "py", "code": 0, "task": m.task, "state": 2, "energy": m.energy, "u": m.uncertainty, "seconds": m.seconds, "samples": m.samples}))
assert repr(m).startswith("<task %d step: " % m.task) and repr(m).endswith(" J (k = 2), complete>"), repr(m)
assert m.state == "complete" and m.gaps == 0 and m.mean > 50 and m.sensor > 0 and m.energy / m.seconds - m.mean < 1e-6

try:
    with wattmark.measure("broken", user="lab") as b:
        raise KeyError("the block's own")
except KeyError as e:
    assert e.args == ("the block's own",) and b.energy is None

daemon = os.environ["WATTMARK_HOST"].startswith("unix:")
for wrong, kind, text in (
    (dict(name=""), wattmark.WattmarkError, "needs a name"),
    (dict(name="x", monitor="127.0.0.1:1"), wattmark.WattmarkError, "WATTMARK_HOST=none" if daemon else "is wattmark monitor running there"),
    (dict(name="x", database="/no/such/folder/power.db"), wattmark.WattmarkError, "folder"),
    (dict(name="x", host="unix:/no/such/socket"), wattmark.HostError, "is wattmark host running there"),
    (dict(name="x", device="9", stream=None), wattmark.WattmarkError, "index 9"),
):
    try:
        with wattmark.measure(**wrong):
            raise AssertionError("begun: %r" % wrong)
    except kind as e:
        assert text in str(e), e
try:
    wattmark.measure("x", lease=-1)
    raise AssertionError("a negative lease")
except ValueError as e:
    assert "lease" in str(e)
with wattmark.measure("first", user="lab"):
    try:
        wattmark.measure("second").__enter__()
        raise AssertionError("two at once")
    except wattmark.BusyError as e:
        assert e.code == 4 and "lab@" in str(e), e
