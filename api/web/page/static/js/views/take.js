// What one takes away from a task's plot: the figure, the samples, the address.
import { el, announce } from '../lib/dom.js';
import { energy, many, serials, time } from '../lib/format.js';
import { pngFigure, save, svgFigure } from '../plot/figure.js';
import { instant } from '../plot/scale.js';

/** copied puts a text on the clipboard, and says so. */
export const copied = (text, what = 'Copied') => navigator.clipboard.writeText(text).then(() => announce(what), () => announce('The browser does not copy'));

/** copyButton copies a text, where the browser lets it. */
export const copyButton = (text, label = 'Copy') => (navigator.clipboard ? el('button', { type: 'button', class: 'plain', title: `Copy “${text}”`, on: { click: () => copied(text) } }, label) : null);

/** captionOf says below a figure what it shows of a task. between is the answer of ReadEnergy between the cursors, if any. */
export function captionOf(answer, { view, cursors, single, columns, mode }, between) {
  const t = answer.task, i = answer.instrument ?? {}, span = view.to - view.from;
  const drawn = single ? 'each sample' : `mean of each of ${columns} columns${mode === 'stacked' ? '' : ', and its least and greatest sample'}`;
  return [
    `Power of ${t.name ? `“${t.name}”` : `task ${t.task_id}`}${t.gpu ? ` on ${t.gpu}` : ''}, measured by ${[i.model || i.kind || 'a meter', serials(i.serial)].filter(Boolean).join(' ')} on ${time(t.launched)}; ${drawn}.`,
    t.energy ? `Over the window: ${energy(t.energy)} (k = 2).` : '',
    between && Number.isFinite(cursors.a) && Number.isFinite(cursors.b) ? `Between A (${instant(cursors.a, span)}) and B (${instant(cursors.b, span)}): ${energy(between.energy)} (k = 2).` : '',
    answer.setup?.missing?.length ? `Not measured: ${answer.setup.missing.join(', ')}.` : '',
    num(t.gaps) ? `${many(t.gaps, 'gap')}.` : '',
    `Task ${t.task_id}${answer.result ? `, result ${answer.result}` : ''}, wattmark.`,
  ].filter(Boolean).join(' ');
}

const num = (v) => Number(v ?? 0);

const formats = [['csv', 'CSV'], ['parquet', 'Parquet'], ['perfetto', 'Perfetto']];

/** takeAway is the row of what can be taken away. of = { id, span(), figure(), link() }: from and to of the samples wanted, what svgFigure draws, the address. */
export function takeAway(of) {
  const button = (text, label, f) => el('button', { type: 'button', 'aria-label': label, title: label, on: { click: f } }, text);
  const row = el('div', { class: 'row middle take', role: 'group', 'aria-label': 'Take away' },
    el('span', { class: 'soft' }, 'Figure'),
    button('SVG', 'Save the figure as SVG', () => save(`task-${of.id}.svg`, svgFigure(of.figure()), 'image/svg+xml')),
    button('PNG', 'Save the figure as PNG', async () => save(`task-${of.id}.png`, await pngFigure(of.figure()))));
  if (of.span) {
    const said = el('span', { class: 'soft', id: 'span' });
    const links = formats.map(([format, text]) => el('a', { class: 'button', download: '', href: `/v1/tasks/${of.id}/export?format=${format}`, title: `Save the samples as ${text}` }, text));
    row.append(said, ...links);
    row.moved = () => {
      const { from, to, what } = of.span();
      said.textContent = what;
      links.forEach((a, i) => { a.href = `/v1/tasks/${of.id}/export?format=${formats[i][0]}&from_s=${from}&to_s=${to}`; });
    };
  }
  if (navigator.clipboard) row.append(button('Copy link', 'Copy link to what is shown', () => copied(of.link(), 'Address copied')));
  return row;
}
