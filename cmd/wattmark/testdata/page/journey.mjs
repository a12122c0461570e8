// Somebody finds a task by its name, zooms down to a microsecond, puts two cursors,
// reads the joules, compares two tasks, and follows a capture live.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { api, box, drawn, energyOf, main, params, plain, rests, sameJoules, setup, shot, step, visitor, wider } from './lib.mjs';
import { accessible } from './axe.mjs';
import { phones } from './phone.mjs';
import { keysAlone } from './keys.mjs';
import { lighthouses } from './lighthouse.mjs';

const span = (page) => Number(params(page).get('to')) - Number(params(page).get('from'));
const rows = (page, n) => page.waitForFunction((n) => document.querySelectorAll('tbody tr').length === n, n);

async function finds(page) {
  await page.goto(setup.url);
  await rows(page, setup.tasks);
  await page.keyboard.press('/');
  await page.keyboard.type('m v1');
  await rows(page, 1);
  assert.match(await page.locator('.figures').innerText(), /Tasks\s+1\b/);
  await page.locator('tbody a').click();
  await drawn(page);
  assert.equal(await page.title(), 'gemm v1 · 1 · wattmark');
  await rests(page);
  await page.mouse.move(600, 450);
  await shot(page, 'task', { fullPage: true });
}

/** judges reads the verdicts of the list, and asks for those of one. */
async function judges(page) {
  await page.locator('.brand').click();
  await page.waitForFunction((n) => [...document.querySelectorAll('.verdict-of')].filter((e) => e.textContent === '✓ good').length === n, setup.tasks);
  await page.getByLabel('Verdict').selectOption('void');
  await page.getByText('No task is like that.').waitFor();
  await page.getByLabel('Verdict').selectOption('good');
  await rows(page, setup.tasks);
  assert.equal(params(page).get('verdict'), 'good');
  await page.getByLabel('Verdict').selectOption('');
}

async function zooms(page) {
  const { x, y, w } = await box(page);
  const all = span(page);
  await page.mouse.move(x + w / 2, y);
  while (!(span(page) < 1.0001e-6)) {
    const was = page.url();
    for (let i = 0; i < 5; i++) await page.mouse.wheel(0, -400);
    await page.waitForFunction((was) => location.href !== was, was);
    await rests(page);
  }
  assert.ok(all > 0.3, `${all} s were shown first`);
  await drawn(page);
  await shot(page, 'microsecond');
  await page.mouse.dblclick(x + w / 2, y);
  await page.waitForFunction((all) => { const p = new URLSearchParams(location.hash.split('?')[1]); return p.get('to') - p.get('from') >= all; }, all);
  await rests(page);
  const whole = span(page);
  await page.mouse.move(x + w / 4, y);
  await page.mouse.down();
  await page.mouse.move(x + w / 2, y);
  await page.mouse.move(x + (3 * w) / 4, y);
  await page.mouse.up();
  await page.waitForFunction((whole) => { const p = new URLSearchParams(location.hash.split('?')[1]); return p.get('to') - p.get('from') < 0.9 * whole; }, whole);
  assert.ok(Math.abs(span(page) / whole - 0.5) < 0.02, `a drag over half of ${whole} s shows ${span(page)} s`);
}

/** asked is the last question for columns, of its message: doubles 2 and 3 are the span, number 4 how many columns. */
const asked = (page) => {
  const q = { task_id: 1 };
  page.on('request', (r) => {
    if (!r.url().endsWith('/ReadEnvelope')) return;
    for (let b = r.postDataBuffer(), i = 0; i < b.length;) {
      const field = b[i] >> 3, kind = b[i++] & 7;
      if (kind === 1) q[field === 2 ? 'from_s' : 'to_s'] = b.readDoubleLE((i += 8) - 8);
      else if (kind === 2) i += b[i] + 1;
      else for (let m = 1, v = 0; ; m *= 128) {
        v += (b[i] & 127) * m;
        if (field === 4) q.columns = v;
        if (b[i++] < 128) break;
      }
    }
  });
  return q;
};

/** wattsAt is what the API's columns have at a time, as the page asked for them last. */
function wattsAt(answer, t) {
  const total = answer.series.find((s) => s.rail === 'total');
  const width = (answer.to_s - answer.from_s) / answer.columns;
  const near = total.column.map((c, i) => [Math.abs(answer.from_s + (c + 0.5) * width - t), i]).sort((p, q) => p[0] - q[0])[0][1];
  return Number(total.mean_w[near]);
}

async function measures(page, question) {
  const { x, y, w } = await box(page);
  await page.mouse.click(x + 0.2 * w, y);
  await page.waitForFunction(() => location.hash.includes('a='));
  await page.mouse.click(x + 0.7 * w, y);
  await page.waitForFunction(() => location.hash.includes('b='));
  await sameJoules(page, 1);
  const said = await page.locator('.cursor-a').locator('xpath=..').locator('.soft').textContent();
  const want = wattsAt(await api('/v1/tasks/1/envelope', { from_s: question.from_s, to_s: question.to_s, columns: question.columns }), Number(params(page).get('a')));
  assert.ok(Math.abs(plain(said.split(' W')[0]) - want) <= 0.0006 * Math.abs(want), `cursor A says ${said}, the API ${want} W`);
  const { rails } = await api('/v1/tasks/1');
  for (const r of rails) { // each one's own budget, whose squares are its U
    const all = r.budget.reduce((sum, line) => sum + line.u_j ** 2, 0);
    assert.ok(Math.abs(2 * Math.sqrt(all) - r.energy.energy_u_j) < 0.02 * r.energy.energy_u_j, `${r.name}: ±${r.energy.energy_u_j} J of a budget of ${all} J²`);
    await page.locator(`details[aria-label="Budget of ${r.name}"] summary`).click();
    assert.equal(await page.locator(`details[aria-label="Budget of ${r.name}"] tbody tr`).count(), r.budget.length);
  }
  await shot(page, 'cursors', { fullPage: true });
  // The address is a link: another browser shows the same.
  const there = await visitor(page.context().browser());
  await there.goto(page.url());
  await sameJoules(there, 1);
  assert.equal(await there.locator('#between').textContent(), await page.locator('#between').textContent());
  await there.context().close();
}

async function compares(page) {
  await page.locator('.brand').click();
  await page.getByRole('checkbox', { name: /^Compare task 1,/ }).check();
  await page.getByRole('checkbox', { name: /^Compare task 2,/ }).check();
  await page.locator('#compare').click();
  await drawn(page);
  assert.match(params(page).get('ids'), /^1[,;]2$/);
  const { x, y, w } = await box(page);
  await page.mouse.click(x + 0.2 * w, y);
  await page.mouse.click(x + 0.5 * w, y);
  await page.waitForFunction(() => document.querySelectorAll('tbody data').length === 4 && location.hash.includes('b='));
  for (const [i, id] of [1, 2].entries()) {
    const answer = await api(`/v1/tasks/${id}`);
    const values = await page.locator('[aria-label=Figures] tbody tr').nth(i).locator('data').evaluateAll((list) => list.map((d) => Number(d.value)));
    assert.equal(values[0], answer.task.energy.energy_j);
    const want = (await energyOf(page, id, answer.window.from_s)).energy_j;
    assert.ok(Math.abs(values[1] - want) <= 1e-6 * want, `task ${id} has ${values[1]} J between the cursors, ${want} J by the API`);
  }
  await page.mouse.move(x + 0.3 * w, y);
  await page.locator('#readout', { hasText: /gemm v1: \d+\.\d W.* in memory, .*gemm v2: \d+\.\d W.* in half, / }).waitFor();
  await shot(page, 'compare', { fullPage: true });
}

const now = (page) => page.evaluate(() => Number.parseFloat(document.querySelector('output.now').textContent));
const bench = (page, state) => page.waitForFunction((s) => document.querySelector('h1 .badge')?.textContent === s, state);

async function follows(page) {
  await page.getByRole('link', { name: 'live' }).click();
  await bench(page, 'free');
  await page.waitForFunction(() => /^\d+\.\d\d W$/.test(document.querySelector('output.now').textContent));
  const idle = await now(page);
  const work = spawn(setup.run[0], setup.run.slice(1), { stdio: ['ignore', 'ignore', 'pipe'] });
  let said = '';
  work.stderr.on('data', (d) => { said += d; });
  const ended = new Promise((done, fail) => work.on('error', fail).on('close', done));
  await bench(page, 'measuring');
  await page.waitForFunction((w) => Number.parseFloat(document.querySelector('output.now').textContent) > w, 3 * idle);
  await page.locator('[aria-label=Who] a', { hasText: /^gemm live \(task \d+\)$/ }).waitFor();
  await drawn(page);
  await accessible(page, 'live-held');
  assert.equal(await ended, 0, said);
  await bench(page, 'free');
  await page.locator('[aria-label=Who] a').last().click();
  await page.locator('h1', { hasText: 'gemm live' }).waitFor();
  const id = /#\/task\/(\d+)/.exec(page.url())[1];
  const { task } = await api(`/v1/tasks/${id}`);
  assert.equal(Number(await page.locator('#energy').getAttribute('value')), task.energy.energy_j);
}

/** paints is when the first text stood there, of visits by browsers that have kept nothing. */
async function paints(browser) {
  const times = [];
  for (let i = 0; i < 3; i++) {
    const page = await visitor(browser);
    await page.goto(setup.url);
    await rows(page, setup.tasks + 1);
    times.push(await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime));
    await page.context().close();
  }
  return times;
}

await main(async (browser) => {
  const page = await visitor(browser), question = asked(page);
  await step('finds', page, () => finds(page));
  await step('zooms', page, () => zooms(page));
  await step('measures', page, () => measures(page, question));
  await step('judges', page, () => judges(page));
  await step('compares', page, () => compares(page));
  await step('follows', page, () => follows(page));
  assert.deepEqual(await wider(page), []);
  await page.context().close();
  await keysAlone(browser);
  await phones(browser);
  const first = await paints(browser);
  console.log(`first paint after ${first.map(Math.round)} ms`);
  if (setup.figures) writeFileSync(setup.figures, JSON.stringify({ first_paint_ms: first }));
  if (setup.port) await lighthouses();
}, ...(setup.port ? [`--remote-debugging-port=${setup.port}`] : []));
