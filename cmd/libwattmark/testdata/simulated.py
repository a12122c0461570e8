"""Measures the simulated GPU of WATTMARK_GPU, or of the first argument, in each way that the package has."""
import ctypes
import json
import os
import sys
import types

import wattmark

device = sys.argv[1] if len(sys.argv) > 1 else None

with wattmark.measure("step", user="lab", device=device) as m:
    wattmark.benchmark("compute", 0.3)
    m.mark("second")
    wattmark.benchmark("memory", 0.2)
print(json.dumps({"what": "py", "code": 0, "task": m.task, "state": 2, "energy": m.energy, "u": m.uncertainty,
                  "seconds": m.seconds, "samples": m.samples}))
assert m.state == "complete" and (m.sensor or 0) >= 0

monitor = wattmark.Monitor(user="lab", device=device)
monitor.begin_window("epoch")
try:
    monitor.begin_window("batch")
    raise AssertionError("two windows")
except wattmark.BusyError as e:
    assert "'epoch' is open" in str(e), e
wattmark.benchmark("half", 0.2)
w = monitor.end_window("epoch")
assert w.total_energy == w.gpu_energy[0] > 10 and 0.2 < w.time < 2 and 0 < w.gpu_uncertainty[0] < w.total_energy, w
monitor.begin_window("given up")
assert monitor.end_window("given up", cancel=True) is None

# Kernel Tuner's classes, as its documentation has them, and the calls of its continuous benchmark.
observers = types.ModuleType("kernel_tuner.observers")
observers.BenchmarkObserver = type("BenchmarkObserver", (), {})


class ContinuousObserver(observers.BenchmarkObserver):
    def __init__(self, name, observables, parent, continuous_duration=1):
        self.name, self.parent, self.continuous_duration, self.results = name, parent, continuous_duration, None


observers.ContinuousObserver = ContinuousObserver
if os.environ.get("KERNEL_TUNER") != "real":
    sys.modules["kernel_tuner"], sys.modules["kernel_tuner.observers"] = types.ModuleType("kernel_tuner"), observers
from wattmark.kernel_tuner import WattmarkObserver  # noqa: E402

observer = WattmarkObserver(user="lab", device=device)
observer.register_configuration({"block_size_x": 128})
inner = observer.continuous_observer
inner.results = {"time": 200.0}
inner.before_start()
wattmark.benchmark("compute", 0.2)
inner.after_start()
inner.during()
inner.after_finish()
got = {**observer.get_results(), **inner.get_results()}
assert abs(got["wattmark_energy"] - 0.2 * got["wattmark_power"]) < 1e-9 and got["wattmark_power"] > 60, got
assert 0 < got["wattmark_energy_u"] < got["wattmark_energy"] and got["wattmark_task"] > m.task, got

if device is None:  # the C interface of the paper, which finds the GPU by WATTMARK_GPU
    lib = ctypes.CDLL("libwattmark.so")
    for call in ("P_startMonitor", "P_marker"):
        assert getattr(lib, call)() == 0, call
    assert lib.P_compute_test(200) == 0
    assert lib.P_marker() == 0 and lib.P_stopMonitor() == 0
    task = lib.P_waitData()
    assert task > got["wattmark_task"] and lib.P_receiveData(task, None) > 1000

# profile() around a torch.profiler that writes one kernel: what ran in the block. range() records only under run --auto.
import tempfile
import time

began, ended = [], []


class Profile:
    def __init__(self, activities):
        assert activities == ["cpu", "cuda"]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def export_chrome_trace(self, path):
        def micros(ns):
            return "%d.%03d" % (ns // 1000, ns % 1000)
        event = ('{"ph": "X", "cat": "%s", "name": "%s", "pid": %d, "tid": 1, "ts": %s, "dur": %s, "args": %s}')
        length = micros(ended[0] - began[0])
        with open(path, "w") as f:
            f.write('{"baseTimeNanoseconds": 0, "traceEvents": [%s]}' % ", ".join([
                event % ("kernel", "memory", 0, micros(began[0]), length, '{"device": 0, "stream": 7, "correlation": 1}'),
                event % ("cuda_runtime", "cudaLaunchKernel", 1, micros(began[0] - 1000), "1", '{"correlation": 1}'),
                event % ("user_annotation", "work", 1, micros(began[0] - 2000), length, "{}")]))


if "WATTMARK_PROGRAM" in os.environ and device is None:
    torch = sys.modules["torch"] = types.ModuleType("torch")
    profiler = sys.modules["torch.profiler"] = torch.profiler = types.ModuleType("torch.profiler")
    profiler.profile, profiler.ProfilerActivity = Profile, types.SimpleNamespace(CPU="cpu", CUDA="cuda")
    torch.cuda = types.SimpleNamespace(is_available=lambda: False)
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.json")
        with wattmark.profile("profiled", trace, user="lab") as p:
            with wattmark.range("work"):
                began.append(time.time_ns())
                wattmark.benchmark("memory", 0.2)
                ended.append(time.time_ns())
        work, = p.wattmark["ranges"]
        assert p.wattmark["added"] == 1 and work["path"] == "work" and work["launches"] == 1, p.wattmark
        assert 10 < work["energy_j"] < 100 and 0 < work["energy_u_j"] < work["energy_j"], work
        with open(os.path.join(folder, "trace.joules.json")) as f:
            joules = [e["args"]["energy_j"] for e in json.load(f)["traceEvents"] if e.get("cat") == "kernel"]
        assert abs(joules[0] - work["energy_j"]) < 1e-3 * joules[0], joules
