// The benches live: what their rails draw now, who holds them, who waits.
import { ApiError, get, givenUp, stream } from '../lib/api.js';
import { announce, el, fill, typing } from '../lib/dom.js';
import { grouped, num, none } from '../lib/format.js';
import { buttons, notice } from '../lib/parts.js';
import { link, parse } from '../lib/router.js';
import { about, ago, beat, benchBadge, heldBy, holder, kept, keptOn, nameOf, stateOf, troubles } from './live_parts.js';
import { Recording } from './recording.js';
import { Rails } from './live_rails.js';
import { Trace } from './live_trace.js';

export const live = {
  name: 'live', title: 'live', nav: true,
  titleOf: (route) => (route.arg ? `live: ${route.arg}` : 'live'),
  keys: [['p', 'holds the picture, and lets it go on']],
  open: (root, route, router) => (route.arg ? new Bench(root, route, router) : new Benches(root)),
};

const spans = [['1', '1 s'], ['10', '10 s'], ['30', '30 s'], ['60', '60 s'], ['600', '10 min'], ['3600', '1 h']];

/** every: how often a picture is asked for. An overview changes slowly. */
const every = '0.05s', everyOfAll = '0.5s';

/**
 * follow calls take(news) for a watch that goes on for ever: what breaks is begun
 * again, and ended while nobody can see the page.
 */
function follow(path, params, take, broken) {
  let running, timer, pause = 500, ended = false;
  const begin = async () => {
    clearTimeout(timer);
    running = new AbortController();
    try {
      for await (const news of stream(path, params(), running.signal)) {
        pause = 500;
        broken(null);
        take(news);
      }
      throw new ApiError('The host ended the watch.', 0);
    } catch (e) {
      if (givenUp(e) || ended) return;
      broken(e);
      if (e.status === 404) return;
      timer = setTimeout(begin, pause);
      pause = Math.min(2 * pause, 5000);
    }
  };
  const stop = () => {
    clearTimeout(timer);
    running?.abort();
  };
  const seen = () => (document.hidden ? stop() : (stop(), begin()));
  document.addEventListener('visibilitychange', seen);
  if (!document.hidden) begin();
  return {
    again: () => { stop(); begin(); },
    close: () => { ended = true; stop(); document.removeEventListener('visibilitychange', seen); },
  };
}

/**
 * refill makes anew what an element holds where that rests on something else than
 * before: what is read out is not read out again, and a link keeps the focus.
 */
function refill(e, rests, make) {
  const key = JSON.stringify(rests);
  if (e.restsOn === key) return;
  e.restsOn = key;
  fill(e, make());
}

/** Benches is all benches in short; a single one is shown at once. */
class Benches {
  constructor(root) {
    this.cards = new Map();
    this.list = el('div', { class: 'benches' });
    this.trouble = el('div');
    root.append(el('h1', {}, 'Benches'), this.trouble, this.list);
    this.timer = setInterval(() => beat(this.list), 1000);
    this.begin();
  }

  close() {
    clearInterval(this.timer);
    this.closed = true;
    this.watch?.close();
  }

  async begin() {
    try {
      const { benches } = await get('/v1/benches');
      // A link that was followed meanwhile is in the address before this view is closed.
      if (this.closed || parse(location.hash).name !== live.name) return;
      if (benches.length === 1) {
        location.replace(link('live', benches[0].bench));
        return;
      }
      if (benches.length === 0) fill(this.list, el('p', { class: 'empty' }, 'This host was told of no monitor: wattmark host --monitor ADDRESS.'));
      for (const b of benches) this.state(b);
      this.watch = follow('/v1/benches:watch', () => ({ every: everyOfAll }), (n) => this.news(n), (e) => this.broken(e));
    } catch (e) {
      if (!givenUp(e)) fill(this.trouble, notice(e.message, true));
    }
  }

  broken(e) { fill(this.trouble, e ? notice(`${e.message} It is asked again.`, true) : null); }

  state(s) {
    let c = this.cards.get(s.bench);
    if (!c) {
      c = { watts: el('output', { class: 'now small', 'aria-label': 'Power', 'aria-live': 'off' }, none), name: el('a', { href: link('live', s.bench) }), badge: el('span'), text: el('div') };
      c.box = el('section', { class: 'panel bench' }, el('h2', {}, c.name, ' ', c.badge), c.text, c.watts);
      this.cards.set(s.bench, c);
      this.list.append(c.box);
    }
    // The way to the bench stays the same element: who is pressing it while the bench changes hands gets there.
    if (c.name.textContent !== nameOf(s)) {
      c.name.textContent = nameOf(s);
      c.box.setAttribute('aria-label', nameOf(s));
    }
    refill(c.badge, stateOf(s), () => benchBadge(s));
    refill(c.text, [s.holder, s.held_since, s.task_name, s.waiting, s.away], () => [
      el('p', { class: 'soft' }, s.bench),
      s.holder ? el('p', {}, `${s.task_name || 'a task'} by ${s.holder}`, ago(s.held_since, (a) => `, for ${a}`)) : null,
      (s.waiting ?? []).length ? el('p', {}, `${s.waiting.length} waiting`) : null,
      s.away ? el('p', { class: 'soft' }, s.away) : null]);
    if (stateOf(s) !== 'held') c.watts.textContent = none;
  }

  news(n) {
    if (n.state) this.state(n.state);
    if (n.moment) this.cards.get(n.bench).watts.textContent = `${grouped(num(n.moment.total_w), 1)} W`;
  }
}

/** Bench is one bench. */
class Bench {
  constructor(root, route, router) {
    this.router = router;
    this.name = route.arg;
    this.trace = new Trace();
    this.rails = new Rails(this.trace);
    this.recording = new Recording();
    this.read(route);
    this.lay(root);
    this.end = new AbortController();
    addEventListener('keydown', (e) => {
      if (e.key !== 'p' || e.ctrlKey || e.metaKey || e.altKey || typing(e)) return;
      this.rails.scope.hold.click();
    }, { signal: this.end.signal });
    this.timer = setInterval(() => this.tick(), 250);
    this.watch = follow('/v1/benches:watch', () => ({ bench: this.name, every, idle: this.idle.checked, wave: true }), (n) => this.news(n), (e) => this.broken(e));
    this.others();
  }

  close() {
    clearInterval(this.timer);
    this.end.abort();
    this.watch.close();
    this.rails.close();
    this.recording.close();
  }

  read({ params }) {
    this.span = spans.some(([s]) => s === params.get('span')) ? Number(params.get('span')) : 60;
    this.idle = el('input', { type: 'checkbox', checked: params.get('idle') !== '0', on: { change: () => { this.keepAddress(); this.watch.again(); } } });
    this.rails.setSpan(this.span);
  }

  keepAddress() {
    this.router.keep(link('live', this.name, { span: this.span === 60 ? '' : this.span, idle: this.idle.checked ? '' : '0' }));
  }

  lay(root) {
    this.title = el('h1', {}, this.name);
    this.tabs = el('nav', { 'aria-label': 'Benches', class: 'tabs' });
    this.line = el('div');
    this.trouble = el('div');
    this.who = el('div');
    this.what = el('div');
    this.disk = el('div');
    const r = this.rails;
    root.append(this.tabs, this.title, this.line, this.trouble,
      el('div', { class: 'live' },
        el('section', { class: 'panel', 'aria-label': 'Rails now' }, el('div', { class: 'row middle' }, r.total, r.peak), r.scope.counter, r.table, r.facts),
        el('section', { class: 'panel', 'aria-label': 'Last seconds' },
          el('div', { class: 'row middle' }, buttons('Time shown', spans, String(this.span), (v) => { this.span = Number(v); this.rails.setSpan(this.span); this.keepAddress(); this.rails.draw(); }),
            r.scope.hold, el('label', { class: 'check' }, this.idle, 'Sample it while nobody measures')),
          r.plot.element, r.readout, r.scope.trigger, r.scope.cursors.element, r.spectrum.element),
        el('section', { class: 'panel', 'aria-label': 'Who' }, el('h2', {}, 'Who'), this.who, this.recording.element),
        el('section', { class: 'panel', 'aria-label': 'Bench' }, el('h2', {}, 'Bench'), this.what, el('h2', { class: 'later' }, 'Kept at the monitor'), this.disk)));
  }

  /** others shows the way to the other benches. */
  async others() {
    try {
      const { benches } = await get('/v1/benches', {}, this.end.signal);
      if (benches.length < 2) return;
      fill(this.tabs, el('a', { href: link('live') }, 'All benches'), benches.map((b) => el('a', { href: link('live', b.bench), 'aria-current': b.bench === this.address ? 'page' : null }, nameOf(b))));
    } catch { /* the way back is in the head, too */ }
  }

  broken(e) {
    fill(this.line, e ? notice(e.status === 404 ? e.message : `${e.message} It is asked again.`, true) : null);
    if (e) this.rails.stale(true);
  }

  news(n) {
    this.address = n.bench;
    if (n.state) this.state(n.state);
    if (n.history) this.trace.load(n.history);
    if (n.moment) {
      this.trace.add(n.moment);
      this.rails.left += n.moment.merged - 1;
      this.rails.moment(n.moment);
      this.rails.scope.moment(n.moment);
      if (this.rails.scope.frozen === null) this.rails.draw();
    }
  }

  state(s) {
    const before = this.now;
    this.now = s;
    refill(this.title, [s.name, stateOf(s)], () => [nameOf(s), ' ', benchBadge(s)]);
    refill(this.trouble, [stateOf(s), s.since, s.away, s.trouble, s.draining, s.bridged, s.notes], () => troubles(s));
    refill(this.who, heldBy(s), () => holder(s));
    this.recording.state(s);
    refill(this.what, [s.version, s.instrument, s.sample_rate_hz, s.gpu_uuid, s.missing, s.calibration_id, s.records], () => about(s));
    refill(this.disk, keptOn(s), () => kept(s));
    if (!this.rails.names && s.rails?.length) this.rails.rows(s.rails);
    // Those who listen hear of a bench that changes hands or goes away, not of watts.
    if (before && (before.holder !== s.holder || before.reach !== s.reach)) {
      announce(s.reach === 'BENCH_REACH_AWAY' ? `${nameOf(s)} is away` : s.holder ? `${nameOf(s)} is held by ${s.holder}` : `${nameOf(s)} is free`);
    }
    if (s.reach === 'BENCH_REACH_AWAY') this.rails.stale(true);
  }

  /** tick lets the plot and the spans of time go on between averages. */
  tick() {
    if (document.hidden) return;
    beat(this.who);
    this.rails.spectrum.tick();
    if (performance.now() - this.trace.arrived > 1500) {
      if (this.trace.arrived) this.rails.stale(true);
      if (this.rails.scope.frozen === null) this.rails.draw();
    }
  }
}
