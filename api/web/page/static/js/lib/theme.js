// Light and dark: the system's, or the one chosen. early.js sets a chosen one
// before the first paint.

const key = 'wattmark.theme';
const order = ['auto', 'light', 'dark'];
const system = matchMedia('(prefers-color-scheme: dark)');
const listeners = new Set();

function chosen() {
  return document.documentElement.dataset.theme ?? 'auto';
}

function choose(theme) {
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (theme === 'auto') localStorage.removeItem(key);
    else localStorage.setItem(key, theme);
  } catch { /* it lasts as long as the page */ }
  for (const f of listeners) f();
}

/** onTheme calls f when the colours changed; it returns what ends that. */
export function onTheme(f) {
  listeners.add(f);
  return () => listeners.delete(f);
}

/** colour is a colour of the style sheets, by its variable. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** palette returns the colours of plots as they are now. */
export function palette() {
  const s = getComputedStyle(document.documentElement);
  const c = (name) => s.getPropertyValue(name).trim();
  return {
    ink: c('--ink'), soft: c('--soft'), grid: c('--grid'), ground: c('--panel'), accent: c('--accent'),
    marker: c('--marker'), outside: c('--outside'), gap: c('--gap'), a: c('--cursor-a'), b: c('--cursor-b'), readings: Array.from({ length: 4 }, (_, i) => c(`--reading-${i + 1}`)),
    total: c('--total'), series: Array.from({ length: 8 }, (_, i) => c(`--series-${i + 1}`)),
  };
}

/** lightPalette returns the colours of the light theme, whatever is shown: of figures, which are for paper. */
export function lightPalette() {
  const { theme } = document.documentElement.dataset;
  document.documentElement.dataset.theme = 'light';
  const look = palette(); // nothing is painted before the theme is back
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  return look;
}

/** themeButton makes a button switch between the system's theme, light and dark. */
export function themeButton(button) {
  const show = () => {
    const t = chosen();
    button.textContent = { auto: '◐', light: '☀', dark: '☾' }[t];
    button.setAttribute('aria-label', `Theme: ${t}`);
    button.title = `Theme: ${t}`;
  };
  button.addEventListener('click', () => {
    choose(order[(order.indexOf(chosen()) + 1) % order.length]);
    show();
  });
  system.addEventListener('change', () => listeners.forEach((f) => f()));
  show();
}
