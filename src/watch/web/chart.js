// One chart: the range of each bucket as a vertical stroke, its mean as a line. Draws what it is given; asks for nothing.
const style = getComputedStyle(document.documentElement);
export const colour = (name) => style.getPropertyValue(name).trim();

export function short(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value;  // nan, inf
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e");
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  return Number(value.toPrecision(4)).toLocaleString("en-US", { maximumSignificantDigits: 4 });
}

// Steps are counted, not measured: all their digits, as far as they are exact.
export function count(value) {
  return Number.isInteger(value) && Math.abs(value) < 1e15 ? value.toLocaleString("en-US") : short(value);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (Math.abs(value) >= 1024 && i < 4) { value /= 1024; i++; }
  return `${value >= 100 || i === 0 ? Math.round(value) : value.toFixed(1)} ${units[i]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.max(0, Math.round(seconds)), d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
  if (d > 0) return `${d}d ${h}h`;
  if (h > 0) return `${h}h ${String(m).padStart(2, "0")}m`;
  if (m > 0) return `${m}m ${String(s % 60).padStart(2, "0")}s`;
  return seconds < 10 ? `${seconds.toFixed(1)}s` : `${s}s`;
}

// How a metric of this name is written.
export function formatFor(name) {
  if (/(^|\/)(memory|host_memory)|bytes|data\/memory/.test(name)) return bytes;
  if (/(^|\/)time\/|^data\/(read|decode|transform|other)$/.test(name)) return (v) => (v === null ? "–" : v < 1 ? `${short(v * 1000)} ms` : `${short(v)} s`);
  return short;
}

function ticks(low, high, count) {
  const step = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(step));
  const nice = [1, 2, 2.5, 5, 10].find((m) => m * power >= 0.75 * step) * power;
  const out = [];
  for (let v = Math.ceil(low / nice) * nice; v <= high + nice * 1e-9; v += nice) out.push(Math.abs(v) < nice * 1e-9 ? 0 : v);
  return out;
}

// As people divide time, in the time of day of this place.
const spans = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
function timeTicks(from, to, count, since) {
  if (to - from < 2 * count) return ticks(from, to, count);
  const wanted = 0.75 * (to - from) / count, step = spans.find((s) => s >= wanted) ?? 86400 * Math.ceil(wanted / 86400);
  const shift = since ? 0 : new Date(from * 1000).getTimezoneOffset() * 60, out = [];
  for (let t = Math.ceil((from - shift) / step) * step + shift; t <= to; t += step) out.push(t);
  return out;
}

function clock(t, span) {
  const date = new Date(t * 1000), two = (n) => String(n).padStart(2, "0");
  const time = `${two(date.getHours())}:${two(date.getMinutes())}`;
  if (span > 86400 * 2) return `${date.getMonth() + 1}/${date.getDate()} ${time}`;
  return span < 600 ? `${time}:${two(date.getSeconds())}` : time;
}

function smoothed(values, weight) {
  let last = null;
  return values.map((v) => (v === null ? null : (last = last === null ? v : last * weight + v * (1 - weight))));
}

export class Chart {
  // options: {log, smooth, byTime, since}; since: the times count from the start of a run; events: onZoom(from, to), onReset(), onHover(x or null)
  constructor(canvas, format, events) {
    this.canvas = canvas;
    this.format = format;
    this.events = events;
    this.lines = [];
    this.options = {};
    this.hover = null;
    canvas.addEventListener("pointerdown", (e) => { if (e.button === 0) { this.drag = [e.offsetX, e.offsetX]; canvas.setPointerCapture(e.pointerId); } });
    canvas.addEventListener("pointermove", (e) => {
      if (this.drag) { this.drag[1] = e.offsetX; this.draw(); }
      this.pointer = [e.clientX, e.clientY];
      events.onHover(this.unproject(e.offsetX), this);
    });
    canvas.addEventListener("pointercancel", () => { this.drag = null; this.draw(); });  // a finger that scrolls the page
    canvas.addEventListener("pointerleave", () => events.onHover(null, this));
    canvas.addEventListener("pointerup", () => {
      if (!this.drag) return;
      const [a, b] = this.drag.map((x) => this.unproject(x)).sort((p, q) => p - q), wide = Math.abs(this.drag[1] - this.drag[0]) > 5;
      this.drag = null;
      if (wide) events.onZoom(a, b); else this.draw();
    });
    canvas.addEventListener("dblclick", () => events.onReset());
  }

  unproject(px) {
    const { left, width, from, to } = this.frame ?? { left: 0, width: 1, from: 0, to: 1 };
    return from + (Math.min(Math.max(px - left, 0), width) / width) * (to - from);
  }

  // lines: [{colour, label, curve}], range: [from, to] or null for everything.
  show(lines, range, options) {
    this.lines = lines;
    this.range = range;
    this.options = options;
    this.draw();
  }

  extent() {
    let low = Infinity, high = -Infinity, from = Infinity, to = -Infinity, positive = Infinity;
    for (const { curve } of this.lines) {
      if (curve.x.length === 0) continue;
      from = Math.min(from, curve.from);
      to = Math.max(to, curve.to);
      for (let i = 0; i < curve.x.length; i++) {
        if (this.range && (curve.x[i] < this.range[0] || curve.x[i] > this.range[1])) continue;
        const l = (curve.low ?? curve.mean)[i], h = (curve.high ?? curve.mean)[i];
        if (l === null) continue;
        if (l < low) low = l;
        if (h > high) high = h;
        if (l > 0 && l < positive) positive = l;
        else if (h > 0 && l <= 0 && h < positive) positive = h;
      }
    }
    if (this.range) [from, to] = this.range;
    return { low, high, from, to, positive };
  }

  draw() {
    const { canvas } = this, ratio = window.devicePixelRatio || 1;
    const w = canvas.clientWidth, h = canvas.clientHeight;
    if (w === 0) return;
    if (canvas.width !== Math.round(w * ratio)) canvas.width = Math.round(w * ratio);
    if (canvas.height !== Math.round(h * ratio)) canvas.height = Math.round(h * ratio);
    const g = canvas.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, w, h);
    g.font = "11px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
    let { low, high, from, to, positive } = this.extent();
    if (!(from <= to) || !(low <= high)) {
      g.fillStyle = colour("--faint");
      g.textAlign = "center";
      g.fillText(this.waiting ? "reading…" : "no values here", w / 2, h / 2);
      this.frame = null;
      return;
    }
    const log = this.options.log && positive < Infinity;
    if (log) low = positive;
    if (low === high) { const pad = Math.abs(low) * 0.1 || 1; if (log) { low /= 2; high *= 2; } else { low -= pad; high += pad; } }
    else if (!log) { const pad = (high - low) * 0.05; if (low > 0 && low - pad < 0 && low < high * 0.3) low = 0; else low -= pad; high += pad; }
    if (from === to) { from -= 0.5; to += 0.5; }
    const scale = log ? Math.log10 : (v) => v, bottom = scale(low), top = scale(high);
    const marks = log ? logTicks(low, high) : ticks(low, high, Math.max(2, Math.floor(h / 48)));
    const left = Math.ceil(Math.max(...marks.map((v) => g.measureText(this.format(v)).width), 20)) + 9;
    const frame = this.frame = { left, width: w - left - 8, topPx: 8, height: h - 28, from, to };
    const px = (x) => left + ((x - from) / (to - from)) * frame.width;
    const py = (v) => frame.topPx + (1 - (scale(v) - bottom) / (top - bottom || 1)) * frame.height;

    g.strokeStyle = colour("--grid");
    g.fillStyle = colour("--soft");
    g.lineWidth = 1;
    g.textAlign = "right";
    g.textBaseline = "middle";
    for (const v of marks) {
      const y = Math.round(py(v)) + 0.5;
      g.beginPath(); g.moveTo(left, y); g.lineTo(w - 8, y); g.stroke();
      g.fillText(this.format(v), left - 6, y);
    }
    g.textAlign = "center";
    g.textBaseline = "alphabetic";
    const across = Math.max(2, Math.floor(frame.width / 95));
    const { byTime, since } = this.options;
    for (const v of byTime ? timeTicks(from, to, across, since) : ticks(from, to, across)) {
      if (!byTime && !Number.isInteger(v)) continue;
      const text = !byTime ? count(v) : since ? (v === 0 ? "0" : duration(v).replace(/ 00[ms]$/, "")) : clock(v, to - from), x = px(v), half = g.measureText(text).width / 2;
      g.fillText(text, Math.min(Math.max(x, left + half - 4), w - half - 2), h - 6);
    }
    g.save();
    g.beginPath();
    g.rect(left, 0, frame.width + 2, h - 18);
    g.clip();
    for (const line of this.lines) this.line(g, line, px, py, log);
    if (this.hover !== null) {
      g.strokeStyle = colour("--faint");
      g.setLineDash([3, 3]);
      g.beginPath(); g.moveTo(px(this.hover), 4); g.lineTo(px(this.hover), frame.topPx + frame.height); g.stroke();
      g.setLineDash([]);
    }
    if (this.drag) {
      g.fillStyle = colour("--accent");
      g.globalAlpha = 0.15;
      g.fillRect(this.drag[0], 0, this.drag[1] - this.drag[0], h);
    }
    g.restore();
  }

  line(g, { curve, colour: name }, px, py, log) {
    const shade = colour(name), { x } = curve, count = x.length;
    const usable = (v) => v !== null && (!log || v > 0);
    g.strokeStyle = g.fillStyle = shade;
    if (curve.low) {
      g.globalAlpha = 0.5;
      g.lineWidth = Math.max(1, Math.min(4, (px(x[count - 1]) - px(x[0])) / count));
      g.beginPath();
      for (let i = 0; i < count; i++) {
        if (!usable(curve.high[i])) continue;
        const bottom = usable(curve.low[i]) ? py(curve.low[i]) : 1e4, top = py(curve.high[i]);
        g.moveTo(px(x[i]), bottom + 0.5);
        g.lineTo(px(x[i]), top - 0.5);
      }
      g.stroke();
    }
    const stroke = (values, alpha, width) => {
      g.globalAlpha = alpha;
      g.lineWidth = width;
      g.lineJoin = "round";
      g.beginPath();
      let pen = false;
      for (let i = 0; i < count; i++) {
        if (!usable(values[i])) { pen = false; continue; }
        if (pen) g.lineTo(px(x[i]), py(values[i])); else g.moveTo(px(x[i]), py(values[i]));
        pen = true;
      }
      g.stroke();
      if (count < 40) for (let i = 0; i < count; i++) if (usable(values[i])) { g.beginPath(); g.arc(px(x[i]), py(values[i]), 2.5, 0, 7); g.fill(); }
    };
    const weight = this.options.smooth || 0;
    if (weight > 0) { stroke(curve.mean, 0.3, 1); stroke(smoothed(curve.mean, weight), 1, 1.8); } else stroke(curve.mean, 1, 1.6);
    g.globalAlpha = 1;
    if (curve.not_finite) {  // where values were nan or infinite
      g.fillStyle = colour("--bad");
      for (const at of curve.not_finite) { const p = px(at), q = this.frame.topPx + this.frame.height; g.beginPath(); g.moveTo(p - 5, q); g.lineTo(p + 5, q); g.lineTo(p, q - 8); g.fill(); }
    }
  }

  // The values nearest to x, one for each line that is there: none of one that ended long before.
  at(x) {
    const near = this.frame ? ((this.frame.to - this.frame.from) / this.frame.width) * 12 : 0;
    return this.lines.filter(({ curve }) => curve.x.length > 0 && x >= curve.x[0] - near && x <= curve.x.at(-1) + near).map((l) => {
      const xs = l.curve.x;
      let a = 0, b = xs.length - 1;
      while (a < b) { const m = (a + b) >> 1; if (xs[m] < x) a = m + 1; else b = m; }
      if (a > 0 && x - xs[a - 1] < xs[a] - x) a--;
      return { ...l, x: xs[a], mean: l.curve.mean[a], low: l.curve.low?.[a], high: l.curve.high?.[a] };
    });
  }
}

function logTicks(low, high) {
  const out = [], a = Math.floor(Math.log10(low)), b = Math.ceil(Math.log10(high));
  const each = Math.max(1, Math.ceil((b - a) / 5)), inner = b - a <= 1 ? [1, 2, 5] : b - a <= 2 ? [1, 3] : [1];
  for (let p = a; p <= b; p += each) for (const m of inner) { const v = m * 10 ** p; if (v >= low * 0.999 && v <= high * 1.001) out.push(v); }
  return out.length > 2 ? out : ticks(low, high, 4).filter((v) => v >= low);
}
