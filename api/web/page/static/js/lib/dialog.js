// Questions that must be answered before something is done.
import { el } from './dom.js';

/** sure asks whether something is meant; it resolves to true when label is pressed. */
export function sure(title, text, label) {
  return new Promise((done) => {
    const yes = el('button', { type: 'button', class: 'primary', on: { click: () => dialog.close('yes') } }, label);
    const dialog = el('dialog', { 'aria-labelledby': 'sure-title', on: { close: () => { dialog.remove(); done(dialog.returnValue === 'yes'); } } },
      el('h2', { id: 'sure-title' }, title), el('p', {}, text),
      el('div', { class: 'row' }, yes, el('button', { type: 'button', on: { click: () => dialog.close() } }, 'Cancel')));
    document.body.append(dialog);
    dialog.showModal();
  });
}
