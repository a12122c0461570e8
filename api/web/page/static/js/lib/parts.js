// Parts that several views have: notices, badges, tables.
import { el } from './dom.js';
import { word } from './format.js';
import { words } from './words.js';

/** notice says what is wrong, where the eye is. */
export const notice = (text, bad = false) => el('div', { class: bad ? 'notice bad' : 'notice', role: bad ? 'alert' : 'status' }, text);

/** badge is a state or a verdict in its colour and in words. */
export function badge(name, front) {
  const text = word(name, front);
  return !text || text === 'unspecified' ? null : el('span', { class: `badge ${text}`, title: words[text] }, text);
}

export const stateBadge = (t) => badge(t.state, 'TASK_STATE_');

// A sign each, for those who do not see the colours.
const signs = { good: '✓', usable: '~', doubtful: '?', void: '✕' };

export function verdictBadge(v) {
  const b = badge(v, 'VERDICT_');
  const sign = b && signs[b.textContent];
  if (sign) b.prepend(el('span', { 'aria-hidden': 'true' }, `${sign} `));
  return b;
}

/**
 * table makes a table: columns = [{ title, num?, cell(row), class?, sort? }]. Its caption is
 * read out with it.
 */
export function table(caption, columns, rows) {
  return el('div', { class: 'wide', tabindex: 0, role: 'region', 'aria-label': caption }, el('table', {},
    el('caption', {}, caption),
    el('thead', {}, el('tr', {}, columns.map((c) => el('th', { scope: 'col', class: c.num ? 'num' : c.class, 'aria-sort': c.sort }, c.title)))),
    el('tbody', {}, rows.map((r) => el('tr', {}, columns.map((c, i) => el(i === 0 ? 'th' : 'td',
      { class: c.num ? 'num' : c.class, scope: i === 0 ? 'row' : null }, c.cell(r))))))));
}

/** figures is a list of terms and values: [[term, value, main?]]. */
export const figures = (list) => el('dl', { class: 'figures' }, list.filter(Boolean).map(([term, value, main]) => el('div', { class: main ? 'main' : null },
  el('dt', { title: words[term.replace(/ \(k = 2\)$/, '').replace('Energy ± U', 'E ± U')] }, term), el('dd', {}, value))));

/** buttons is a group of which one is pressed: [[value, text]]. */
export function buttons(label, choices, now, choose) {
  const group = el('div', { class: 'group', role: 'group', 'aria-label': label });
  const show = (value) => {
    for (const b of group.children) b.setAttribute('aria-pressed', String(b.dataset.value === value));
  };
  for (const [value, text] of choices) {
    group.append(el('button', { type: 'button', 'data-value': value, on: { click: () => { show(value); choose(value); } } }, text));
  }
  show(now);
  return group;
}
