// What a view must be for everyone: axe-core's rules, nothing wider than the window.
import assert from 'node:assert/strict';
import { need, shot, wider } from './lib.mjs';

const { source } = need('axe-core');
const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

/** accessible checks a view as it stands, in both themes; narrow is a width to look at it with, too. */
export async function accessible(page, name, narrow = 0) {
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    // But for its colours a view is the same in both.
    await clean(page, `${name}, ${colorScheme}`, colorScheme === 'light' ? { type: 'tag', values: tags } : { type: 'rule', values: ['color-contrast'] });
    await shot(page, `${name}-${colorScheme}`, { fullPage: true });
  }
  assert.deepEqual(await wider(page), [], `${name} is wider than its window`);
  if (!narrow) return;
  const { width, height } = page.viewportSize();
  await page.setViewportSize({ width: narrow, height });
  assert.deepEqual(await wider(page), [], `${name} is wider than ${narrow} pixels`);
  await clean(page, `${name}, ${narrow} pixels`, { type: 'rule', values: ['target-size', 'scrollable-region-focusable'] });
  await shot(page, `${name}-narrow`, { fullPage: true });
  await page.setViewportSize({ width, height });
}

async function clean(page, name, runOnly) {
  // The page's policy would keep a script off that was put into it; this is the debugger's way in.
  if (!await page.evaluate(() => 'axe' in globalThis)) await page.evaluate(source);
  const r = await page.evaluate((runOnly) => globalThis.axe.run(document, { runOnly, resultTypes: ['violations'] }), runOnly);
  const found = r.violations.map((v) => `${v.id} (${v.tags.filter((t) => /^wcag\d|best/.test(t))}): ${v.help}: ${v.nodes.slice(0, 4).map((n) => `${n.html.slice(0, 140)} ${n.failureSummary}`).join(' | ')}`);
  assert.ok(r.passes.length >= (runOnly.type === 'tag' ? 10 : 1) || runOnly.values[0] === 'target-size', `${name}: only ${r.passes.length} rules had something to look at`);
  assert.deepEqual(found, [], `${name} is not for everyone`);
}
