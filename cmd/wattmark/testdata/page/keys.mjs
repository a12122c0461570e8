// The same by keys alone: no mouse, and nothing is clicked by the script either.
import assert from 'node:assert/strict';
import { drawn, params, rests, sameJoules, setup, shot, step, visitor } from './lib.mjs';

/** tabTo presses Tab until a selector's element has the focus; each stop on the way must be seen to have it. */
async function tabTo(page, selector, key = 'Tab') {
  for (let i = 0; i < 60; i++) {
    await page.keyboard.press(key);
    const [there, seen] = await page.evaluate((s) => {
      const e = document.activeElement, look = getComputedStyle(e);
      return [e.matches(s), e === document.body || look.outlineStyle !== 'none' || e.id === 'main'];
    }, selector);
    assert.ok(seen, `the focus is not to be seen on ${await page.evaluate(() => document.activeElement.outerHTML.slice(0, 120))}`);
    if (there) return;
  }
  assert.fail(`60 times ${key} do not lead to ${selector}`);
}

/** keysOf presses keys of a page, one after the other. */
const keysOf = (page) => (...list) => list.reduce((before, k) => before.then(() => page.keyboard.press(k)), Promise.resolve());

export async function keysAlone(browser) {
  const page = await visitor(browser, { reducedMotion: 'reduce' });
  await list(page, keysOf(page));
  await plot(page, keysOf(page));
  await page.context().close();
}

async function list(page, key) {
  await step('keys: past the head', page, async () => {
    await page.goto(setup.url);
    await page.locator('tbody tr').first().waitFor();
    await tabTo(page, '.skip');
    await key('Enter');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
  });
  await step('keys: theme', page, async () => {
    await tabTo(page, '#theme', 'Shift+Tab');
    const was = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    await key('Enter', 'Enter');
    await page.waitForFunction((was) => getComputedStyle(document.body).backgroundColor !== was, was);
  });
  await step('keys: find', page, async () => {
    await key('/');
    await page.keyboard.type('gemm v1');
    await page.waitForFunction(() => document.querySelectorAll('tbody tr').length === 1);
    await tabTo(page, 'tbody a');
    await key('Enter');
    await drawn(page);
  });
}

async function plot(page, key) {
  await step('keys: zoom, cursors, joules', page, async () => {
    await rests(page);
    await tabTo(page, '.plot');
    await key('+', 'ArrowRight', 'a', 'Control+ArrowRight', 'Control+ArrowRight', 'Control+ArrowRight', 'b');
    await page.waitForFunction(() => location.hash.includes('a=') && location.hash.includes('b='));
    await sameJoules(page, 1);
    assert.match(await page.locator('#announce').textContent(), /^\d+\.\d+ s: \d+(\.\d+)? W/); // what is read out at the point
    assert.equal(await page.locator('#between').getAttribute('aria-live'), 'polite');
    await shot(page, 'keys');
    const a = params(page).get('a');
    await key('c', 'w', '0', 'x');
    await page.waitForFunction(() => !location.hash.includes('a='));
    assert.ok(a);
  });
  await step('keys: help', page, async () => {
    await key('?');
    await page.locator('dialog[open]').waitFor();
    await key('Escape');
    await page.locator('dialog').waitFor({ state: 'detached' });
    assert.ok(await page.evaluate(() => document.activeElement.matches('.plot')), 'the focus does not come back from the help');
  });
  await step('keys: compare', page, async () => {
    await tabTo(page, '.brand', 'Shift+Tab');
    await key('Enter');
    await page.waitForFunction(() => document.querySelectorAll('tbody tr').length > 1);
    await tabTo(page, 'input[aria-label^="Compare task 2,"]');
    await key(' ');
    await tabTo(page, 'input[aria-label^="Compare task 1,"]');
    await key(' ');
    await tabTo(page, '#compare', 'Shift+Tab');
    await key('Enter');
    await drawn(page);
    assert.match(params(page).get('ids'), /^2[,;]1$/); // the page puts groups' semicolon when it has read the tasks
  });
}
