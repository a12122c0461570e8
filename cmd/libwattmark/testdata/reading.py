"""Reads tasks as a program does, and compares with the program's CSV and with what SQLite has."""
import io
import json
import os
import resource
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pandas

import wattmark
from wattmark._data import plus_minus

db, number = sys.argv[1], int(sys.argv[2])
os.environ["WATTMARK_DB"] = db


def processor():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


if len(sys.argv) > 3:  # speed: so many samples as a data frame, in less than a second of processor time
    before, begin = processor(), time.monotonic()
    frame = wattmark.task(number).samples().pandas()
    took = processor() - before
    print(json.dumps({"rows": len(frame), "columns": frame.shape[1], "cpu_s": took, "wall_s": time.monotonic() - begin}))
    assert len(frame) == int(sys.argv[3]) and took < 1, (len(frame), took)
    sys.exit()

listed = wattmark.tasks(limit=5)
t = wattmark.task(number)
assert [x.id for x in listed] == [number] and listed[0].energy == t.energy and t.state == "complete", listed
assert t.verdict in ("good", "usable", "doubtful", "void") and 0 < t.uncertainty < t.energy and t.seconds > 0
assert repr(t).startswith("<task %d demo: " % number) and "±" in repr(t) and "(k = 2)" in repr(t), repr(t)

# The same numbers as in the CSV, which pandas reads by itself.
program = os.environ["WATTMARK_PROGRAM"]
for flags, options in (([], {}), (["--raw"], {"raw": True}), (["--all", "--host-time"], {"whole": True, "host_time": True}),
                       (["--rail", "pcie_12v"], {"rails": ["pcie_12v"]})):
    text = subprocess.run([program, "export", str(number), "--format", "csv", *flags], check=True, capture_output=True).stdout
    csv = pandas.read_csv(io.BytesIO(text), comment="#")
    got = t.samples(**options)
    frame = got.pandas()
    assert list(frame) == list(csv) and len(frame) == len(csv) > 1000, (list(frame), list(csv))
    assert all(np.allclose(frame[c], csv[c], rtol=1e-6, atol=1e-9) for c in frame), flags
    assert got.units["scan"] == "1" and got.meta["task"]["task_id"] == number
s = t.samples()
assert s.units["power_w"] == "W" and s["power_w"].dtype == np.float64 and s["scan"].dtype == np.int64
e = np.trapz(s["power_w"], s["t_s"])
assert abs(e - t.energy) < 2e-3 * t.energy, (e, t.energy)  # a scan at either end of some thousand

rows = sqlite3.connect(db).execute("SELECT method, count(*) FROM reading WHERE task_id=? GROUP BY 1", (number,)).fetchall()
r = t.readings().pandas()
assert r.groupby("method").size().to_dict() == dict(rows) and len(rows) > 3
one = t.readings("nvml.instant")
inside = (one["t_s"] >= s["t_s"][0]) & (one["t_s"] <= s["t_s"][-1])
assert inside.sum() > 5 and abs(np.median(one["value"][inside]) - t.mean) < 0.2 * t.mean, (one, t.mean)
k = t.kernels()
assert k["name"].tolist() == ["half"] and s["t_s"][0] <= k["start_s"][0] + 1e-3 < k["end_s"][0] <= s["t_s"][-1] + 1e-3, k
assert abs(k["end_s"][0] - k["start_s"][0] - t.seconds) < 0.01 * t.seconds

h = t._repr_html_()
assert "±" in h and t.verdict in h and "<svg" in h and "<?xml" not in h, h[:300]
for value, u, want in ((190.80212, 4.62383, "190.8 ± 4.6 J"), (2.5, 0.0996, "2.50 ± 0.10 J"), (519.2, 97, "519 ± 97 J"),
                       (51234, 1234, "51200 ± 1200 J"), (1.0, None, "1 J")):
    assert plus_minus(value, u, "J") == want, plus_minus(value, u, "J")

for call, kind, text in ((lambda: wattmark.task(99), wattmark.WattmarkError, "no task 99"),
                         (lambda: t.samples(["eps"]), wattmark.WattmarkError, "no such rail"),
                         (lambda: wattmark.tasks(db="/no/such/power.db"), wattmark.WattmarkError, "/no/such/power.db"),
                         (lambda: wattmark.task(number).samples().polars(), ImportError, "pip install 'wattmark[polars]'"),
                         (lambda: wattmark.task(number).samples().arrow(), ImportError, "pip install 'wattmark[arrow]'")):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        assert "pip" in text, text  # the package is here
os.environ["WATTMARK_PROGRAM"] = "/no/such/program"
try:
    wattmark.tasks()
    raise AssertionError("no program")
except wattmark.WattmarkError as error:
    assert "WATTMARK_PROGRAM" in str(error), error

# A stream that was cut, and one with a type that is not read, are errors, not fewer rows.
from wattmark._arrow import read_arrow  # noqa: E402

whole = subprocess.run([program, "export", str(number), "--format", "arrow-stream"], check=True, capture_output=True).stdout
assert len(read_arrow(io.BytesIO(whole))[0]["scan"]) == len(s["scan"])
for n in (len(whole) - 8, len(whole) // 2, 100, 4, 0):
    try:
        read_arrow(io.BytesIO(whole[:n]))
        raise AssertionError("cut at %d" % n)
    except EOFError:
        pass
try:
    read_arrow(io.BytesIO(b"ARROW1\0\0" + whole))
    raise AssertionError("no stream")
except ValueError:
    pass
