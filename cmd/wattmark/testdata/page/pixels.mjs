// The plot read back pixel by pixel: every column of the screen within the data is filled once,
// the readings' line is there however far one zooms in, no peak is lost, and where samples were
// lost nothing is drawn. On screens of four resolutions, from the whole task to a few samples.
import assert from 'node:assert/strict';
import { api, main, rests, setup, step, visit, visitor } from './lib.mjs';

// The plot's own measures, in CSS pixels.
const gutter = 58, right = 10, top = 6, height = 300, room = 1.06;

/** bare takes away what is not data: grid, shades, texts, grounds. The readings' line gets a colour that nothing else has. */
const bare = (page) => page.evaluate(() => {
  const style = document.documentElement.style;
  for (const name of ['grid', 'marker', 'outside', 'gap', 'soft', 'panel']) style.setProperty(`--${name}`, 'transparent');
  style.setProperty('--reading-1', 'rgb(255 0 255)');
});

/** look changes the address and waits until the page draws the span that it names. */
async function look(page, id, from, to) {
  // The page listens to hashchange since it was opened: this listener is called after the page's own.
  await page.evaluate((hash) => new Promise((done) => {
    if (location.hash === hash) done();
    addEventListener('hashchange', done, { once: true });
    location.hash = hash;
  }), `#/task/${id}?from=${from}&to=${to}`);
  await rests(page);
}

/**
 * columns reads the panel back: of each column of the screen its place in CSS pixels, the middle opacity
 * just above the axis, where the areas are, the greatest one, the highest row that is inked, and whether the readings' line is in it.
 */
const columns = async (page) => JSON.parse(await page.evaluate(([top, height]) => {
  const c = document.querySelector('.plot canvas'), f = c.width / c.clientWidth;
  const copy = new OffscreenCanvas(c.width, c.height).getContext('2d', { willReadFrequently: true });
  copy.drawImage(c, 0, 0);
  const y0 = Math.round(top * f), rows = Math.round(height * f), data = copy.getImageData(0, y0, c.width, rows).data;
  return JSON.stringify(Array.from({ length: c.width }, (_, x) => { // as text: values go one by one
    const low = [];
    let most = 0, highest = rows, reading = false;
    for (let y = rows - 1, at = 4 * (y * c.width + x); y >= 0; y--, at -= 4 * c.width) {
      const r = data[at], g = data[at + 1], b = data[at + 2], a = data[at + 3];
      if (y < rows - 2 * f && y >= rows - 14 * f) low.push(a);
      most = Math.max(most, a);
      if (r > 200 && g < 60 && b > 200 && a > 200) reading = true;
      else if (a > 12 && !(r > 150 && g < 140 && b > 150)) highest = y;
    }
    low.sort((p, q) => p - q);
    return { x: (x + 0.5) / f, low: low[low.length >> 1], most, highest: highest / f, reading };
  }));
}, [top, height]));

const share = (part, all) => `${part.length} of ${all.length} columns: ${part.slice(0, 5).map((c) => c.x.toFixed(1))} …`;

/** spans goes from the whole task to a few samples, about a place in the window. */
function* spans(task) {
  const { from_s: begin, to_s: end } = task.window, extent = task.extent;
  yield [extent.from_s, extent.to_s];
  const shortest = (12 * task.setup.timebase.ticks_per_scan) / task.setup.timebase.tick_hz;
  for (let length = 0.9 * (end - begin); length > shortest; length /= 2.7) {
    const from = begin + 0.37 * (end - begin - length);
    yield [from, from + length];
  }
}

/**
 * watts returns the greatest power of the samples in a span without its edges, whose columns
 * are not looked at, and of those and the ones beside the span, to which the lines lead and which the axis therefore includes; and what the readings hold there.
 */
async function watts(id, from, to, period, method, edge) {
  const peak = async (room) => {
    const e = await api(`/v1/tasks/${id}/envelope`, { from_s: from - room, to_s: to + room, columns: 8192, rails: 'total' });
    return Math.max(...e.series[0].max_w.map(Number));
  };
  const r = method ? (await api(`/v1/tasks/${id}/readings`, { from_s: from, to_s: to, methods: method, max_readings: 20000 })).traces[0] : undefined;
  return { peak: await peak(-edge), beside: await peak(3 * period), reading: r ? Math.max(...r.value.map(Number)) : 0, from: r ? r.t_s[0] : to, until: r ? r.until_s : to };
}

async function wholeColumns(page, task) {
  const id = task.task.task_id, period = task.setup.timebase.ticks_per_scan / task.setup.timebase.tick_hz;
  for (const [from, to] of spans(task)) {
    await look(page, id, from, to);
    const w = await page.evaluate(() => document.querySelector('.plot').clientWidth) - gutter - right;
    const said = `task ${id}, ${from} to ${to} s`;
    const { peak, beside, reading, from: first, until } = await watts(id, from, to, period, task.nvml_method, (3 / w) * (to - from));
    const x = (t) => gutter + ((t - from) / (to - from)) * w;
    const all = (await columns(page)).filter((c) => c.x > gutter + 2 && c.x < gutter + w - 1);
    const holes = all.filter((c) => c.low < 130), twice = all.filter((c) => c.low > 175), bald = all.filter((c) => c.most < 190);
    assert.deepEqual([holes, twice, bald].map((l) => l.length), [0, 0, 0], `${said}: holes ${share(holes, all)}; filled twice ${share(twice, all)}; without a line ${share(bald, all)}`);
    const held = all.filter((c) => c.x > x(first) + 1 && c.x < x(until) - 1), unread = held.filter((c) => !c.reading);
    if (task.nvml_method) assert.ok(held.length > 0.9 * all.length && unread.length === 0, `${said}: no line of ${task.nvml_method} in ${share(unread, held)}`);
    // The band reaches up to the greatest sample in view or, at an edge, towards a greater one beside it,
    // on the axis that these make with the readings.
    const row = (w, most) => height - (height / room) * (w / Math.max(most, reading)), got = Math.min(...all.map((c) => c.highest));
    const dot = w * period > 6 * (to - from) ? 2.4 : 0; // the radius of single samples' dots, where they have room
    const least = row(beside, beside) - 2 - dot, most = row(peak, beside) + 2;
    assert.ok(got > least && got < most, `${said}: ${peak} W, ${beside} W with the samples beside them, lie at ${least} to ${most}, drawn is up to ${got}`);
  }
}

/** lost are the columns in which samples were lost: nothing is in them, and nothing but them is empty. */
async function gapsShow(page, task, gap) {
  const id = task.task.task_id, length = gap.to - gap.from;
  for (const times of [1.5, 6, 25]) {
    const from = Math.max(task.extent.from_s, gap.from - length * times / 3), to = Math.min(task.extent.to_s, from + length * times);
    await look(page, id, from, to);
    const w = await page.evaluate(() => document.querySelector('.plot').clientWidth) - gutter - right;
    const x = (t) => gutter + ((t - from) / (to - from)) * w;
    const all = (await columns(page)).filter((c) => c.x > gutter + 2 && c.x < gutter + w - 1);
    const empty = all.filter((c) => c.low === 0), within = all.filter((c) => c.x > x(gap.from) + 3 && c.x < x(gap.to) - 3);
    assert.ok(within.length > 10 && within.every((c) => c.low === 0), `task ${id}, ${from} to ${to} s: something is drawn where samples were lost`);
    assert.ok(empty.every((c) => c.x > x(gap.from) - 3 && c.x < x(gap.to) + 3), `task ${id}, ${from} to ${to} s: a hole where nothing was lost`);
  }
}

await main(async (browser) => {
  const tasks = await Promise.all(setup.dense.map((id) => api(`/v1/tasks/${id}`)));
  for (const deviceScaleFactor of [1, 1.25, 2, 3]) {
    const page = await visitor(browser, { viewport: { width: 1100, height: 900 }, deviceScaleFactor });
    for (const task of [...tasks, ...setup.gaps.map((g) => g.task)]) {
      const gap = setup.gaps.find((g) => g.task === task);
      await visit(page, `#/task/${gap ? task : task.task.task_id}`);
      await page.locator('.legend li').first().waitFor();
      await bare(page);
      await step(`${gap ? 'gap' : task.task.name} at ${deviceScaleFactor} pixels`, page, async () => (gap ? gapsShow(page, await api(`/v1/tasks/${task}`), gap) : wholeColumns(page, task)));
    }
    await page.context().close();
  }
});
