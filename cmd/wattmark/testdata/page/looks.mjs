// Every view in both themes and on a narrow screen, by the rules of axe-core; what people
// typed is text.
import assert from 'node:assert/strict';
import { main, setup, step, until, visit, visitor } from './lib.mjs';
import { accessible } from './axe.mjs';

const wrong = [];

/** tried is a step after which the others are tried, too; what failed is told at the end. */
async function tried(name, page, f) {
  try {
    await step(name, page, f);
  } catch {
    wrong.push(name);
  }
}

async function chosen(page) {
  const theme = page.locator('#theme');
  await page.emulateMedia({ colorScheme: 'light' });
  await theme.click();
  await theme.click();
  await visit(page, '#/tasks'); // a theme that was chosen stays, whatever the system's is
  await page.waitForFunction(() => document.querySelector('#theme').title === 'Theme: dark');
  assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), 'rgb(17, 23, 22)');
  await theme.click();
}

await main(async (browser) => {
  const page = await visitor(browser, { viewport: { width: 1300, height: 950 }, ignoreHTTPSErrors: true });
  for (const v of setup.views) {
    await tried(v.name, page, async () => {
      if (/^(https|file):/.test(v.at)) await page.goto(v.at);
      else await visit(page, v.at);
      await until(page, v.there);
      // What is folded away counts too: swings, spectrum, budgets, values.
      await page.evaluate(() => document.querySelectorAll('main details').forEach((d) => { d.open = true; }));
      await until(page, `!document.querySelector('main details [aria-busy]')`);
      await accessible(page, v.name, 360);
      assert.equal(await page.locator('main img, main script, [onerror]').count(), 0, 'a name became markup');
    });
  }
  await tried('the help', page, async () => {
    await visit(page, '#/tasks');
    await page.keyboard.press('?');
    await page.locator('dialog[open]').waitFor();
    await accessible(page, 'help', 360);
    await page.keyboard.press('Escape');
  });
  await tried('a theme that was chosen', page, () => chosen(page));
  assert.deepEqual(wrong, []);
});
