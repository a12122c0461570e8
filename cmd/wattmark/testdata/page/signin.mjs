// Who signs in and who does not, what is shown of hostile names, and what is left of a
// session that is over.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { main, setup, step, visit, visitor } from './lib.mjs';

const path = (page) => new URL(page.url()).pathname;
const rows = (page) => page.locator('tbody tr').first();

async function enter(page, token) {
  await page.locator('#token').fill(token);
  await page.locator('button').click();
}

/** signInPage waits until the page that asks for a token is all that is shown. */
async function signInPage(page) {
  await page.locator('#token').waitFor();
  assert.equal(path(page), '/signin');
  assert.equal(await page.locator('main table, .plot').count(), 0);
  assert.equal(await page.locator('input:visible').count(), 1, 'nothing but the token is asked for');
}

async function strangers(page) {
  await page.goto(`${setup.url}/?token=x#/task/1`);
  for (const [token, why] of Object.entries(setup.tokens.wrong)) {
    await enter(page, token);
    await page.waitForFunction((why) => document.getElementById('said').textContent.includes(why), why);
    await signInPage(page);
    await page.reload();
  }
  await enter(page, setup.tokens.good);
  await page.locator('.legend li').first().waitFor();
  assert.match(page.url(), /\/#\/task\/1/, 'the view that was asked for first');
  // A viewer is offered no changes.
  await page.getByRole('button', { name: /^(Pin|Add tag|Add note)$/ }).waitFor({ state: 'detached' });
}

async function hostile(page) {
  const views = {
    '#/tasks': 'onerror=', '#/task/1': 'onerror=', '#/compare/%3Cimg%20src=x%20onerror=window.ran=1%3E': 'Which tasks', '#/task/%3Cimg%20src=x%20onerror=window.ran=1%3E': 'is no task',
    '#/<script>window.ran=1</script>': 'no view', '#javascript:window.ran=1': 'no view', '#/reports/1': 'Report', '#/live/<b>': '<b>',
  };
  for (const [view, says] of Object.entries(views)) {
    await visit(page, view);
    await page.locator('main').getByText(says).first().waitFor();
    assert.equal(await page.evaluate(() => window.ran), undefined, view);
    assert.equal(await page.locator('main img, main script, a[href^="javascript:"]').count(), 0, view);
  }
}

/** elsewhere is another site, which shows ours in frames. */
async function elsewhere() {
  const evil = createServer((_, answer) => {
    answer.setHeader('Content-Type', 'text/html');
    answer.end(`<iframe src="${setup.url}/"></iframe><iframe src="${setup.url}/signin"></iframe>`);
  });
  await new Promise((done) => evil.listen(0, '127.0.0.1', done));
  setup.elsewhere = [`http://localhost:${evil.address().port}/`];
  return evil;
}

/** framed shows the page within another site's, and asks from there: nothing comes. */
async function framed(context) {
  const page = await context.newPage();
  await page.goto(setup.elsewhere[0]);
  for (const frame of page.frames().slice(1)) assert.equal(await frame.locator('#token, #main').count(), 0);
  const got = await page.evaluate((url) => fetch(`${url}/v1/tasks`, { credentials: 'include' }).then(() => 'read', () => 'refused'), setup.url);
  assert.equal(got, 'refused');
  await page.close();
}

/** over signs out in another tab: the next question of this one leads to the sign-in page, and no way leads back. */
async function over(page) {
  await visit(page, '#/task/1');
  await page.locator('.legend li').first().waitFor();
  const other = await page.context().newPage();
  await other.goto(`${setup.url}/signin`);
  assert.equal(await other.evaluate(() => fetch('/v1/session', { method: 'DELETE' }).then((r) => r.status)), 204);
  await page.evaluate(() => { location.hash = '#/tasks'; });
  await signInPage(page);
  await page.goBack();
  await signInPage(page);
  await page.goForward();
  await signInPage(page);
  await enter(page, setup.tokens.good);
  await rows(page).waitFor();
}

/** leaves signs out by the page's own button. */
async function leaves(page) {
  await visit(page, '#/task/1');
  await page.getByRole('button', { name: 'Sign out' }).waitFor();
  assert.match(await page.locator('#who').textContent(), /^\S.* \((viewer|measurer|operator|admin)\)Sign out$/);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await signInPage(page);
  await page.goBack();
  await signInPage(page);
}

await main(async (browser) => {
  const evil = await elsewhere();
  evil.unref(); // a step that fails must end the journey
  const page = await visitor(browser, { ignoreHTTPSErrors: true });
  await step('wrong tokens', page, () => strangers(page));
  await step('hostile names and addresses', page, () => hostile(page));
  await step('other sites', null, () => framed(page.context()));
  await step('a session that is over', page, () => over(page));
  await step('signing out', page, () => leaves(page));
  evil.close();
});
