// Somebody finds a task by its name, zooms down to a microsecond, puts two cursors,
// reads the joules, compares two tasks, and follows a capture live.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { api, box, drawn, energyOf, firstPaint, main, params, plain, rests, sameJoules, setup, shot, step, visitor, wider } from './lib.mjs';
import { accessible } from './axe.mjs';
import { phones } from './phone.mjs';
import { keysAlone } from './keys.mjs';
import { lighthouses, still } from './lighthouse.mjs';

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
  await page.waitForFunction((n) => [...document.querySelectorAll('.verdict-of')].filter((e) => e.textContent === '✓ good').length === n, setup.tasks - 1);
  await page.getByLabel('Verdict').selectOption('void');
  await page.getByText('No task is like that.').waitFor();
  await page.getByLabel('Verdict').selectOption('good');
  await rows(page, setup.tasks - 1);
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
  const work = spawn(setup.run[0], setup.run.slice(1), { stdio: ['pipe', 'ignore', 'pipe'] });
  let said = '';
  work.stderr.on('data', (d) => { said += d; });
  const ended = new Promise((done, fail) => work.on('error', fail).on('close', done));
  await bench(page, 'measuring');
  await page.waitForFunction((w) => Number.parseFloat(document.querySelector('output.now').textContent) > w, 3 * idle);
  await page.locator('[aria-label=Who] a', { hasText: /^gemm live \(task \d+\)$/ }).waitFor();
  await drawn(page);
  await accessible(page, 'live-held');
  work.stdin.end();
  const code = await ended;
  assert.ok(code === 0 || code === 3, said); // 3: a starved simulation's markers are not found
  await bench(page, 'free');
  await page.locator('[aria-label=Who] a').last().click();
  await page.locator('h1', { hasText: 'gemm live' }).waitFor();
  const id = /#\/task\/(\d+)/.exec(page.url())[1];
  const { task } = await api(`/v1/tasks/${id}`);
  if (code === 0) assert.equal(Number(await page.locator('#energy').getAttribute('value')), task.energy.energy_j);
}

/** doubts finds out from the list why the run that failed is doubtful: one press, and the reason is in sight. */
async function doubts(page) {
  await page.locator('.brand').click();
  await page.getByRole('link', { name: '? doubtful: reasons' }).click();
  await page.locator('.notice #reasons', { hasText: 'work failed' }).waitFor();
  assert.ok(await page.locator('#reasons').evaluate((e) => e.getBoundingClientRect().bottom < innerHeight), 'the reasons are out of sight');
}

/** better tells which of two programs is, of repeats: search, one tick, Compare; the answer stands above all. */
async function better(page) {
  await page.locator('.brand').click();
  await page.getByRole('link', { name: 'step a' }).first().waitFor();
  await page.keyboard.press('/');
  await page.keyboard.type('step');
  await rows(page, 4);
  await page.getByText('Picked: 1, 2; 2 of them not below').waitFor();
  await page.getByRole('button', { name: 'Pick none' }).click();
  await page.getByRole('checkbox', { name: 'Pick all 4 tasks below' }).check();
  await page.getByRole('button', { name: 'Compare 4 tasks' }).click();
  const said = page.locator('.said');
  await said.getByText(/^B over A, by 2 runs of A and 2 of B: energy 0\.7/).waitFor();
  assert.match(await said.innerText(), /A: step a \(2 runs\) · B: step b \(2 runs\)/); // the older ones are A
  assert.ok(await said.evaluate((e) => e.getBoundingClientRect().bottom < innerHeight / 2), 'the answer is not the first thing that is seen');
  await accessible(page, 'compare-groups-held', 390);
}

/** pictures takes a figure of the window away. */
async function pictures(page) {
  await page.goto(`${setup.url}/#/task/1`);
  await drawn(page);
  await page.getByRole('button', { name: 'Window', exact: true }).click();
  await rests(page);
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Save the figure as SVG' }).click()]);
  const svg = readFileSync(await file.path(), 'utf8'), { task } = await api('/v1/tasks/1');
  for (const text of ['Power in W', 'Device time', 'Kernels:', 'total', task.name]) assert.ok(svg.includes(text), `the figure lacks “${text}”`);
  await page.getByLabel('kernels, ranges').uncheck();
  const [plain] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Save the figure as SVG' }).click()]);
  assert.ok(!readFileSync(await plain.path(), 'utf8').includes('Kernels:'), 'the tracks stay in the figure');
  assert.equal(params(page).get('tracks'), '0');
}

/** swings reads how the power varies: what the API says, and a slope leads to its place. */
async function swings(page) {
  await page.goto(`${setup.url}/#/task/1`);
  await drawn(page);
  const panel = page.locator('details[aria-label=Swings]');
  await panel.locator('summary').click();
  const { swings: want } = await api('/v1/tasks/1/swings'), steepest = want.scales[0].steepest_rise;
  await panel.getByRole('button', { name: /W\/s at/ }).first().click();
  await page.waitForFunction(() => location.hash.includes('a=') && location.hash.includes('b='));
  const [a, b] = ['a', 'b'].map((k) => Number(params(page).get(k)));
  assert.ok(a < steepest.t_s && steepest.t_s < b && b - a < 0.2, `${a} to ${b} s for a slope at ${steepest.t_s} s`);
  assert.equal(plain((await panel.locator('dd').first().innerText()).split(' ')[0]), Number(want.mean_w.toPrecision(4)));
}

/** records keeps what a free bench draws: two presses and the link, and nothing is doubtful of it. */
async function records(page) {
  await page.getByRole('link', { name: 'live' }).click();
  await bench(page, 'free');
  await page.getByRole('button', { name: 'Record', exact: true }).click();
  const stop = page.getByRole('button', { name: 'Stop recording' });
  await stop.waitFor();
  await page.locator('[aria-label=Who]').getByText('Records task').waitFor();
  await accessible(page, 'recording', 390);
  await stop.click();
  await page.getByText('Recorded: task').getByRole('link').click();
  await page.locator('h1', { hasText: 'recording' }).waitFor();
  await page.getByRole('button', { name: '✓ good: to the reasons' }).waitFor();
}

/** paints is when the first text stood there, of visits by browsers that have kept nothing. */
async function paints(browser) {
  const times = [];
  for (let i = 0; i < 3; i++) {
    const page = await visitor(browser);
    await page.goto(setup.url);
    await rows(page, setup.tasks + 2);
    times.push(await firstPaint(page));
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
  await step('doubts', page, () => doubts(page));
  await step('better', page, () => better(page));
  await step('pictures', page, () => pictures(page));
  await step('swings', page, () => swings(page));
  await step('follows', page, () => follows(page));
  await step('records', page, () => records(page));
  assert.deepEqual(await wider(page), []);
  await page.context().close();
  await keysAlone(browser);
  await phones(browser);
  const first = await paints(browser);
  console.log(`first paint after ${first.map(Math.round)} ms`);
  if (setup.figures) writeFileSync(setup.figures, JSON.stringify({ first_paint_ms: first }));
  await step('stands still', null, () => still(browser, '/#/task/1'));
  if (setup.port) await lighthouses();
}, ...(setup.port ? [`--remote-debugging-port=${setup.port}`] : []));
