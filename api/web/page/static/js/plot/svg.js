// A drawing surface that makes SVG: what the plot needs of a canvas's 2D context, so that a
// figure is drawn by the same code as the screen.

const ruler = document.createElement('canvas').getContext('2d');
const anchors = { left: 'start', center: 'middle', right: 'end' };
const baselines = { top: '0.8em', middle: '0.35em', bottom: '-0.2em', alphabetic: '0' };
const escape = (text) => String(text).replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
const short = (v) => String(Math.round(v * 100) / 100);

export class Svg {
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.parts = []; // of the markup
    this.path = '';
    this.clips = 0;
    this.stack = []; // states that save put aside
    this.open = 0; // groups
    this.fillStyle = this.strokeStyle = '#000';
    this.lineWidth = this.globalAlpha = 1;
    this.font = '12px sans-serif';
    this.textAlign = 'left';
    this.textBaseline = 'alphabetic';
    this.lineJoin = 'miter';
    this.dash = [];
    this.vector = true; // bands are outlines, not a bar a pixel
  }

  /** markup is the whole drawing. */
  markup() {
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}" font-family="Helvetica, Arial, sans-serif">${this.parts.join('\n')}${'</g>'.repeat(this.open)}</svg>`;
  }

  getTransform() { return { a: 1 }; }
  setLineDash(dash) { this.dash = dash; }

  save() {
    const { fillStyle, strokeStyle, lineWidth, globalAlpha, font, textAlign, textBaseline, lineJoin, dash, open } = this;
    this.stack.push({ fillStyle, strokeStyle, lineWidth, globalAlpha, font, textAlign, textBaseline, lineJoin, dash, open });
  }

  restore() {
    const was = this.stack.pop();
    this.parts.push('</g>'.repeat(this.open - was.open));
    Object.assign(this, was);
  }

  group(attributes) {
    this.parts.push(`<g ${attributes}>`);
    this.open++;
  }

  translate(x, y) { this.group(`transform="translate(${short(x)} ${short(y)})"`); }
  rotate(angle) { this.group(`transform="rotate(${short((angle * 180) / Math.PI)})"`); }

  beginPath() { this.path = ''; }
  moveTo(x, y) { this.path += `M${short(x)} ${short(y)}`; }
  lineTo(x, y) { this.path += `${this.path ? 'L' : 'M'}${short(x)} ${short(y)}`; }
  closePath() { this.path += 'Z'; }
  rect(x, y, w, h) { this.path += `M${short(x)} ${short(y)}h${short(w)}v${short(h)}h${short(-w)}Z`; }
  arc(x, y, r) { this.path += `M${short(x - r)} ${short(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`; }

  clip() {
    const id = `clip${++this.clips}`;
    this.parts.push(`<clipPath id="${id}"><path d="${this.path}"/></clipPath>`);
    this.group(`clip-path="url(#${id})"`);
  }

  alpha() { return this.globalAlpha === 1 ? '' : ` opacity="${short(this.globalAlpha)}"`; }
  fill() { this.parts.push(`<path d="${this.path}" fill="${this.fillStyle}"${this.alpha()}/>`); }
  stroke() { this.parts.push(`<path d="${this.path}" fill="none" stroke="${this.strokeStyle}" stroke-width="${short(this.lineWidth)}" stroke-linejoin="round"${this.dash.length ? ` stroke-dasharray="${this.dash}"` : ''}${this.alpha()}/>`); }
  fillRect(x, y, w, h) { this.parts.push(`<rect x="${short(x)}" y="${short(y)}" width="${short(Math.max(0, w))}" height="${short(Math.max(0, h))}" fill="${this.fillStyle}"${this.alpha()}/>`); }

  fillText(text, x, y) {
    const size = /(\d+)px/.exec(this.font)?.[1] ?? 12;
    this.parts.push(`<text x="${short(x)}" y="${short(y)}" dy="${baselines[this.textBaseline]}" font-size="${size}" fill="${this.fillStyle}" text-anchor="${anchors[this.textAlign]}"${/bold/.test(this.font) ? ' font-weight="bold"' : ''}${this.alpha()}>${escape(text)}</text>`);
  }

  measureText(text) {
    ruler.font = this.font;
    return ruler.measureText(text);
  }
}
