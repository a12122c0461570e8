// The help: what keys do, here and everywhere.
import { el } from './dom.js';
import { words } from './words.js';

const everywhere = [['?', 'this help'], ['Tab', 'to the next control'], ['Esc', 'close the help']];

/** help opens a dialog that lists the keys of a view; null for none. */
export function help(view) {
  const rows = [...(view?.keys ?? []), ...everywhere].map(([keys, what]) => el('tr', {},
    el('th', { scope: 'row' }, keys.split(' ').flatMap((k, i) => [i ? ' ' : '', k === 'or' ? 'or' : el('kbd', {}, k)])), el('td', {}, what)));
  const close = el('button', { type: 'button', on: { click: () => dialog.close() } }, 'Close');
  const dialog = el('dialog', { 'aria-labelledby': 'help-title', on: { close: () => dialog.remove() } },
    el('h2', { id: 'help-title' }, 'Keys'),
    el('table', { class: 'keys' }, el('tbody', {}, rows)),
    el('details', {}, el('summary', {}, 'Words'), el('dl', { class: 'terms' }, Object.entries(words).map(([w, what]) => [el('dt', {}, w), el('dd', {}, what)]))),
    el('p', { class: 'soft' }, 'Everything here is asked from the JSON API of this host; ', el('a', { href: '/openapi.json' }, '/openapi.json'), ' describes it.'),
    close);
  document.body.append(dialog);
  dialog.showModal();
  close.focus();
}
