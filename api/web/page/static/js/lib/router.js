// What is shown stands behind # in the address: #/task/42?from=1.25&to=3.5. So every
// state is a link, and the server knows one page only.

/** parse reads an address's part behind #. */
export function parse(hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const [name, ...rest] = path.split('/');
  let arg = rest.join('/');
  try {
    arg = decodeURIComponent(arg);
  } catch { /* not escaped as it should be: taken as it stands */ }
  return { name: name || 'tasks', arg, params: new URLSearchParams(query) };
}

/** link writes an address. params with empty values are left out. */
export function link(name, arg = '', params = {}) {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(params)) {
    if (v !== undefined && v !== null && v !== '' && v !== false) q.set(k, v);
  }
  const text = q.toString().replaceAll('%2C', ',').replaceAll('%3A', ':').replaceAll('%3B', ';');
  return `#/${name}${arg === '' ? '' : `/${encodeURIComponent(arg)}`}${text ? `?${text}` : ''}`;
}

/** Router shows the view that the address names. */
export class Router {
  /** views are as views.js lists them; shown is told of each one that is opened. */
  constructor(root, views, shown) {
    this.root = root;
    this.views = views;
    this.shown = shown;
    this.session = null; // of the view that is open: { update?, close? }
    this.view = null;
    this.at = '';
    this.stepped = -Infinity; // when, in ms
  }

  start() {
    addEventListener('hashchange', () => this.show());
    this.show();
  }

  /**
   * keep writes the state of the open view into the address. With step it makes a step in the browser's
   * history; those that follow each other within 1.5 s are one.
   */
  keep(hash, step = false) {
    // When somebody has just gone elsewhere – back, a link – the view that is open does
    // not know yet: its state must not take the place of that address.
    if (hash === location.hash || location.hash !== this.at) return;
    const now = performance.now();
    if (step && now - this.stepped > 1500) history.pushState(null, '', hash);
    else history.replaceState(null, '', hash);
    if (step) this.stepped = now;
    this.at = location.hash; // as the browser escapes it
  }

  show() {
    if (this.view && location.hash === this.at) return;
    this.at = location.hash;
    const route = parse(location.hash);
    const view = this.views.find((v) => v.name === route.name);
    if (view && view === this.view && this.session?.update?.(route)) return;
    this.session?.close?.();
    this.session = null;
    this.view = view ?? null;
    this.root.replaceChildren();
    this.shown(view, route);
    scrollTo(0, 0);
    if (view) this.session = view.open(this.root, route, this) ?? {};
    else {
      const h = document.createElement('h1');
      h.textContent = `There is no view called “${route.name}”.`;
      this.root.append(h);
    }
  }
}
