// Lighthouse over views of the page: what it scores, and what it finds. Its times are
// told and not judged: they are the machine's.
import assert from 'node:assert/strict';
import { pathToFileURL } from 'node:url';
import { need, setup, step } from './lib.mjs';

const { default: lighthouse } = await import(pathToFileURL(need.resolve('lighthouse')));

const desktop = { formFactor: 'desktop', screenEmulation: { mobile: false, width: 1350, height: 940, deviceScaleFactor: 1, disabled: false } };
const phone = { formFactor: 'mobile' };
/**
 * record loads a view and looks at it. Where Lighthouse could not record the load, it
 * says nothing of the page, and asks to be run again: twice it is.
 */
async function record(at, form, again = 2) {
  const { lhr } = await lighthouse(setup.url + at, {
    port: setup.port, output: 'json', logLevel: 'error', onlyCategories: ['performance', 'accessibility', 'best-practices'],
    throttlingMethod: 'provided', // as this machine and its loopback are
    // The list follows the database by a call that does not end, so the network is never
    // idle; without a score for times there is less to wait for.
    maxWaitForLoad: setup.all ? 15000 : 4000,
    ...form,
  });
  return again > 0 && lhr.runtimeError?.code === 'NO_NAVSTART' ? record(at, form, again - 1) : lhr;
}

async function look(name, at, form) {
  const { runtimeError, categories, audits } = await record(at, form);
  assert.equal(runtimeError, undefined);
  const number = (id) => Math.round(1000 * audits[id].numericValue) / 1000;
  const score = Object.fromEntries(Object.values(categories).map((c) => [c.id, c.score]));
  console.log(JSON.stringify({ view: name, ...score, first_paint_ms: number('first-contentful-paint'), shift: number('cumulative-layout-shift'), blocked_ms: number('total-blocking-time') }));
  const low = (category) => categories[category].auditRefs.filter((r) => r.weight > 0 && audits[r.id].score !== null && audits[r.id].score < 1)
    .map((r) => `${r.id}: ${JSON.stringify(audits[r.id].details?.items?.slice(0, 3) ?? '')}`.slice(0, 600));
  assert.deepEqual([...low('accessibility'), ...low('best-practices')], []);
  assert.deepEqual([score.accessibility, score['best-practices']], [1, 1]);
  // A shift of 0.1 is what counts as good; it is no matter of time.
  assert.ok(number('cumulative-layout-shift') < 0.1, `what was shown moved: ${JSON.stringify(audits['layout-shifts']?.details?.items?.slice(0, 3))?.slice(0, 900)}`);
}

/** lighthouses looks at one view, or at all, through the port of a browser. */
export async function lighthouses() {
  for (const [name, at, form] of [['tasks', '/#/tasks', desktop], ['task', '/#/task/1', desktop], ['tasks, telephone', '/#/tasks', phone], ['task, telephone', '/#/task/1', phone], ['compare', '/#/compare?ids=1,2', desktop], ['live', '/#/live', desktop], ['sensors', '/#/sensors', desktop], ['reports', '/#/reports', desktop]]) {
    if (!setup.all && name !== 'task') continue;
    await step(`Lighthouse: ${name}`, null, () => look(name, at, form));
  }
}
