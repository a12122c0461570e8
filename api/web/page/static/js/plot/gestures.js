// Pointers on a plot: the wheel and two fingers zoom, a drag with the mouse zooms into
// what it covers, with Shift or one finger it pans, a click puts a cursor.

const near = 7; // pixels within which a cursor is taken hold of
const still = 4; // pixels that a click may move

/** gestures listens on a plot; it returns what ends that. */
export function gestures(plot) {
  const e = plot.element;
  const end = new AbortController();
  const on = (type, f, more = {}) => e.addEventListener(type, f, { signal: end.signal, ...more });
  const hand = new Hand(plot);
  on('wheel', (ev) => hand.wheel(ev), { passive: false });
  on('pointerdown', (ev) => hand.down(ev));
  on('pointermove', (ev) => hand.move(ev));
  on('pointerup', (ev) => hand.up(ev, true));
  on('pointercancel', (ev) => hand.up(ev, false));
  on('pointerleave', () => plot.point(NaN));
  on('click', (ev) => hand.clicked(ev));
  on('dblclick', () => hand.doubled());
  return () => {
    clearTimeout(hand.settle);
    end.abort();
  };
}

class Hand {
  constructor(plot) {
    this.plot = plot;
    this.pointers = new Map(); // those that are down, by id: their x
    this.mode = ''; // '', 'click', 'zoom', 'pan', 'pinch', 'a', 'b'
  }

  x(ev) { return ev.clientX - this.plot.element.getBoundingClientRect().left; }
  y(ev) { return ev.clientY - this.plot.element.getBoundingClientRect().top; }

  wheel(ev) {
    const p = this.plot, whole = p.limits.to - p.limits.from;
    // Where all is in view there is nothing to zoom out to: the wheel is the page's then.
    if (ev.deltaY > 0 && !ev.shiftKey && !ev.ctrlKey && p.view.to - p.view.from >= whole * (1 - 1e-9)) return;
    ev.preventDefault();
    const unit = ev.deltaMode === 1 ? 33 : ev.deltaMode === 2 ? 400 : 1;
    if (ev.shiftKey || Math.abs(ev.deltaX) > Math.abs(ev.deltaY)) {
      this.shift((ev.deltaX || ev.deltaY) * unit, p.view, false);
    } else {
      const dy = Math.max(-400, Math.min(400, ev.deltaY * unit));
      p.zoom(Math.exp(dy * (ev.ctrlKey ? 0.01 : 0.0022)), p.timeAt(this.x(ev)), false);
    }
    clearTimeout(this.settle);
    this.settle = setTimeout(() => p.look(p.view.from, p.view.to), 160);
  }

  /** shift moves a view by pixels. */
  shift(px, view, done) {
    const dt = (px / this.plot.width) * (view.to - view.from);
    this.plot.look(view.from + dt, view.to + dt, done);
  }

  down(ev) {
    if (ev.button !== 0) return;
    const p = this.plot, x = this.x(ev);
    p.element.focus({ preventScroll: true });
    p.element.setPointerCapture(ev.pointerId);
    this.pointers.set(ev.pointerId, x);
    this.begin = { ...p.view };
    if (this.pointers.size === 2) {
      this.mode = 'pinch';
      p.selection = null;
      this.held = [...this.pointers.values()].map((v) => p.timeAt(v));
      return;
    }
    this.x0 = x;
    this.t0 = p.timeAt(x);
    const hold = ['a', 'b'].find((k) => Math.abs(p.xOf(p.cursors[k]) - x) <= near);
    this.mode = hold ?? 'click';
    this.after = ev.pointerType === 'touch' || ev.shiftKey ? 'pan' : 'zoom';
  }

  move(ev) {
    const p = this.plot, x = this.x(ev);
    if (p.timeAt(x) >= p.view.from && p.timeAt(x) <= p.view.to) p.point(p.timeAt(x), x);
    else p.point(NaN);
    if (!this.pointers.has(ev.pointerId)) return;
    this.pointers.set(ev.pointerId, x);
    if (this.mode === 'click' && Math.abs(x - this.x0) > still) this.mode = this.after;
    switch (this.mode) {
      case 'a': case 'b': p.put(this.mode, p.snap(p.timeAt(x), ev)); break;
      case 'pan': this.shift(this.x0 - x, this.begin, false); break;
      case 'zoom':
        p.selection = [this.t0, p.timeAt(x)];
        p.laterOver();
        break;
      case 'pinch': this.pinch(); break;
    }
  }

  /** pinch keeps the two times that are held under the two fingers. */
  pinch() {
    const [x, y] = [...this.pointers.values()];
    if (y === undefined || Math.abs(x - y) < 8) return;
    const p = this.plot, [s, t] = this.held;
    const span = ((t - s) / (y - x)) * p.width;
    if (!(span > 0)) return;
    const from = s - ((x - p.xOf(p.view.from)) / p.width) * span;
    p.look(from, from + span, false);
  }

  up(ev, meant) {
    const p = this.plot;
    if (!this.pointers.delete(ev.pointerId)) return;
    const mode = this.mode;
    if (this.pointers.size > 0) {
      this.mode = 'rest';
      return;
    }
    this.mode = '';
    if (mode === 'pan' || mode === 'pinch' || mode === 'rest') p.look(p.view.from, p.view.to);
    if (mode === 'zoom') {
      const [s, t] = [...p.selection].sort((a, b) => a - b);
      p.selection = null;
      if (meant) p.look(s, t);
      else p.later();
    }
    // A click event follows a drag too: it counts only after a press that stood still.
    this.pressed = mode === 'click' && meant;
  }

  clicked(ev) {
    if (!this.pressed) return;
    this.pressed = false;
    if (ev.detail > 1) return; // the second one of a double click
    this.undo = { ...this.plot.cursors };
    const slice = this.plot.sliceAt(this.x0, this.y(ev));
    if (slice && this.plot.told.pick) {
      this.plot.told.pick(slice);
      return;
    }
    if (this.t0 >= this.plot.view.from && this.t0 <= this.plot.view.to) this.click(this.plot.snap(this.t0, ev));
  }

  /** doubled shows all, and takes back what the first of the two clicks did. */
  doubled() {
    const p = this.plot;
    if (this.undo) {
      p.put('a', this.undo.a);
      p.put('b', this.undo.b);
    }
    p.look(p.limits.from, p.limits.to);
  }

  /** click puts the cursor that is missing, or moves the nearer one. */
  click(t) {
    const p = this.plot, { a, b } = p.cursors;
    if (Number.isNaN(a)) p.put('a', t);
    else if (Number.isNaN(b)) p.put('b', t);
    else p.put(Math.abs(t - a) < Math.abs(t - b) ? 'a' : 'b', t);
  }
}
