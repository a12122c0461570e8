"""An observer for Kernel Tuner (van Werkhoven, FGCS 90, 2019), by the external meter.

    from wattmark.kernel_tuner import WattmarkObserver
    tune_kernel(..., observers=[WattmarkObserver()], metrics={"GFLOP/W": ...})

Each configuration is measured once, in Kernel Tuner's continuous benchmark: the kernel again and
again for continuous_duration, as one task that has the configuration as its name. A single launch
is far shorter than the markers around it. Results: wattmark_power and wattmark_power_u in W,
wattmark_energy and wattmark_energy_u in J, the mean power times the kernel's time, as Kernel
Tuner's own observers have it (its pauses between launches count as power), and wattmark_task.
Uncertainties are expanded, k = 2, of the power; that of the kernel's time is Kernel Tuner's.
"""

from __future__ import annotations

from typing import Any, Optional

from ._measure import Measurement, measure

try:
    from kernel_tuner.observers import BenchmarkObserver, ContinuousObserver  # type: ignore[import]
except ImportError as e:
    raise ImportError("kernel_tuner is not installed: pip install kernel_tuner") from e


class WattmarkObserver(BenchmarkObserver):  # type: ignore[misc]
    """Measures the power and energy of each configuration. options are those of wattmark.measure()."""

    def __init__(self, continuous_duration: float = 1.0, **options: Any):
        self.options, self.name = options, "kernel"
        self.continuous_observer = _Continuous("wattmark", [], self, continuous_duration)

    def register_configuration(self, params: dict[str, Any]) -> None:
        self.name = ",".join("%s=%s" % p for p in params.items())[:200] or "kernel"

    def get_results(self) -> dict[str, Any]:
        return {}


class _Continuous(ContinuousObserver):  # type: ignore[misc]
    measurement: Optional[Measurement] = None

    def before_start(self) -> None:
        self.measurement = measure(self.parent.name, **self.parent.options).__enter__()

    def after_start(self) -> None:
        pass

    def during(self) -> None:
        pass

    def after_finish(self) -> None:
        assert self.measurement is not None
        self.measurement.__exit__(None, None, None)

    def get_results(self) -> dict[str, Any]:
        m, seconds = self.measurement, self.results["time"] / 1e3
        if m is None or not m.seconds or m.energy is None or m.uncertainty is None:
            return {}
        power, u = m.energy / m.seconds, m.uncertainty / m.seconds
        return {"wattmark_power": power, "wattmark_power_u": u, "wattmark_energy": power * seconds,
                "wattmark_energy_u": u * seconds, "wattmark_task": m.task}
