// How fast the page is, on a machine that does nothing else: figures to print, no verdict.
import { writeFileSync } from 'node:fs';
import { drawn, firstPaint, main, rests, setup, step, visit, visitor } from './lib.mjs';

const percentile = (v, p) => { const s = [...v].sort((a, b) => a - b); return s[Math.max(Math.ceil(p * s.length) - 1, 0)]; };
const told = (what, v) => console.log(`${what}: p50 ${percentile(v, 0.5).toFixed(1)}, p95 ${percentile(v, 0.95).toFixed(1)} of ${v.length}`);

/** zooms are times from a change of the span to its picture, in ms; spans of a quarter to a millionth. */
async function zooms(page, offset) {
  await visit(page, '#/task/1');
  await rests(page);
  const { from, to } = await page.evaluate(() => { const p = new URLSearchParams(location.hash.split('?')[1]); return { from: Number(p.get('from')), to: Number(p.get('to') ?? 0) }; });
  const whole = to > from ? to - from : 4;
  const n = () => page.evaluate(() => performance.getEntriesByName('wattmark.zoom').length);
  const before = await n();
  for (let i = 0; i < 40; i++) {
    const span = whole * 0.25 * 0.8 ** i, at = from + whole * (0.3 + offset + 0.004 * i), was = await n();
    await page.evaluate(([a, b]) => { location.hash = `#/task/1?from=${a.toFixed(7)}&to=${b.toFixed(7)}`; }, [at, at + span]);
    await page.waitForFunction((was) => performance.getEntriesByName('wattmark.zoom').length > was, was);
    await rests(page);
  }
  return page.evaluate((k) => performance.getEntriesByName('wattmark.zoom').slice(k).map((e) => e.duration), before);
}

/** frames are their lengths in ms while the plot of many launches is dragged to and fro. */
async function frames(page) {
  await visit(page, '#/task/1');
  await drawn(page);
  await rests(page);
  const b = await page.locator('.plot').boundingBox(), x = b.x + b.width / 2, y = b.y + 150;
  await page.mouse.move(x, y);
  for (let i = 0; i < 4; i++) await page.mouse.wheel(0, -400);
  await rests(page);
  await page.evaluate(() => {
    window.lengths = [];
    let last = performance.now();
    const each = (t) => { window.lengths.push(t - last); last = t; window.going = requestAnimationFrame(each); };
    window.going = requestAnimationFrame(each);
  });
  await page.keyboard.down('Shift');
  await page.mouse.down();
  for (let i = 0; i < 400; i++) {
    await page.mouse.move(x + 200 * Math.sin(i / 20), y);
    await page.waitForTimeout(8);
  }
  await page.mouse.up();
  await page.keyboard.up('Shift');
  return page.evaluate(() => { cancelAnimationFrame(window.going); return window.lengths.slice(2); });
}

/** steps are the wall times at which the number on the page crossed a level, ms since 1970. */
async function steps(page, level, seconds) {
  await visit(page, '#/live');
  await page.waitForFunction(() => /^\d+\.\d\d W$/.test(document.querySelector('output.now')?.textContent));
  return page.evaluate(([level, seconds]) => new Promise((done) => {
    const seen = [];
    let high = null;
    const end = performance.now() + 1000 * seconds;
    const each = () => {
      const now = parseFloat(document.querySelector('output.now').textContent) > level;
      if (high !== null && now !== high) seen.push(performance.timeOrigin + performance.now());
      high = now;
      if (performance.now() < end) requestAnimationFrame(each); else done(seen);
    };
    each();
  }), [level, seconds]);
}

await main(async (browser) => {
  const first = [];
  for (let i = 0; i < 10; i++) {
    const page = await visitor(browser);
    await page.goto(setup.url);
    await page.locator('tbody tr').first().waitFor();
    first.push(await firstPaint(page));
    await page.context().close();
  }
  told('first paint, ms', first);
  const page = await visitor(browser);
  const cdp = await page.context().newCDPSession(page);
  await step('zooms', page, async () => told('zoom on loopback, ms', await zooms(page, 0)));
  await cdp.send('Network.enable');
  const line = (latency, rate) => cdp.send('Network.emulateNetworkConditions', { offline: false, latency, downloadThroughput: rate, uploadThroughput: rate });
  await line(40, 20e6 / 8);
  await step('zooms over a line', page, async () => told('zoom at 20 Mbit/s and 40 ms, ms', await zooms(page, 0.2)));
  await line(0, -1);
  await step('frames', page, async () => told('frame while panning, ms', await frames(page)));
  await step('live', page, async () => writeFileSync(setup.figures, JSON.stringify(await steps(page, 100, 60))));
  const heap = [];
  for (let i = 0; i <= setup.tasks; i++) {
    if (i > 0) await page.waitForTimeout(60_000);
    await cdp.send('HeapProfiler.collectGarbage');
    heap.push((await cdp.send('Runtime.getHeapUsage')).usedSize / 1e6);
  }
  console.log(`heap of the live page, MB, by minutes: ${heap.map((v) => v.toFixed(2)).join(' ')}`);
});
