// The tabs besides the charts: ranks, nodes, events, logs, pictures, setup. Each draws into an element from the state;
// all text goes through textContent, never through markup.
import { bytes, colour, count, duration, short } from "/chart.js";

// make("div.card", {title: "x"}, "text", child...)
export function make(what, ...rest) {
  const [tag, ...classes] = what.split("."), node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  for (const part of rest) {
    if (part === null || part === undefined) continue;
    if (part instanceof Node) node.append(part);
    else if (typeof part === "object") for (const [key, value] of Object.entries(part)) {
      if (key in node && key !== "style") node[key] = value;
      else node.setAttribute(key, value);
    } else node.append(String(part));
  }
  return node;
}

// Makes a node like a fresh one, and keeps what is the same in both: a new state arrives every second, and with new nodes
// the focus, a selected text and a press that has begun would be lost.
function patch(old, fresh) {
  if (old.nodeName !== fresh.nodeName) { old.replaceWith(fresh); return; }
  if (old.nodeType === Node.TEXT_NODE) { if (old.data !== fresh.data) old.data = fresh.data; return; }
  for (const { name } of [...old.attributes]) if (name !== "style" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
  for (const name of ["onclick", "onchange", "onkeydown"]) old[name] = fresh[name];
  fill(old, ...fresh.childNodes);
  if (old.nodeName === "SELECT" && old.value !== fresh.value && old !== document.activeElement) old.value = fresh.value;
}
export function fill(parent, ...nodes) {
  nodes.forEach((node, i) => { if (i < parent.childNodes.length) patch(parent.childNodes[i], node); else parent.append(node); });
  while (parent.childNodes.length > nodes.length) parent.lastChild.remove();
}

const percent = (v) => (v === null || v === undefined ? "–" : `${Math.round(v)} %`);
const seconds = (v) => (v === null || v === undefined ? "–" : typeof v === "string" ? v : v < 1 ? `${short(v * 1000)} ms` : `${short(v)} s`);
const number = (v) => (typeof v === "number" ? v : null);

// What a rank can be coloured and sorted by: [name, value, format, whether more is worse]
function gpuOf(run, rank) {
  const node = run.nodes.find((n) => n.node === rank.node);
  return rank.gpu === null || !node ? null : node.gpus.find((g) => g.index === rank.gpu) ?? null;
}
export const rankMetrics = [
  ["own work", (r) => (r.seconds_per_step === null ? null : r.seconds_per_step - (r.collective_seconds ?? 0)), seconds],
  ["step time", (r) => r.seconds_per_step, seconds],
  ["waiting for data", (r) => r.data_seconds, seconds],
  ["waiting in collectives", (r) => r.collective_seconds, seconds],
  ["GPU utilisation", (r, run) => gpuOf(run, r)?.utilisation ?? null, percent],
  ["GPU temperature", (r, run) => gpuOf(run, r)?.temperature ?? null, (v) => (v === null ? "–" : `${Math.round(v)} °C`)],
  ["GPU power", (r, run) => gpuOf(run, r)?.power ?? null, (v) => (v === null ? "–" : `${Math.round(v)} W`)],
  ["SM clock", (r, run) => gpuOf(run, r)?.clock ?? null, (v) => (v === null ? "–" : `${Math.round(v)} MHz`)],
  ["device memory", (r, run) => gpuOf(run, r)?.memory_used ?? r.memory_device, bytes],
  ["host memory", (r) => r.rss ?? r.memory_host, bytes],
  ["CPU", (r) => r.cpu, percent],
  ["loss", (r) => number(r.loss), short],
  ["step", (r) => r.step, count],
  ["last line", (r) => r.age, (v) => (v === null ? "–" : `${duration(v)} ago`)],
];

function blend(part) {
  const parse = (c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16));
  const a = parse(colour("--heat0")), b = parse(colour("--heat1"));
  const mix = a.map((v, i) => Math.round(v + (b[i] - v) * part)), light = (mix[0] * 299 + mix[1] * 587 + mix[2] * 114) / 1000;
  return [`rgb(${mix.join(",")})`, light > 140 ? "#14181d" : "#ffffff"];
}

// One cell for each rank, those of a node together.
export function heatMap(run, metric, chosen, onChoose) {
  const [, value, format] = rankMetrics.find(([name]) => name === metric) ?? rankMetrics[0];
  const values = run.ranks.map((r) => number(value(r, run))), known = values.filter((v) => v !== null);
  const low = Math.min(...known), high = Math.max(...known);
  const accused = new Set(run.findings.map((f) => f.rank).filter((r) => r !== null));
  const nodes = new Map();
  run.ranks.forEach((rank, i) => {
    const key = rank.node ?? -1;
    if (!nodes.has(key)) nodes.set(key, []);
    nodes.get(key).push([rank, values[i]]);
  });
  // One stop of the Tab key for all cells; arrows move among them.
  const walk = (e) => {
    const cells = [...e.currentTarget.querySelectorAll("button")];
    const to = cells[cells.indexOf(e.target) + { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8 }[e.key]];
    if (!to) return;
    to.focus();
    e.preventDefault();
    e.stopPropagation();
  };
  const box = make("div.heat", { onkeydown: walk }), stop = run.ranks.some((r) => r.rank === chosen) ? chosen : run.ranks[0]?.rank;
  for (const [key, ranks] of [...nodes].sort((a, b) => a[0] - b[0])) {
    const host = run.nodes.find((n) => n.node === key)?.host;
    const cells = make("div.cells");
    for (const [rank, v] of ranks) {
      const cell = make("button", { type: "button", tabIndex: rank.rank === stop ? 0 : -1, title: `rank ${rank.rank}: ${metric} ${format(v)}`, onclick: () => onChoose(rank.rank) }, rank.rank);
      if (v === null) cell.classList.add("none");
      else {
        // Differences of a few percent are none to be seen from afar.
        const [back, front] = blend((v - low) / Math.max(high - low, 0.2 * Math.abs(high), 1e-12));
        cell.style.background = back;
        cell.style.color = front;
      }
      if (rank.rank === chosen) cell.classList.add("chosen");
      if (accused.has(rank.rank)) cell.classList.add("accused");
      cells.append(cell);
    }
    box.append(make("div.node", make("span", key < 0 ? "" : `node ${key}${host ? ` · ${host}` : ""}`), cells));
  }
  const scale = known.length ? make("div.scale", format(low), make("i"), format(Math.max(high, low + 0.2 * Math.abs(high)))) : make("div.scale", "no values yet");
  return { box, scale };
}

function table(columns, rows) {
  const head = make("tr"), body = make("tbody");
  for (const [name, kind, onclick] of columns) {
    head.append(make(kind === "text" ? "th.text" : "th", { scope: "col" }, onclick ? make("button", { type: "button", onclick }, name) : name));
  }
  for (const row of rows) {
    const line = make(row.chosen ? "tr.chosen" : "tr");
    row.cells.forEach((cell, i) => line.append(make(`td${columns[i][1] === "text" ? ".text" : ""}${row.bad?.includes(i) ? ".bad" : ""}${row.wrap === i ? ".wrap" : ""}`, cell)));
    body.append(line);
  }
  return make("div.scroll", make("table", make("thead", head), body));
}

const tableColumns = ["step", "own work", "step time", "waiting for data", "waiting in collectives", "loss", "GPU utilisation", "device memory", "GPU temperature", "GPU power", "SM clock", "CPU", "host memory", "last line"];

export function ranksView(run, state, redraw) {
  if (run.ranks.length === 0) return make("div.card.empty", "No rank has written anything yet.");
  const choose = make("select", { "aria-label": "colour by", onchange: (e) => { state.metric = e.target.value; redraw(); } });
  for (const [name, value] of rankMetrics) {
    if (run.ranks.some((r) => number(value(r, run)) !== null)) choose.append(make("option", { selected: name === state.metric }, name));
  }
  const { box, scale } = heatMap(run, choose.value, state.rank, (rank) => { state.rank = state.rank === rank ? null : rank; redraw(); });
  const metrics = tableColumns.map((n) => rankMetrics.find(([name]) => name === n)).filter(([, value]) => run.ranks.some((r) => number(value(r, run)) !== null));
  const sort = (name) => () => { state.down = state.sort === name ? !state.down : true; state.sort = name; redraw(); };
  const by = rankMetrics.find(([name]) => name === state.sort);
  const ranks = [...run.ranks];
  if (by) ranks.sort((a, b) => ((number(by[1](b, run)) ?? -Infinity) - (number(by[1](a, run)) ?? -Infinity)) * (state.down ? 1 : -1));
  else if (state.sort === "rank" && state.down) ranks.reverse();
  const accused = new Map(run.findings.filter((f) => f.rank !== null).map((f) => [f.rank, f.text]));
  const most = 256, rows = ranks.slice(0, most).map((rank) => ({
    chosen: rank.rank === state.rank, bad: accused.has(rank.rank) ? [0] : [],
    cells: [rank.rank, ...metrics.map(([, value, format]) => format(number(value(rank, run))))],
  }));
  const mark = (name) => name + (state.sort === name ? (state.down ? " ↓" : " ↑") : "");
  const columns = [[mark("rank"), "", sort("rank")], ...metrics.map(([name]) => [mark(name), "", sort(name)])];
  const stack = make("div.stack",
    make("div.card", make("div.tools", make("label", "colour by ", choose), scale), box),
    make("div.card", table(columns, rows), ranks.length > most ? make("div.empty", `${ranks.length - most} more ranks: sort to see others`) : null));
  const rank = run.ranks.find((r) => r.rank === state.rank);
  if (rank && Object.keys(rank.stages).length) {
    const total = Object.values(rank.stages).reduce((a, b) => a + (number(b) ?? 0), 0);
    stack.append(make("div.card", make("h2", `Rank ${rank.rank}: where a step goes`, make("span", rank.wait_peer === null ? "" : `waited longest for rank ${rank.wait_peer}`)),
      table([["stage", "text"], ["seconds", ""], ["part", ""]], Object.entries(rank.stages).sort((a, b) => (number(b[1]) ?? 0) - (number(a[1]) ?? 0)).map(([stage, s]) => ({ cells: [stage, seconds(s), total > 0 ? percent((100 * s) / total) : "–"] })))));
  }
  return stack;
}

function ofBytes(used, total) {  // "12.5 / 140 GiB"
  const [a, b] = [bytes(used), bytes(total)].map((text) => text.split(" "));
  return a[1] === b[1] ? `${a[0]} / ${b.join(" ")}` : `${a.join(" ")} / ${b.join(" ")}`;
}

function bar(part) {
  const p = Math.max(0, Math.min(1, part)), fill = make("i");
  fill.style.width = `${100 * p}%`;
  return make(p > 0.97 ? "div.bar.hot" : p > 0.9 ? "div.bar.warm" : "div.bar", fill);
}

export function nodesView(run) {
  if (run.nodes.length === 0) return make("div.card.empty", "There are no samples of nodes: they are written by `lockstep run` and `lockstep train` about once a second.");
  const box = make("div.columns");
  for (const node of run.nodes) {
    const card = make("div.card", make("h2", `node ${node.node}`, make("span", node.host), make("span", node.age === null ? "" : `${duration(node.age)} ago`)));
    const tiles = make("div.columns");
    if (node.cpu !== null) tiles.append(make("div", `CPU ${(node.cpu / 100).toFixed(1)}${node.cores ? ` of ${node.cores} cores` : " cores"}`, node.cores ? bar(node.cpu / 100 / node.cores) : null));
    if (node.memory_used !== null) tiles.append(make("div", `memory ${bytes(node.memory_used)}${node.memory_total ? ` of ${bytes(node.memory_total)}` : ""}`, node.memory_total ? bar(node.memory_used / node.memory_total) : null));
    card.append(tiles);
    if (node.gpus.length) {
      card.append(table([["GPU", ""], ["name", "text"], ["util.", ""], ["memory", ""], ["temp.", ""], ["power", ""], ["SM clock", ""], ["", "text"]], node.gpus.map((g) => ({
        bad: g.error || g.throttle.length || g.xid !== null ? [7] : [], wrap: 7,
        cells: [g.index, g.name, percent(g.utilisation), g.memory_total === null ? "–" : ofBytes(g.memory_used, g.memory_total), g.temperature === null ? "–" : `${g.temperature} °C`,
          g.power === null ? "–" : `${Math.round(g.power)}${g.power_limit === null ? "" : ` / ${Math.round(g.power_limit)}`} W`, g.clock === null ? "–" : `${g.clock} MHz`,
          [g.error, ...g.throttle, g.xid === null ? "" : `Xid ${g.xid}`].filter(Boolean).join(", ")],
      }))));
    }
    if (node.links.length) {
      card.append(table([["link", "text"], ["kind", "text"], ["in", ""], ["out", ""], ["speed", ""], ["errors", ""], ["", "text"]], node.links.map((l) => ({
        bad: l.errors > 0 ? [5] : [], cells: [l.name, l.kind, l.receive === null ? "–" : `${bytes(l.receive)}/s`, l.send === null ? "–" : `${bytes(l.send)}/s`, l.speed === null ? "–" : `${l.speed} Gbit/s`, short(l.errors), l.off],
      }))));
    }
    box.append(card);
  }
  return box;
}

export function eventsView(run) {
  if (run.events.length === 0) return make("div.card.empty", "No events.");
  const bad = /failed|lost|stalled|suspected|diagnosis|restart|bad_sample/;
  return make("div.card", table([["time", "text"], ["event", "text"], ["attempt", ""], ["node", ""], ["rank", ""], ["", "text"]], [...run.events].reverse().map((e) => ({
    wrap: 5, bad: bad.test(e.type) ? [1] : [],
    cells: [new Date(e.t * 1000).toLocaleString("en-GB"), e.type, e.attempt ?? "", e.node ?? "", e.rank ?? "", e.text],
  }))));
}

export function logView(answer, state, redraw) {
  const tools = make("div.tools");
  if (answer.files.length) {
    const rank = make("select", { onchange: (e) => { state.logRank = Number(e.target.value); redraw(); } });
    for (const file of answer.files) rank.append(make("option", { value: file.rank, selected: file.rank === answer.rank }, `${file.rank} (node ${file.node})`));
    const attempt = make("select", { onchange: (e) => { state.logAttempt = Number(e.target.value); redraw(); } });
    for (const one of answer.attempts) attempt.append(make("option", { value: one, selected: one === answer.attempt }, one));
    tools.append(make("label", "rank", rank), make("label", "attempt", attempt));
  }
  return make("div.card", tools, answer.lines.length ? make("pre", answer.lines.join("\n")) : make("div.empty", "This log is empty or absent."));
}

export function picturesView(names, run, large) {
  if (names.length === 0) return make("div.card.empty", "This run has no pictures.");
  const box = make("div.pictures");
  for (const name of [...names].reverse()) {
    const source = `/picture?run=${run}&name=${encodeURIComponent(name)}`;
    const show = () => { large.replaceChildren(make("img", { src: source, alt: name }), make("p", name)); large.showModal(); };
    box.append(make("button", { type: "button", onclick: show }, make("img", { src: source, alt: name, loading: "lazy" }), make("span", name)));
  }
  return box;
}

export function setupView(files) {
  const box = make("div.columns");
  for (const [name, text] of Object.entries(files)) box.append(make("div.card", make("h2", name), make("pre", text)));
  return box.children.length ? box : make("div.card.empty", "There is no configuration here.");
}
