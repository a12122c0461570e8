// What the journeys share: the browser, a visitor whose every complaint counts, steps.
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

/** setup is what the Go test says: { url, chromium, modules, shots, out, run, … }. */
export const setup = JSON.parse(process.env.WATTMARK_PAGE);

/** need loads what make page-tools has installed, which is no part of the tree. */
export const need = createRequire(path.join(setup.modules, 'node_modules/'));
export const playwright = need('playwright-core');

const quiet = ['--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

/** launch starts Debian's Chromium; a browser of Playwright's own is never fetched. */
export const launch = (...more) => playwright.chromium.launch({ executablePath: setup.chromium, chromiumSandbox: false, args: [...quiet, ...more] });

const complaints = [];

/** expected tells of an answer that is an error by the test's own doing. */
const expected = (url) => (setup.missing ?? []).some((at) => url.startsWith(setup.url + at));

/** visitor is a tab with a profile of its own. What its browser says, and what it asks of elsewhere, fails the journey. */
export async function visitor(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 900 }, colorScheme: 'light', ...options });
  context.setDefaultTimeout(180_000); // only what hangs runs into it
  const page = await context.newPage();
  const hear = (what) => complaints.push(`${what} (at ${page.url()})`);
  page.on('console', (m) => { if (!expected(m.location().url)) hear(`console ${m.type()}: ${m.text()}`); });
  page.on('pageerror', (e) => hear(`exception: ${e.stack ?? e}`));
  page.on('requestfailed', (r) => { if (r.failure()?.errorText !== 'net::ERR_ABORTED') hear(`request failed: ${r.url()} ${r.failure()?.errorText}`); });
  page.on('response', (r) => { if (r.status() >= 400 && !expected(r.url())) hear(`${r.status()} of ${r.url()}`); });
  const ours = [setup.url, ...(setup.elsewhere ?? []), ...(setup.views ?? []).map((v) => v.at).filter((at) => /^(https|file):/.test(at))];
  context.on('request', (r) => { if (!ours.some((at) => r.url().startsWith(at)) && !/^(data:|about:blank)/.test(r.url())) hear(`request to elsewhere: ${r.url()}`); });
  return page;
}

/** uncomplained fails if any browser had something to say. */
export const uncomplained = () => assert.deepEqual(complaints, [], 'browsers complained');

let failed = 0;

/** step runs a part of a journey and says how it went; the picture of one that failed is kept. */
export async function step(name, page, f) {
  const began = performance.now();
  try {
    await f();
    console.log(`ok   ${name} (${Math.round(performance.now() - began)} ms)`);
  } catch (e) {
    failed++;
    console.log(`FAIL ${name}: ${e.stack ?? e}`);
    if (page) {
      console.log(`     at ${page.url()}, which says: ${await page.evaluate(() => document.body.innerText.slice(0, 1200)).catch(String)}`);
      await shot(page, `failed-${name}`).catch(() => {});
    }
    throw e;
  }
}

/** main runs a journey from its browser's start to its end. */
export async function main(f, ...flags) {
  const browser = await launch(...flags);
  try {
    await f(browser);
    await step('no complaints', null, async () => uncomplained());
  } catch (e) {
    if (failed === 0) console.log(e.stack ?? e);
    process.exitCode = 1;
  } finally {
    await browser.close();
  }
}

/** shot keeps a picture, where pictures are wanted. */
export async function shot(page, name, options = {}) {
  if (!setup.shots) return;
  mkdirSync(setup.shots, { recursive: true });
  writeFileSync(path.join(setup.shots, `${name}.png`), await page.screenshot({ animations: 'disabled', ...options }));
}

/** api asks the JSON API as any other client would. */
export async function api(at, params = {}) {
  const res = await fetch(`${setup.url}${at}?${new URLSearchParams(params)}`);
  const body = await res.json();
  assert.equal(res.status, 200, `${at}: ${JSON.stringify(body)}`);
  return body;
}

/** params are those behind # in the address. */
export const params = (page) => new URLSearchParams(new URL(page.url()).hash.split('?')[1] ?? '');

let visits = 0;

/** visit opens a view anew: another query makes it more than a change of what stands behind #, and leaves it in its process. */
export const visit = (page, view) => page.goto(`${setup.url}/?${++visits}${view}`);

/** until waits for an expression to be true. Its text cannot be handed to the page to wait by itself: the page's policy forbids eval. */
export async function until(page, expression) {
  const over = Date.now() + 180_000;
  while (!await page.evaluate(`(() => { try { return Boolean(${expression}) } catch { return false } })()`)) {
    if (Date.now() > over) throw new Error(`waited in vain for ${expression}`);
    await page.waitForTimeout(100);
  }
}

/** drawn waits until a plot shows something: enough of it is inked. */
export const drawn = (page) => page.waitForFunction(() => {
  const c = document.querySelector('.plot canvas');
  if (!c || !document.querySelector('.legend li, .between, output.now, .verdict')) return false;
  const copy = new OffscreenCanvas(c.width, c.height).getContext('2d', { willReadFrequently: true });
  copy.drawImage(c, 0, 0);
  const d = copy.getImageData(Math.round(c.width * 0.3), 0, Math.round(c.width * 0.68), Math.round(c.height * 0.7)).data;
  let n = 0;
  for (let i = 3; i < d.length; i += 4) n += d[i] > 150;
  return n > 200;
});

/** rests waits until what was last asked for is drawn on the screen, and the address says so. */
export async function rests(page) {
  await page.waitForFunction(() => document.querySelector('.plot') && !document.querySelector('.plot').hasAttribute('aria-busy'));
  // What the page has just handed over is painted with the next frame, which is over when the one behind it begins.
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done()))));
}

/** box is where the panels of the plot lie, in pixels of the window. */
export async function box(page) {
  const plot = page.locator('.plot');
  await plot.scrollIntoViewIfNeeded();
  const b = await plot.boundingBox();
  return { x: b.x + 58, y: b.y + 100, w: b.width - 68 };
}

/** plain makes a number of what the page writes with a thin space between thousands and a proper minus. */
export const plain = (text) => Number(text.replaceAll('\u202f', '').replaceAll('−', '-'));

/** wider lists what makes the page wider than its window. */
export const wider = (page) => page.evaluate(() => {
  const w = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= w) return [];
  return ['the page', ...[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > w + 1).slice(0, 5).map((e) => `${e.tagName}.${e.className}`)];
});

/** energyOf asks the API for what lies between the cursors of a page. */
export async function energyOf(page, id, begin = 0) {
  const [a, b] = ['a', 'b'].map((k) => Number(params(page).get(k)) + begin).sort((x, y) => x - y);
  return (await api(`/v1/tasks/${id}/energy`, { from_s: a, to_s: b })).energy;
}

/** sameJoules holds what is written between the cursors against the API's answer, bit by bit and as it reads. */
export async function sameJoules(page, id) {
  await page.locator('#between data').waitFor();
  await rests(page);
  await page.waitForFunction(() => !document.querySelector('#between').hasAttribute('aria-busy'));
  const want = await energyOf(page, id);
  const data = page.locator('#between data');
  assert.equal(Number(await data.getAttribute('value')), want.energy_j);
  const [, e, u, unit] = /^(\S+) ± (\S+) (.?)J$/.exec(await data.textContent());
  const factor = { k: 1e3, '': 1, m: 1e-3, µ: 1e-6 }[unit], last = 10 ** -(u.split('.')[1]?.length ?? 0);
  assert.ok(Math.abs(plain(e) * factor - want.energy_j) <= 0.5001 * last * factor, `${e} ${unit}J is written for ${want.energy_j} J`);
  assert.ok(Math.abs(plain(u) * factor - want.energy_u_j) <= 0.5001 * last * factor, `± ${u} ${unit}J is written for ${want.energy_u_j} J`);
}

/** firstPaint is when a page's first text was drawn, in ms: a busy machine draws it after the rows stand in the document. */
export const firstPaint = (page) => page.evaluate(() => new Promise((done) => {
  new PerformanceObserver((list) => {
    const [paint] = list.getEntriesByName('first-contentful-paint');
    if (paint) done(paint.startTime);
  }).observe({ type: 'paint', buffered: true });
}));
