// make lint runs it with the tools of make page-tools, which lie outside of the tree.
import { createRequire } from 'node:module';
import { join } from 'node:path';

const tools = createRequire(join(process.env.PAGE_TOOLS ?? '', 'node_modules/'));
const { browser, node } = tools('globals');

export default [
  tools('@eslint/js').configs.recommended,
  { languageOptions: { globals: browser }, rules: { 'no-var': 'error', 'prefer-const': ['error', { destructuring: 'all' }], eqeqeq: 'error' } },
  { files: ['*.js'], languageOptions: { globals: node } },
];
