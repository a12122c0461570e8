"""Find a sensor's figures from the recordings behind its certificate, on its own: renewals
of the register by a line, models by least squares, U by leaving out an eighth at a time.

A load is a meter's power, or a level for each kind of kernel.
"""

import csv
import json
import math
import os
from bisect import bisect_right
from datetime import datetime
from operator import mul
from typing import Any, Callable, Dict, List, Tuple


def _scale(name: str) -> float:
    return {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "w": 1, "mw": 1e-3}[name.rsplit("_", 1)[1]]


def _table(path: str, standard: str) -> List[Dict[str, str]]:
    rows = list(csv.reader(open(path)))
    if rows[0][0][:1].isdigit():
        rows.insert(0, standard.split(","))
    return [dict(zip(rows[0], r)) for r in rows[1:]]


def _read(c: Any, dir: str) -> Tuple[List[Any], List[Any]]:
    """The polls (s, W), and the load's stretches (from, to, kind, or watts)."""
    if c.source["kind"] == "recording":
        host = json.load(open(os.path.join(dir, "host.json")))
        rows = _table(os.path.join(dir, "scans.csv"), "")
        zero = _ns(host["started"])
        span = [((_ns(k["start"]) - zero) * 1e-9, (_ns(k["end"]) - zero) * 1e-9, k["name"]) for k in host["kernels"]]
        m = host["marker"]
        for a, b in zip(host["played"], host["played"][1:]):
            chips, i = _chips(m, a["kind"]), a["chip"] + m["guard_chips"]
            if a["kind"] == b["kind"] and b["chip"] == a["chip"] + 1 and 0 <= i < len(chips):
                span.append(((_ns(a["at"]) - zero) * 1e-9, (_ns(b["at"]) - zero) * 1e-9, "chip %d" % chips[i]))
        return [(int(r["tick"]) * 1e-9, int(r["gpu.power"]) * 1e-3) for r in rows], sorted(span)
    names = [f["name"] for f in c.files]
    rows = _table(os.path.join(dir, names[0]), "time_us,instant_mw,average_mw,usage_mw,energy_mj,stamp_us")
    t, w = [next(n for n in rows[0] if n.rsplit("_", 1)[0] == x) for x in ("time", c.sensor["field"])]
    polls = [(float(r[t]) * _scale(t), float(r[w]) * _scale(w)) for r in rows if r[w]]
    rows = _table(os.path.join(dir, names[1]), "time_us,event")
    if "begin_s" in rows[0]:
        return polls, [(float(r["begin_s"]), float(r["end_s"]), r.get("name") or float(r["power_w"])) for r in rows]
    span, begun = [], {}
    for r in rows:
        name, what = r["event"].rsplit("-", 1)
        at = float(r["time_us"]) * 1e-6
        if what == "begin":
            begun[name] = at
        elif name != "gap":
            span.append((begun[name], at, name))
    return polls, sorted(span)


def _ns(text: str) -> int:
    whole, _, part = text.rstrip("Z").partition(".")
    return int(datetime.fromisoformat(whole + "+00:00").timestamp()) * 10**9 + int((part + "0" * 9)[:9])


def _chips(m: Dict[str, int], kind: int) -> List[int]:
    """A marker's chips: guard, code (inverted for stop), tag in pairs, guard."""
    order, tap, state = {2: (4, 1, 9), 3: (5, 2, 19)}[m["code"]]
    code = []
    for _ in range(2**order - 1):
        code.append(state & 1 ^ (kind == 2))
        state = state >> 1 | ((state ^ state >> tap) & 1) << (order - 1)
    tag = [m["tag"] >> b & 1 for b in reversed(range(m["tag_bits"]))]
    return [0] * m["guard_chips"] + code + [x for b in tag for x in (b, 1 - b)] + [0] * m["guard_chips"]


class _Load:
    """Signals over time: one for each kind of work, or the meter's power and 1."""

    def __init__(self, span: List[Any]):
        kinds = sorted({s[2] for s in span}) if isinstance(span[0][2], str) else None
        self.at, self.v, end = [span[0][0] - 1], [], span[0][0]
        n = len(kinds) + 1 if kinds else 2
        row: Callable[[Any], List[float]] = lambda k: (
            [1.0 * (i == (kinds.index(k) + 1 if k else 0)) for i in range(n)] if kinds else [k or 0, 1.0])
        self.v.append(row(None))
        for (a, b, k), (then, _, _) in zip(span, span[1:] + [(math.inf, 0, 0)]):
            if a > end:
                self._put(end, row(None))
            self._put(a, row(k))
            end = min(b, then)
        self._put(end, row(None))
        self.sum = [[0.0] * n]
        for i in range(1, len(self.at)):
            d = self.at[i] - self.at[i - 1]
            self.sum.append([s + d * v for s, v in zip(self.sum[-1], self.v[i - 1])])

    def _put(self, at: float, row: List[float]) -> None:
        if at <= self.at[-1]:
            del self.at[-1], self.v[-1]
        self.at.append(at)
        self.v.append(row)

    def until(self, t: float) -> List[float]:
        p = max(0, bisect_right(self.at, t) - 1)
        return [s + (t - self.at[p]) * v for s, v in zip(self.sum[p], self.v[p])]

    def seen(self, boxcar: bool, c: float, times: List[float]) -> List[List[float]]:
        """Each signal as a sensor with the constant c shows it at ascending times."""
        if boxcar:
            c = max(c, 1e-6)
            return [[(b - a) / c for a, b in zip(self.until(t - c), self.until(t))] for t in times]
        c, y, p, out = max(c, 1e-6), self.v[0], 0, []
        for t in times:
            while p + 1 < len(self.at) and self.at[p + 1] <= t:
                e = math.exp(-(self.at[p + 1] - self.at[p]) / c) if p else 0
                y, p = [v + (s - v) * e for s, v in zip(y, self.v[p])], p + 1
            e = math.exp(-(t - self.at[p]) / c) if t > self.at[p] else 1
            out.append([v + (s - v) * e for s, v in zip(y, self.v[p])])
        return out


def _solve(rows: List[List[float]], y: List[float], w: List[float]) -> Tuple[List[float], List[float]]:
    """Weighted least squares: the coefficients and the residuals."""
    n, cols = len(rows[0]), list(zip(*rows))
    m = [[0.0] * (n + 1) for _ in range(n)]
    for i in range(n):
        by = list(map(mul, cols[i], w))
        for j in range(i, n):
            m[i][j] = m[j][i] = sum(map(mul, by, cols[j])) + 1e-9 * (i == j)
        m[i][n] = sum(map(mul, by, y))
    for i in range(n):
        p = max(range(i, n), key=lambda k: abs(m[k][i]))
        m[i], m[p] = m[p], m[i]
        for k in range(n):
            if k != i:
                f = m[k][i] / m[i][i]
                m[k] = [a - f * b for a, b in zip(m[k], m[i])]
    x = [m[i][n] / m[i][i] for i in range(n)]
    return x, [v - sum(map(mul, x, r)) for r, v in zip(rows, y)]


def _renewals(polls: List[Any]) -> Tuple[List[float], List[float], float, float]:
    """When the register was renewed, to what, its period, by a line, and the distance of polls."""
    near = sorted(b[0] - a[0] for a, b in zip(polls, polls[1:]))[len(polls) // 2]
    u = [((a[0] + b[0]) / 2, b[1]) for a, b in zip(polls, polls[1:]) if a[1] != b[1] and b[0] - a[0] < 8 * near]
    period = sorted(b[0] - a[0] for a, b in zip(u, u[1:]))[len(u) // 2 - 1]
    u = [x for i, x in enumerate(u) if i == 0 or x[0] - u[i - 1][0] > period / 2]
    t = [x[0] for x in u]
    for _ in range(3):
        n = [0]
        for a, b in zip(t, t[1:]):
            n.append(n[-1] + max(1, round((b - a) / period)))
        mn, mt = sum(n) / len(n), sum(t) / len(t)
        period = sum((i - mn) * (x - mt) for i, x in zip(n, t)) / sum((i - mn) ** 2 for i in n)
    at = [mt + (i - mn) * period for i in n]
    side = [sorted(x - y for x, y in list(zip(t, at))[max(0, i - 4):i + 5]) for i in range(len(t))]
    return [y + s[len(s) // 2] for y, s in zip(at, side)], [x[1] for x in u], period, near


def _cost(load: _Load, t: List[float], y: List[float], boxcar: bool, c: float, d: float) -> Tuple[float, List[float]]:
    """The negative logarithm of the likelihood, by the t-distribution of 4 degrees, and the levels."""
    rows, late = (load.seen(boxcar, c, [x - d - h for x in t]) for h in (0, 0.002))
    w = [1.0] * len(t)
    for _ in range(3):  # a renewal counts by its noise, and by its slope times what it may be late
        x, r = _solve(rows, y, w)
        k = [1 / (9 + (sum(map(mul, x, p)) - sum(map(mul, x, q))) ** 2) for p, q in zip(rows, late)]
        w = [5 * i / (4 + i * v * v) for i, v in zip(k, r)]
    return sum(2.5 * math.log1p(i * v * v / 4) - math.log(i) / 2 for i, v in zip(k, r)), x


def _fit(load: _Load, t: List[float], y: List[float], boxcar: bool, start: Any, step: float, most: float,
         least_step: float = 2e-5) -> Any:
    """The likeliest constant and delay, found step by step."""
    known: Dict[Any, Any] = {}  # after a step, three of the six neighbours were tried before it

    def cost(c: float, d: float) -> Any:
        at = (round(c * 1e9), round(d * 1e9))
        if at not in known:
            known[at] = _cost(load, t, y, boxcar, c, d)
        return known[at]

    best, (c, d) = cost(*start), start
    while step > least_step:
        trial = [(cost(a, b), a, b) for i, j in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, -1), (-1, 1))
                 for a, b in [(min(max(0, c + i * step), most), max(-0.008, d + j * step))]]
        least = min(trial, key=lambda v: float(v[0][0]))
        if least[0][0] < best[0]:
            best, c, d = least
        else:
            step /= 2
    return best[0], c, d, best[1]


def recompute(c: Any, dir: str) -> Tuple[List[Tuple[str, float, float, float, float]], float]:
    """Figures as (name, certified, U, found, its U), and how much likelier the found ones are (ln)."""
    s = c.sensor
    polls, span = _read(c, dir)
    t, y, period, poll = _renewals(polls)
    load, boxcar = _Load(span), s["model"] == "boxcar"
    metered = not isinstance(span[0][2], str)
    if metered:  # the meter's trace has to reach as far back as a window may
        kept = [i for i, a in enumerate(t) if load.at[1] + 10 * period < a < load.at[-1]]
        t, y = [t[i] for i in kept], [y[i] for i in kept]
    most = min(25 * period, (t[-1] - t[0]) / 3)
    starts = [(a, b) for a in (0.01, 0.03, 0.1, 0.5, 1.1) for b in (0.01, 0.04)]
    rough = min((_fit(load, t, y, boxcar, x, 0.01, most, 1e-3) for x in starts), key=lambda v: float(v[0]))
    best = _fit(load, t, y, boxcar, rough[1:3], 1e-3, most)
    parts = []
    for k in range(8):
        i = [j for j in range(len(t)) if j * 8 // len(t) != k]
        parts.append(_fit(load, [t[j] for j in i], [y[j] for j in i], boxcar, best[1:3], 0.004, most))
    spread: Callable[[Any], float] = lambda f: 2.365 * math.sqrt(7 / 8 * sum((f(p) - sum(map(f, parts)) / 8) ** 2 for p in parts))
    name, share = ("window_s", 0.5) if boxcar else ("tau_s", 1)
    figures: List[Tuple[str, Callable[[Any], Any]]] = [(name, lambda p: p[1]), ("lag_s", lambda p: p[2] + share * p[1] + period / 2)]
    figures += [("gain", lambda p: p[3][0]), ("offset_w", lambda p: p[3][1])] if metered else []
    out = [("period_s", s["period_s"], s["period_u_s"], period, 0.0)]
    for n, f in figures:
        u = s[n.replace("_", "_u_") if "_" in n else n + "_u"]
        late = 2 * poll if n.endswith("_s") else 0.0  # renewals and edges lie within a poll each
        out.append((n, s[n], u or 0.0, f(best), math.hypot(spread(f), late)))
    return out, _cost(load, t, y, boxcar, s[name], s["delay_s"])[0] - best[0]
