// Lighthouse over views of the page as they stand: what is not for everyone or not good practice. It
// looks at a page that has loaded, so that no verdict depends on how fast the machine is.
import assert from 'node:assert/strict';
import { pathToFileURL } from 'node:url';
import { need, setup, step, visitor } from './lib.mjs';

const { snapshot } = await import(pathToFileURL(need.resolve('lighthouse')));
const { default: puppeteer } = await import(pathToFileURL(need.resolve('puppeteer-core')));

const desktop = { formFactor: 'desktop', screenEmulation: { mobile: false, width: 1350, height: 940, deviceScaleFactor: 1, disabled: false } };
const phone = { formFactor: 'mobile' };

async function look(chromium, at, form) {
  const page = await chromium.newPage();
  page.setDefaultTimeout(60_000);
  await page.goto(setup.url + at);
  await page.waitForSelector('h1');
  const { lhr } = await snapshot(page, { flags: { logLevel: 'error', onlyCategories: ['accessibility', 'best-practices'], ...form } });
  await page.close();
  const { runtimeError, categories, audits } = lhr;
  assert.equal(runtimeError, undefined);
  const low = (category) => categories[category].auditRefs.filter((r) => r.weight > 0 && audits[r.id].score !== null && audits[r.id].score < 1)
    .map((r) => `${r.id}: ${JSON.stringify(audits[r.id].details?.items?.slice(0, 3) ?? '')}`.slice(0, 600));
  assert.deepEqual([...low('accessibility'), ...low('best-practices')], []);
  assert.deepEqual([categories.accessibility.score, categories['best-practices'].score], [1, 1]);
}

/** lighthouses looks at the views through the port of a browser. */
export async function lighthouses() {
  const chromium = await puppeteer.connect({ browserURL: `http://127.0.0.1:${setup.port}` });
  for (const [name, at, form] of [['tasks, telephone', '/#/tasks', phone], ['task', '/#/task/1', desktop]]) {
    await step(`Lighthouse: ${name}`, null, () => look(chromium, at, form));
  }
  await chromium.disconnect();
}

/**
 * still visits a view and fails if what was shown moves while the page is made. The sum of all shifts is at
 * least the cumulative layout shift, of which 0.1 counts as good.
 */
export async function still(browser, at) {
  const page = await visitor(browser);
  await page.addInitScript(() => {
    window.shifts = [];
    new PerformanceObserver((list) => {
      for (const e of list.getEntries()) if (!e.hadRecentInput) window.shifts.push({ value: e.value, of: e.sources.map((s) => s.node?.outerHTML?.slice(0, 200)) });
    }).observe({ type: 'layout-shift', buffered: true });
  });
  await page.goto(setup.url + at);
  await page.waitForSelector('h1');
  await page.locator('svg, canvas').first().waitFor();
  const shifts = await page.evaluate(() => window.shifts);
  assert.ok(shifts.reduce((sum, s) => sum + s.value, 0) < 0.1, `what was shown moved: ${JSON.stringify(shifts)}`);
  await page.context().close();
}
