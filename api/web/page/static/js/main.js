// The page's begin: the head, the theme, the help, and the view that the address names.
import { el, fill, announce, typing } from './lib/dom.js';
import { Router, link } from './lib/router.js';
import { themeButton } from './lib/theme.js';
import { help } from './lib/help.js';
import { who } from './lib/who.js';
import { views } from './views.js';

const nav = document.getElementById('nav');
let open = null;

function shown(view, route) {
  open = view ?? null;
  const title = view ? (view.titleOf?.(route) ?? view.title) : 'not found';
  document.title = `${title} · wattmark`;
  fill(nav, el('ul', {}, views.filter((v) => v.nav).map((v) => el('li', {},
    el('a', { href: link(v.name), 'aria-current': v === view ? 'page' : null }, v.title)))));
  announce(title);
}

// The link past the head must not become the address: that says what is shown.
document.querySelector('.skip').addEventListener('click', (e) => {
  e.preventDefault();
  document.getElementById('main').focus();
});
who(document.getElementById('who'));
themeButton(document.getElementById('theme'));
document.getElementById('help').addEventListener('click', () => help(open));
addEventListener('keydown', (e) => {
  if (e.key === '?' && !typing(e)) {
    e.preventDefault();
    help(open);
  }
});
new Router(document.getElementById('main'), views, shown).start();
