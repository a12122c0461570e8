// What the words of the page mean: as tooltips where they stand, and in the help.

/** words are the terms with their meaning. */
export const words = {
  'E ± U': 'Energy and its expanded uncertainty: with the coverage factor k = 2 the true value lies within it in about 95 of 100 cases.',
  'k': 'Coverage factor: U is k times the standard uncertainty u.',
  'good': 'Nothing was noticed that E ± U does not hold.',
  'usable': 'Something is worth knowing; E ± U is likely to hold all the same.',
  'doubtful': 'E may be off by more than U: look at the reasons before relying on it.',
  'void': 'E says nothing: measure again.',
  'systematic': 'An error that is the same in all samples, such as a channel’s gain: it does not average out, and is common to tasks of one meter.',
  'NVML instant': 'NVML’s field power.draw.instant: the newest reading of the GPU’s own sensor.',
  'NVML average': 'NVML’s field power.draw.average: a mean over about a second on most cards.',
  'NVML usage': 'nvmlDeviceGetPowerUsage, which is one or the other by GPU and driver.',
  'MTSM': 'A second thread reads nvmlDeviceGetPowerUsage every 0.5 ms between launch and end of the work: its mean times the time.',
  'SMA': 'nvmlDeviceGetPowerUsage every 15 ms, not synchronised to the work: the sum of its readings times 15 ms.',
  'PAPI': 'Readings through PAPI’s NVML component.',
  'EDP': 'Energy times time: less is better where both count; ED²P weighs time twice, and does not change with the voltage.',
  'window': 'The span of device time between the markers: the work, over which the task’s energy is.',
};
