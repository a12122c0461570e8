// Runs before the first paint, so that a chosen theme does not flash up as the
// other one. It is the only script that is no module.
try {
  const chosen = localStorage.getItem('wattmark.theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
} catch { /* storage is forbidden: the system's theme it is */ }
