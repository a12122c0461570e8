// Who is signed in, and the way out.
import { get, givenUp, send } from './api.js';
import { el, fill } from './dom.js';

const roles = ['viewer', 'measurer', 'operator', 'admin'];
let told;
const role = new Promise((done) => { told = done; });

/** may resolves to whether the caller has at least a role; where nobody is asked who they are, all may. */
export const may = async (least) => {
  const r = await role;
  return r === '' || roles.indexOf(r) >= roles.indexOf(least);
};

/** who shows the caller's name and role where callers are asked who they are. */
export async function who(root) {
  try {
    const { name, role } = await get('/v1/session');
    told(name ? role : '');
    if (!name) return;
    const out = el('button', { type: 'button', class: 'plain', on: { click: async () => {
      await send('DELETE', '/v1/session', {});
      location.replace('/signin');
    } } }, 'Sign out');
    // The browser may keep the page for Back: it must ask anew who looks at it.
    addEventListener('pageshow', (e) => e.persisted && location.reload());
    fill(root, el('span', { class: 'soft', title: `Signed in as ${name}, ${role}` }, `${name} (${role})`), out);
    root.hidden = false;
  } catch (e) {
    told('viewer');
    if (!givenUp(e)) root.hidden = true; // the views say what is wrong
  }
}
