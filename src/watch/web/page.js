// The page: takes the state from the event stream, draws headline, tiles, findings and the chosen tab, and asks for the
// curves of the charts that are visible.
import { Chart, bytes, count, duration, formatFor, short } from "/chart.js";
import { eventsView, fill, heatMap, logView, make, nodesView, picturesView, rankMetrics, ranksView, setupView } from "/views.js";

const $ = (id) => document.getElementById(id);
const tabs = ["charts", "ranks", "nodes", "events", "logs", "pictures", "setup"];
const state = { now: 0, runs: [], run: 0, hidden: new Set(), tab: "charts", range: null, log: false, smooth: 0, byTime: false,
  filter: "", rank: null, metric: rankMetrics[0][0], sort: "", down: true, logRank: 0, logAttempt: null, chartRank: null };
const charts = new Map();  // name -> {chart, card, now, visible, stamp}
const tip = make("div.tip", { hidden: true });
document.body.append(tip);

const chosen = () => state.runs[state.run];
const shade = (i) => `--s${i % 8}`;
// Several runs are compared by the time since the start of each.
const zero = (run) => (state.byTime && state.runs.length > 1 ? run.started ?? 0 : 0);
const looks = () => ({ log: state.log, smooth: state.smooth, byTime: state.byTime, since: state.runs.length > 1 });

async function ask(path, options) {
  const answer = await fetch(path, options);
  if (!answer.ok) throw Object.assign(new Error((await answer.text()).trim()), { status: answer.status });
  return answer.json();
}

// --- what is above the tabs -------------------------------------------------------------------------------------------

const badges = { running: "good", succeeded: "good", complete: "good", failed: "bad", lost: "bad", removed: "bad", stopped: "warn", silent: "warn" };

function drawHead() {
  const run = chosen(), several = state.runs.length > 1;
  document.title = `${run.step === null ? "" : `${count(run.step)} · `}${run.name} · Lockstep`;
  $("runs").className = several ? "" : "one";
  fill($("runs"), ...(several ? state.runs.map((r, i) => {
    const dot = make("span.dot");
    dot.style.background = `var(${shade(i)})`;
    return make(i === state.run ? "button.chosen" : "button", { type: "button", "aria-pressed": String(!state.hidden.has(i)), title: `${r.path}\nclick: choose; again: hide in charts`, onclick: () => chooseRun(i) }, dot, make("span", r.name));
  }) : []));
  fill($("headline"), make("h1", run.name), make(`span.badge.${badges[run.state] ?? "none"}`, run.state),
    make("span.why", [run.reason, run.world_size ? `${run.world_size} ${run.world_size > 1 ? "ranks" : "rank"}${run.nnodes ? ` on ${run.nnodes} ${run.nnodes > 1 ? "nodes" : "node"}` : ""}` : "",
      run.duration > 0 ? duration(run.duration) : "", run.attempt > 0 ? `attempt ${run.attempt}` : "", run.notice].filter(Boolean).join(" · ")));
  const total = run.total, part = total && run.step !== null ? run.step / total : null;
  const tile = (name, value, more, fill) => {
    const box = make(fill === undefined ? "div.tile" : "div.tile.wide", make("div.name", name), make("div.value", value), fill === undefined ? make("div.more", more ?? "") : null);
    if (fill !== undefined && fill !== null) {
      const i = make("i");
      i.style.width = `${100 * Math.min(1, fill)}%`;
      box.append(make("div.bar", i));
    }
    return box;
  };
  const wait = (v) => (v === null ? null : `${Math.round(100 * v)} %`), tiles = [];
  const title = part === null ? "step" : `step · ${Math.floor(100 * part)} %`;
  tiles.push(tile(title, `${count(run.step)}${total ? ` / ${count(total)}` : ""}`, "", part));
  const add = (name, value, more) => { if (value !== null && value !== undefined && value !== "–") tiles.push(tile(name, value, more)); };
  add("loss", run.loss === null ? null : short(run.loss), run.gradient_norm === null ? "" : `gradient ${short(run.gradient_norm)}`);
  add("time per step", run.seconds_per_step === null ? null : run.seconds_per_step < 1 ? `${short(run.seconds_per_step * 1000)} ms` : `${short(run.seconds_per_step)} s`, run.steps_per_second === null ? "" : `${short(run.steps_per_second)} steps/s`);
  add("throughput", run.tokens_per_second !== null ? `${short(Math.round(run.tokens_per_second))}/s` : run.samples_per_second !== null ? `${short(run.samples_per_second)}/s` : null, run.tokens_per_second !== null ? "tokens" : "samples");
  add("ETA", run.eta === null ? null : duration(run.eta), run.eta === null ? "" : new Date(Date.now() + run.eta * 1000).toLocaleString("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit" }));
  add("data wait", wait(run.data_wait), "worst rank");
  add("collective wait", wait(run.collective_wait), "mean of ranks");
  add("device memory", run.memory_device === null ? null : bytes(run.memory_device), "worst rank");
  fill($("tiles"), ...tiles);
  fill($("findings"), ...run.findings.map((f) => make(/^(nan|stall)/.test(f.kind) ? "div.finding.bad" : "div.finding", { role: "alert" }, make("b", f.text), make("span", f.evidence))));
  fill($("tabs"), ...tabs.map((name, i) => make("button", { type: "button", role: "tab", "aria-selected": String(name === state.tab), title: `${name} (${i + 1})`, onclick: () => openTab(name) },
    name[0].toUpperCase() + name.slice(1), name === "ranks" && run.ranks.length ? make("small", run.ranks.length) : name === "events" && run.events.length ? make("small", run.events.length) : null)));
}

function chooseRun(i) {
  if (i === state.run && state.runs.length > 1) {
    if (!state.hidden.delete(i)) state.hidden.add(i);
  }
  state.run = i;
  drawHead();
  openTab(state.tab);
}

// --- charts -----------------------------------------------------------------------------------------------------------

const given = JSON.parse($("first").textContent);  // state, curves and the names of the first charts came with the page
const first = given.first;
function order(a, b) {
  const place = (n) => (first.includes(n) ? first.indexOf(n) : n.startsWith("val/") ? 50 : n.includes("/") ? 200 : 100);
  return place(a) - place(b) || a.localeCompare(b);
}

function seriesNames() {
  const names = new Set();
  state.runs.forEach((run, i) => { if (!state.hidden.has(i)) run.series.forEach((n) => names.add(n)); });
  return [...names].filter((n) => n.toLowerCase().includes(state.filter.toLowerCase())).sort(order);
}

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const item = charts.get(entry.target.dataset.name);
    if (!item) continue;
    item.visible = entry.isIntersecting;
    if (item.visible && !item.given) refresh(item);
  }
  ready();
}, { rootMargin: "200px" });

function hover(x, source) {
  for (const { chart, visible } of charts.values()) {
    if (!visible || chart.hover === x) continue;
    chart.hover = x;
    chart.draw();
  }
  tip.hidden = x === null || source.drag !== undefined && source.drag !== null;
  if (tip.hidden) return;
  const rows = source.at(x).map((l) => {
    const dot = make("span.dot");
    dot.style.background = `var(${l.colour})`;
    const spread = l.low !== undefined && l.low !== null && l.low !== l.high ? ` (${source.format(l.low)} to ${source.format(l.high)})` : "";
    return make("div", dot, state.runs.length > 1 ? make("span.dim", l.label) : null, source.format(l.mean), make("span.dim", spread));
  });
  const at = source.at(x)[0];
  if (!at) { tip.hidden = true; return; }
  tip.replaceChildren(make("div.dim", state.byTime ? state.runs.length > 1 ? `${duration(at.x)} after the start` : new Date(at.x * 1000).toLocaleString("en-GB") : `step ${count(Math.round(at.x))}`), ...rows);
  const [px, py] = source.pointer, width = tip.offsetWidth;
  tip.style.left = `${px + 16 + width > innerWidth ? px - width - 12 : px + 16}px`;
  tip.style.top = `${py + 14}px`;
}

function zoom(from, to) {
  hover(null);
  state.range = from === null ? null : [from, to];
  drawTools();
  charts.forEach((item) => { item.stamp++; if (item.visible) refresh(item); });
}

function limits() {
  if (state.range) return state.range;
  let from = Infinity, to = -Infinity;
  for (const { chart } of charts.values()) if (chart.frame) { from = Math.min(from, chart.frame.from); to = Math.max(to, chart.frame.to); }
  return from < to ? [from, to] : null;
}

// Curves that came with the page: drawn before anything is asked for.
function drawGiven(item) {
  const lines = state.runs.map((run, i) => given.curves[i]?.[item.name] && { colour: shade(i), label: run.name, curve: given.curves[i][item.name] });
  item.given = state.runs.length > 0 && state.runs.every((run, i) => lines[i] || !run.series.includes(item.name));
  if (item.given) showLines(item, lines.filter(Boolean), 1);
}

function showLines(item, lines, progress) {
  item.chart.waiting = progress < 1;
  item.chart.show(lines, state.range, looks());
  const last = (lines.find((line) => line.label === chosen().name) ?? lines[0])?.curve.mean.findLast((v) => v !== null);
  item.now.textContent = last === undefined ? "" : item.chart.format(last);
}

async function refresh(item) {
  if (item.busy) { item.again = true; return; }
  item.busy = true;
  item.given = false;
  const stamp = item.stamp, wide = Math.max(200, Math.round(item.chart.canvas.clientWidth));
  const rank = state.chartRank === null ? "" : `&rank=${state.chartRank}`;
  const lines = [];
  let failed = false;  // no server, or one that refuses: what is drawn stays
  await Promise.all(state.runs.map(async (run, i) => {
    if (state.hidden.has(i) || (!run.series.includes(item.name) && state.chartRank === null)) return;
    const begin = zero(run), range = state.range ? `&from=${state.range[0] + begin}&to=${state.range[1] + begin}` : "";
    try {
      const curve = await ask(`/api/chart?run=${i}${rank}&name=${encodeURIComponent(item.name)}&x=${state.byTime ? "time" : "step"}&n=${wide}${range}`);
      if (begin > 0) Object.assign(curve, { from: curve.from - begin, to: curve.to - begin, x: curve.x.map((x) => x - begin), not_finite: curve.not_finite?.map((x) => x - begin) });
      lines[i] = { colour: shade(i), label: run.name, curve };
    } catch (error) { failed ||= error.status !== 404; item.chart.waiting = false; }
  }));
  item.busy = false;
  if (failed) item.chart.show(item.chart.lines, state.range, looks());
  else if (stamp === item.stamp) {
    const shown = lines.filter(Boolean);
    showLines(item, shown, Math.min(1, ...shown.map((l) => l.curve.progress ?? 1)));
    ready();
  }
  if (item.again || stamp !== item.stamp) { item.again = false; refresh(item); }
}

// For who measures: milliseconds from the start of the load to the first complete set of charts.
function ready() {
  const root = document.documentElement, shown = [...charts.values()].filter((c) => c.visible);
  if (!root.dataset.ready && shown.length && shown.every((c) => c.chart.lines.length && !c.chart.waiting)) root.dataset.ready = Math.round(performance.now());
}

function drawTools() {
  const box = document.querySelector(".tools.of-charts");
  if (!box) return;
  const button = (text, title, on, onclick) => make(on ? "button.on" : "button", { type: "button", title, onclick }, text);
  const search = make("input", { type: "search", placeholder: "filter charts ( / )", value: state.filter, "aria-label": "filter charts", oninput: (e) => { state.filter = e.target.value; drawGrid(); } });
  const had = document.activeElement?.type === "search";
  box.replaceChildren(search,
    button("log y", "logarithmic values (l)", state.log, () => toggle("log")),
    button(state.smooth ? `smooth ${state.smooth}` : "smooth", "moving mean (s)", state.smooth > 0, () => toggle("smooth")),
    button(state.byTime ? "by time" : "by step", "step or time below (x)", state.byTime, () => toggle("byTime")),
    state.range ? button("whole run", "double click, or 0", true, () => zoom(null)) : make("span", "drag to zoom"));
  const run = chosen();
  if (run && run.progress < 1) box.append(make("span", `reading metric lines: ${Math.floor(100 * run.progress)} %`));
  if (run && run.ranks.length > 1) {
    const pick = make("select", { "aria-label": "rank", onchange: (e) => { state.chartRank = e.target.value === "" ? null : Number(e.target.value); zoomSame(); } }, make("option", { value: "" }, "reduced over ranks"));
    for (const r of run.ranks.slice(0, 512)) pick.append(make("option", { value: r.rank, selected: state.chartRank === r.rank }, `rank ${r.rank}`));
    box.append(make("label", "values", pick));
  }
  if (had) { search.focus(); search.setSelectionRange(state.filter.length, state.filter.length); }
}

function zoomSame() { charts.forEach((item) => { item.stamp++; if (item.visible) refresh(item); }); }

function toggle(what) {
  if (what === "smooth") state.smooth = { 0: 0.6, 0.6: 0.9, 0.9: 0.97, 0.97: 0 }[state.smooth];
  else state[what] = !state[what];
  if (what === "byTime") state.range = null;
  hover(null);
  drawTools();
  zoomSame();
}

function drawGrid() {
  const grid = document.querySelector(".charts");
  if (!grid) return;
  const names = seriesNames(), nodes = [], fresh = [];
  let group = null;
  names.forEach((name) => {
    const own = first.includes(name) || !name.includes("/") ? null : name.slice(0, name.indexOf("/"));
    if (own !== null && own !== group) nodes.push(make("div.group", own));
    group = own;
    if (!charts.has(name)) {
      const canvas = make("canvas", { tabIndex: 0, role: "img", "aria-label": `chart of ${name}` }), now = make("span.now");
      const card = make(name === "loss" ? "div.card.chart.main" : "div.card.chart", make("h3", make("span.title", { title: name }, name), now), canvas);
      card.dataset.name = name;
      const chart = new Chart(canvas, formatFor(name), { onZoom: zoom, onReset: () => zoom(null), onHover: hover });
      chart.waiting = true;
      charts.set(name, { name, chart, card, now, visible: false, stamp: 0 });
      fresh.push(charts.get(name));
      seen.observe(card);
    }
    nodes.push(charts.get(name).card);
  });
  const same = nodes.filter((n) => n.dataset.name).map((n) => n.dataset.name).join("\n");
  if (grid.dataset.same === same) return;
  grid.dataset.same = same;
  grid.replaceChildren(...(nodes.length ? nodes : [make("div.card.empty", state.filter ? "No chart has this name." : "No metric lines yet.")]));
  fresh.forEach(drawGiven);
}

// Few ranks stand above the charts, many below them.
function drawStrip() {
  const run = chosen(), place = document.querySelector(run.ranks.length <= 64 ? ".above" : ".below");
  if (!place) return;
  if (run.ranks.length < 2) { fill(place); return; }
  const { box, scale } = heatMap(run, state.metric, state.rank, (rank) => { state.rank = rank; openTab("ranks"); });
  fill(place, make("div.card.strip", make("div.tools", make("b", `Ranks by ${state.metric}`), scale), box));
}

// --- tabs ---------------------------------------------------------------------------------------------------------------

let turn = 0;
async function openTab(name) {
  if (state.tab !== name) {
    state.tab = name;
    drawHead();
    $("tabs").querySelector("[aria-selected=true]").scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  const mine = ++turn, run = chosen(), view = $("view"), what = `${name} ${name === "charts" ? "" : state.run}`, changed = view.dataset.what !== what;
  const put = (node) => {
    if (mine !== turn) return;
    if (view.dataset.what === what) fill(view, node); else view.replaceChildren(node);
    view.dataset.what = what;
  };
  const redraw = () => openTab(name);
  if (name === "charts") {
    if (changed) put(make("div", make("div.tools.of-charts"), make("div.above"), make("div.charts"), make("div.below")));
    drawTools();
    drawGrid();
    drawStrip();
    zoomSame();
  } else if (name === "ranks") put(ranksView(run, state, redraw));
  else if (name === "nodes") put(nodesView(run));
  else if (name === "events") put(eventsView(run));
  else try {
    if (name === "logs") {
      const attempt = state.logAttempt === null ? "" : `&attempt=${state.logAttempt}`;
      const answer = await ask(`/api/log?run=${state.run}&rank=${state.logRank}${attempt}&lines=400`);
      const before = view.querySelector("pre"), stay = before && before.scrollTop + before.clientHeight < before.scrollHeight - 30 ? before.scrollTop : null;
      if (!changed && String(getSelection()) && view.contains(getSelection().anchorNode)) return;  // somebody copies lines
      put(logView(answer, state, redraw));
      const pre = view.querySelector("pre");
      if (pre) pre.scrollTop = stay ?? pre.scrollHeight;
    }
    if (name === "pictures") put(picturesView(await ask(`/api/pictures?run=${state.run}`), state.run, $("large")));
    if (name === "setup" && changed) put(setupView(await ask(`/api/setup?run=${state.run}`)));
  } catch (error) { put(make("div.card.empty", `Not available: ${error.message}`)); }
}

// Ranks and GPUs come as a list of each field, or of one value that all of them have.
function rows({ n, ...columns }) {
  const at = (column, i) => (column.length === 1 ? column[0] : column[i]);
  return Array.from({ length: n }, (_, i) => Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, at(column, i)])));
}
function unpack(run) {
  const { stages, ...columns } = run.ranks, known = rows({ n: columns.n, ...stages });
  run.ranks = rows(columns).map((rank, i) => ({ ...rank, stages: Object.fromEntries(Object.entries(known[i]).filter(([, v]) => v !== null)) }));
  for (const node of run.nodes) node.gpus = rows(node.gpus);
  return run;
}

function take(news) {
  const fresh = state.runs.length === 0;
  state.now = news.now;
  state.runs = news.runs.map(unpack);
  state.run = Math.min(state.run, state.runs.length - 1);
  drawHead();
  const busy = ["SELECT", "INPUT"].includes(document.activeElement?.tagName) && state.tab !== "charts";
  if (state.tab === "charts" && !fresh) {
    drawGrid();
    if (state.runs.some((r) => r.progress < 1)) drawTools();
    drawStrip();
    const moving = (r, i) => !state.hidden.has(i) && (!r.ended || r.lines !== take.lines?.[i]);
    if (state.runs.some(moving)) charts.forEach((item) => { if (item.visible) refresh(item); });
  } else if (fresh || (!busy && ["ranks", "nodes", "events", "logs", "pictures"].includes(state.tab))) openTab(state.tab);
  take.lines = state.runs.map((r) => r.lines);
}

// A page that nobody sees listens to nothing: browsers open few connections to one server, for all of their tabs.
let stream = null;
function listen() {
  if (stream !== null || document.hidden) return;
  stream = new EventSource("/events");
  stream.onmessage = (event) => { $("live").textContent = "live"; $("live").className = "on"; take(JSON.parse(event.data)); };
  stream.onerror = () => {
    $("live").textContent = "not connected";
    $("live").className = "off";
    if (stream.readyState === EventSource.CLOSED) { stream = null; setTimeout(listen, 2000); }  // refused: a browser gives up
  };
}
document.addEventListener("visibilitychange", () => { if (document.hidden) { stream?.close(); stream = null; } else listen(); });

// --- keys, theme --------------------------------------------------------------------------------------------------------

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try { localStorage.setItem("lockstep-theme", theme); } catch (error) { /* private windows have no storage */ }
  charts.forEach(({ chart }) => chart.draw());
  if (state.runs.length) openTab(state.tab);
}
const dark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
try { const kept = localStorage.getItem("lockstep-theme"); if (kept) document.documentElement.dataset.theme = kept; } catch (error) { /* as above */ }
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach(({ chart }) => chart.draw()));
$("theme").onclick = () => setTheme(dark() ? "light" : "dark");

const keys = [["1 … 7", "tabs"], ["/", "filter charts"], ["← →", "move"], ["+ −", "zoom"], ["0", "whole run"], ["l", "logarithmic values"], ["s", "smoothing"], ["x", "by step or by time"], ["n", "next run"], ["t", "dark or light"], ["?", "these keys"]];
const list = make("dl");
for (const [key, what] of keys) list.append(make("dt", make("kbd", key)), make("dd", what));
$("keys").append(list);
$("help").onclick = () => $("keys").showModal();
for (const id of ["keys", "large"]) $(id).addEventListener("click", () => $(id).close());

document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || !state.runs.length) return;
  if (e.target.matches("input, select")) { if (e.key === "Escape") e.target.blur(); return; }
  const span = limits(), move = (a, b) => { if (span && state.tab === "charts") { const w = span[1] - span[0]; zoom(span[0] + a * w, span[1] + b * w); e.preventDefault(); } };
  if (e.key >= "1" && e.key <= String(tabs.length)) openTab(tabs[Number(e.key) - 1]);
  else if (e.key === "/") { openTab("charts"); document.querySelector("input[type=search]")?.focus(); e.preventDefault(); }
  else if (e.key === "ArrowLeft" && state.range) move(-0.25, -0.25);
  else if (e.key === "ArrowRight" && state.range) move(0.25, 0.25);
  else if (e.key === "+" || e.key === "=") move(0.25, -0.25);
  else if (e.key === "-") move(-0.5, 0.5);
  else if (e.key === "0") zoom(null);
  else if (e.key === "l") toggle("log");
  else if (e.key === "s") toggle("smooth");
  else if (e.key === "x") toggle("byTime");
  else if (e.key === "n" && state.runs.length > 1) { state.run = (state.run + 1) % state.runs.length; drawHead(); openTab(state.tab); }
  else if (e.key === "t") setTheme(dark() ? "light" : "dark");
  else if (e.key === "?") $("keys").showModal();
});
addEventListener("resize", () => charts.forEach((item) => { item.chart.draw(); if (item.visible) refresh(item); }));

take(given.state);
listen();
