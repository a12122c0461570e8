// A telephone: fingers, a narrow window, the pixels of such a screen.
import assert from 'node:assert/strict';
import { box, drawn, playwright, rests, sameJoules, setup, shot, step, visitor, wider } from './lib.mjs';

const kinds = [['Pixel 7', 'light'], ['iPhone SE', 'dark']]; // 412 and 320 pixels wide

export async function phones(browser) {
  for (const [name, colorScheme] of kinds) {
    // Their user agents would tell of other browsers than this is.
    const { userAgent, defaultBrowserType, ...device } = playwright.devices[name];
    const page = await visitor(browser, { ...device, colorScheme });
    await step(`${name}: find`, page, async () => {
      await page.goto(setup.url);
      await page.locator('input[type=search]').first().tap();
      await page.keyboard.type('gemm v1');
      await page.waitForFunction(() => document.querySelectorAll('tbody tr').length === 1);
      assert.deepEqual(await wider(page), []);
      await shot(page, `phone-tasks-${colorScheme}`);
      await page.locator('tbody a').tap();
      await drawn(page);
      await rests(page);
    });
    await step(`${name}: cursors, joules`, page, async () => {
      const { x, y, w } = await box(page);
      await page.touchscreen.tap(x + 0.25 * w, y);
      await page.waitForFunction(() => location.hash.includes('a='));
      await page.touchscreen.tap(x + 0.75 * w, y);
      await sameJoules(page, 1);
      await page.getByRole('button', { name: 'Zoom in' }).tap();
      await rests(page);
      assert.deepEqual(await wider(page), []);
      await shot(page, `phone-task-${colorScheme}`, { fullPage: true });
    });
    await step(`${name}: every view`, page, async () => {
      for (const nav of ['tasks', 'totals', 'compare', 'live', 'sensors', 'reports']) {
        await page.locator('nav').getByRole('link', { name: nav }).tap();
        await page.waitForFunction((n) => document.querySelector('nav [aria-current]')?.textContent === n, nav);
        assert.deepEqual(await wider(page), [], nav);
      }
    });
    await page.context().close();
  }
}
