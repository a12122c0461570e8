// Elements, made without markup: names of tasks and users are whatever somebody
// typed, and must stay text.

const properties = new Set(['value', 'checked', 'disabled', 'open', 'hidden', 'selected', 'indeterminate']);

/**
 * el makes an element. props are attributes; `on` holds listeners by event. Children
 * are nodes, texts, or lists of them; null, undefined and false are left out.
 */
export function el(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, v] of Object.entries(props)) {
    if (v === undefined || v === null || v === false) continue;
    if (name === 'on') {
      for (const [type, f] of Object.entries(v)) e.addEventListener(type, f);
    } else if (properties.has(name)) {
      e[name] = v;
    } else {
      e.setAttribute(name, v === true ? '' : String(v));
    }
  }
  e.append(...kept(children));
  return e;
}

/** fill replaces what an element holds. */
export function fill(e, ...children) {
  e.replaceChildren(...kept(children));
  return e;
}

/** keepFocus gives the focus back to what stands in its place after root was filled anew. */
export function keepFocus(root, change) {
  const had = root.contains(document.activeElement) ? document.activeElement : null;
  const like = (e) => e.tagName + (e.getAttribute('aria-label') ?? e.getAttribute('href') ?? e.textContent.replace(/ [▲▼]$/, ''));
  change();
  if (had && !had.isConnected) [...root.querySelectorAll(had.tagName)].find((e) => like(e) === like(had))?.focus({ preventScroll: true });
}

function kept(children) {
  return children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false);
}

/** labelled is a form field under its label. */
export function labelled(text, field, props = {}) {
  return el('label', { class: 'field', ...props }, el('span', {}, text), field);
}

/** typing tells whether what keys write goes elsewhere: into a field, a list or a dialog. */
export const typing = (e) => e.target instanceof Element && Boolean(e.target.closest('input, select, textarea, dialog'));

/** announce tells those who listen to the page rather than see it. */
export function announce(text) {
  document.getElementById('announce').textContent = text;
}

/**
 * debounced calls f once it was not called again for so many milliseconds; pending()
 * tells whether it is going to.
 */
export function debounced(f, ms) {
  let timer;
  const call = (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      timer = undefined;
      f(...args);
    }, ms);
  };
  call.cancel = () => {
    clearTimeout(timer);
    timer = undefined;
  };
  call.pending = () => timer !== undefined;
  return call;
}
