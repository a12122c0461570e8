"""Tasks of a database as NumPy arrays and data frames: by the program wattmark, and by SQLite."""

from __future__ import annotations

import fcntl
import html
import json
import math
import os
import re
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Optional, Sequence, Union

import numpy as np

from ._arrow import Array, read_arrow
from ._measure import FAILED, WattmarkError

F_SETPIPE_SZ = 1031  # of Linux; in fcntl since Python 3.10


class Table(dict[str, Array]):
    """Columns by name. units maps names to units, meta is the metadata of docs/export.md."""

    def __init__(self, columns: dict[str, Array], units: Optional[dict[str, str]] = None,
                 meta: Optional[dict[str, Any]] = None):
        super().__init__(columns)
        self.units, self.meta = units or {}, meta or {}

    def pandas(self) -> Any:
        """A pandas.DataFrame; its attrs hold the units."""
        frame = _optional("pandas").DataFrame(dict(self), copy=False)
        frame.attrs["units"] = self.units
        return frame

    def polars(self) -> Any:
        """A polars.DataFrame."""
        return _optional("polars").DataFrame(dict(self))

    def arrow(self) -> Any:
        """A pyarrow.Table; the metadata of its fields hold the units."""
        pa = _optional("pyarrow", "arrow")
        arrays = {name: pa.array(column) for name, column in self.items()}
        fields = [pa.field(n, a.type, metadata={"unit": self.units.get(n, "")}) for n, a in arrays.items()]
        return pa.table(list(arrays.values()), schema=pa.schema(fields))


def _optional(name: str, extra: Optional[str] = None) -> Any:
    try:
        return import_module(name)
    except ImportError as e:
        raise ImportError("%s is not installed: pip install 'wattmark[%s]'; a Table is a dict of NumPy arrays"
                          % (name, extra or name)) from e


def plus_minus(value: float, u: Optional[float], unit: str) -> str:
    """A value with its expanded uncertainty, both to two digits of the uncertainty (GUM 7.2.6)."""
    if u is None or not 0 < u < math.inf:
        return "%.6g %s" % (value, unit)
    digits = 1 - math.floor(math.log10(float("%.1e" % u)))
    return "%.*f ± %.*f %s" % (max(digits, 0), round(value, digits), max(digits, 0), round(u, digits), unit)


Database = Union[str, "os.PathLike[str]", None]


def _run(db: Database, *args: str, read: Optional[Callable[[Any], Any]] = None) -> Any:
    """The program's output as JSON, or as read takes it from the pipe. Its errors are raised with their own text."""
    command = [os.environ.get("WATTMARK_PROGRAM", "wattmark"), *args]
    command += ["--db", os.fspath(db)] if db is not None else []
    with tempfile.TemporaryFile() as err:
        try:
            p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err, bufsize=0)
        except OSError as e:
            raise WattmarkError(FAILED, "%s cannot be run: %s; install wattmark, or name it with WATTMARK_PROGRAM"
                                % (command[0], e.strerror)) from e
        with p:
            try:
                fcntl.fcntl(p.stdout, F_SETPIPE_SZ, 1 << 20)  # type: ignore[arg-type]
            except OSError:
                pass  # only slower: 64 KiB cost a switch of processes each
            try:
                out = read(p.stdout) if read else p.stdout.read()  # type: ignore[union-attr]
            except EOFError:
                out = None
        if p.returncode != 0 or out is None:
            err.seek(0)
            text = err.read().decode("utf-8", "replace").strip()
            raise WattmarkError(FAILED, text or "wattmark %s ended with %d" % (args[0], p.returncode))
    return out if read else json.loads(out)


class Task:
    """A task: energy and uncertainty (k = 2) in J, seconds, mean and peak in W, sensor in J.

    Quantities that are not known are None. verdict is how far the result may be trusted: "good", "usable", "doubtful"
    or "void". info has all that wattmark show --json prints.
    """

    def __init__(self, info: dict[str, Any], db: Database = None):
        self.info, self._db = info, db
        self.id, self.name, self.user = int(info["task_id"]), str(info["name"]), str(info["user"])
        self.state, self.reason = str(info["state"]), str(info.get("reason", ""))
        self.verdict: Optional[str] = info.get("quality", {}).get("level")
        self.energy: Optional[float] = info.get("energy_j")
        self.uncertainty: Optional[float] = info.get("energy_u_j")
        self.seconds: Optional[float] = info.get("duration_s")
        self.mean: Optional[float] = info.get("mean_w")
        self.peak: Optional[float] = info.get("peak_w")
        self.sensor: Optional[float] = info.get("nvml_j")

    def samples(self, rails: Sequence[str] = (), *, whole: bool = False, raw: bool = False, host_time: bool = False,
                begin: Optional[float] = None, end: Optional[float] = None) -> Table:
        """A row per scan of the window: scan, t_s (device time), power_w, and amperes, volts, watts of each rail.

        rails: only theirs. whole: also the scans outside of the window. raw: the meter's counts. host_time: a column
        host_ns, ns since 1970 on the host's clock. begin, end: only from, up to this device time.
        """
        args = [a for r in rails for a in ("--rail", r)]
        args += [a for a, given in (("--all", whole), ("--raw", raw), ("--host-time", host_time)) if given]
        args += ["%s=%.9fs" % (a, t) for a, t in (("--from", begin), ("--to", end)) if t is not None]
        rows = int(self.info.get("samples_stored" if whole else "samples") or 0) if begin is None and end is None else 0
        return Table(*_run(self._db, "export", str(self.id), "--format", "arrow-stream", *args,
                           read=lambda stream: read_arrow(stream, rows)))

    def readings(self, method: Optional[str] = None) -> Table:
        """What software read of the GPU's own sensors: method, t_s (device time) and value.

        method: of one alone. "nvml.instant" is in W, "nvml.energy" in J. NaN where the sensor gave none.
        """
        rows = self._query("SELECT at_ns, at_ns, method, value FROM reading WHERE task_id=? ORDER BY at_ns")
        rows = [r for r in rows if method in (None, r[2])]
        return Table({"method": np.array([r[2] for r in rows], object), "t_s": self._device_time(rows)[:, 0],
                      "value": np.array([r[3] for r in rows], "f8")}, {"t_s": "s"})

    def kernels(self) -> Table:
        """The kernels that wattmark run --auto recorded, else the marked parts: name, start_s, end_s (device time)."""
        rows = self._query("SELECT start_ns, end_ns, name FROM launch JOIN launch_name USING(task_id, name_no) "
                           "WHERE task_id=? ORDER BY start_ns")
        rows = rows or self._query("SELECT start_ns, end_ns, name FROM kernel WHERE task_id=? ORDER BY start_ns")
        at = self._device_time(rows)
        return Table({"name": np.array([r[2] for r in rows], object), "start_s": at[:, 0], "end_s": at[:, 1]},
                     {"start_s": "s", "end_s": "s"})

    def _query(self, text: str) -> list[tuple[Any, ...]]:
        path = self.info["database"]
        if "://" in path:
            raise WattmarkError(FAILED, "readings and kernels are read from a file: wattmark db copy %s FILE" % path)
        with closing(sqlite3.connect(Path(path).resolve().as_uri() + "?mode=ro", uri=True)) as db:
            return db.execute(text, (self.id,)).fetchall()

    def _device_time(self, rows: list[tuple[Any, ...]]) -> Array:
        """The first two columns, ns of the host's clock, as device time in s: a + b (t - origin), docs/export.md."""
        if not rows:
            return np.empty((0, 2))
        (origin, a, b), = self._query("SELECT clock_origin_s, clock_a_s, clock_b FROM task WHERE task_id=?")
        if origin is None:
            raise WattmarkError(FAILED, "task %d: no fit of its clocks relates the host's times to it" % self.id)
        host = np.array([r[:2] for r in rows], "i8") - round(origin * 1e9)
        return np.asarray(a + b * (host / 1e9))

    def svg(self) -> str:
        """The power by the meter and by software over time, as SVG; "" where there are no samples."""
        if not self.info.get("samples"):
            return ""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "power.svg"
            _run(self._db, "show", str(self.id), "--json", "--svg", str(file))
            text = re.sub(r"^\s*<\?xml.*?\?>\s*", "", file.read_text("utf-8"))
        return text.replace("<svg ", '<svg style="max-width:100%;height:auto" ', 1)

    def __repr__(self) -> str:
        energy = plus_minus(self.energy, self.uncertainty, "J") + " (k = 2)" if self.energy is not None else "no energy"
        return "<task %d %s: %s, %s>" % (self.id, self.name, energy, self.verdict or self.state)

    def _repr_html_(self) -> str:
        rows = [("energy", self.energy, self.uncertainty, "J"), ("time", self.seconds, None, "s"),
                ("mean power", self.mean, None, "W"), ("by the GPU's own sensor", self.sensor, None, "J")]
        cells = "".join("<tr><th>%s</th><td>%s%s</td></tr>" % (name, plus_minus(v, u, unit), " (k = 2)" if u else "")
                        for name, v, u, unit in rows if v is not None)
        about = ", ".join(x for x in (self.verdict, self.state, self.reason) if x)
        title = html.escape("task %d, %s: %s" % (self.id, self.name, about))
        return "<div><b>%s</b><table>%s</table>%s</div>" % (title, cells, self.svg())


def tasks(*, db: Database = None, user: Optional[str] = None, name: Optional[str] = None,
          search: Optional[str] = None, limit: int = 50) -> list[Task]:
    """Tasks, newest first, without their verdicts, which task() has.

    db: a database file, or a PostgreSQL server's address; default: WATTMARK_DB, else the client configuration's, else
    power.db. user, name (a trailing * matches what begins so) and search are those of wattmark tasks.
    """
    filters = (("--user", user), ("--name", name), ("--search", search))
    args = [a for f, v in filters if v is not None for a in (f, v)]
    return [Task(t, db) for t in _run(db, "tasks", "--json", "--limit", str(limit), *args)["tasks"]]


def task(number: int, *, db: Database = None) -> Task:
    """One task by its number; WattmarkError where there is none."""
    return Task(_run(db, "show", str(number), "--json"), db)
