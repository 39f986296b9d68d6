// One stream of events from the server: the list of runs, and the run that is open.
import uPlot from "./uPlot.js";

const at = id => document.getElementById(id);
const open = { id: null, metric: null };
let stream = null, plot = null, drawnAs = "", entries = [], readOnly = false;

const number = value => value == null ? "–" : Number(value.toPrecision(4)).toLocaleString("en");
const left = seconds => seconds == null ? "–" : seconds >= 7200 ? `${Math.round(seconds / 3600)} h`
  : seconds >= 120 ? `${Math.round(seconds / 60)} min` : `${Math.ceil(seconds)} s`;

function made(name, text = "", attributes = {}) {
  const element = document.createElement(name);
  element.textContent = text;  // never markup: names and samples are others' words
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function row(entry) {
  const line = made("tr");
  if (entry.id === open.id) line.setAttribute("aria-current", "true");
  const cells = [0, 1, 2, 3, 4].map(() => made("td"));
  const link = made("a", entry.name, { href: `#${encodeURIComponent(entry.id)}` });
  const kind = entry.kind === "search" ? "search " : "";
  cells[0].append(link, made("small", kind + entry.id.split("/").pop()));
  cells[1].append(made("span", entry.state, { class: entry.state }));
  if (entry.fraction != null) {
    const percent = `${Math.floor(100 * entry.fraction)} %`;
    cells[2].append(made("progress", "", { max: 1, value: entry.fraction, "aria-label": percent }), made("small", percent));
  } else cells[2].textContent = entry.steps ? entry.steps.toLocaleString("en") : "–";
  cells[3].textContent = left(entry.seconds_left);
  cells[4].textContent = number(entry.best);
  line.append(...cells);
  return line;
}

function showRuns(message) {
  entries = message.runs;
  readOnly = message.read_only;
  const focused = document.activeElement?.getAttribute?.("href");
  at("runs").replaceChildren(...entries.map(row));
  at("none").hidden = entries.length > 0;
  if (focused) document.querySelector(`#runs a[href="${CSS.escape(focused)}"]`)?.focus();
  showActions();
}

function showActions() {
  const entry = entries.find(each => each.id === open.id);
  at("actions").hidden = readOnly;
  at("stop").disabled = !entry?.process;
  at("resume").disabled = !["stopped", "failed"].includes(entry?.state);
}

function showChoices(message) {
  const select = at("metric");
  if ([...select.options].map(each => each.value).join() !== message.metrics.join())
    select.replaceChildren(...message.metrics.map(name => new Option(name, name)));
  if (message.metric) select.value = message.metric;
}

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const width = () => at("plot").clientWidth || 300;
const axes = () => [0, 1].map(() => ({ stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } }));

function draw(kind, series, data, extra = {}) {
  const shape = `${kind} ${series.length}`;
  if (plot && shape === drawnAs) return plot.setData(data);
  plot?.destroy();
  drawnAs = shape;
  const options = { width: width(), height: 320, scales: { x: { time: false } }, axes: axes(), series, ...extra };
  plot = new uPlot(options, data, at("plot"));
}

function showBands(message) {
  const bands = message.bands;
  if (!bands) return;
  const lines = Object.entries(bands.lines);
  const empty = bands.steps.map(() => null);
  const tables = [[bands.steps, bands.low ?? empty, bands.high ?? empty, bands.iqm], ...lines.map(([, line]) => line)];
  const thin = ([trial]) => ({ label: `trial ${trial}`, stroke: colour("--soft"), width: 0.7, points: { show: false }, spanGaps: true });
  const edge = label => ({ label, stroke: "transparent", points: { show: false }, spanGaps: true });
  const middle = { label: "IQM", stroke: colour("--accent"), width: 2, spanGaps: true };
  const series = [{ label: "step" }, edge("low"), edge("high"), middle, ...lines.map(thin)];
  draw(`run ${message.id} ${message.metric} ${lines.map(([t]) => t)}`, series, uPlot.join(tables),
    { bands: [{ series: [2, 1], fill: colour("--band") }] });
  const interval = bands.low ? ", with its interval" : "";
  const failed = bands.failed ? `; ${bands.failed} without a finite last value left out` : "";
  at("words").textContent = `Interquartile mean of ${bands.trials} trial(s)${interval}${failed}. Last: ${number(bands.iqm.at(-1))}.`;
  at("plot").setAttribute("aria-label", `${message.metric} over steps. ${at("words").textContent}`);
  at("plot").dataset.last = bands.steps.at(-1);
  at("plot").dataset.points = Math.max(...tables.map(table => table[0].length));
}

function showSearch(message) {
  const known = message.configurations.filter(([, x, y]) => x != null && y != null);
  const names = [...new Set(known.map(([, x]) => x).filter(x => typeof x !== "number"))];
  const place = x => typeof x === "number" ? x : names.indexOf(x);
  const points = known.map(([, x, y]) => [place(x), y]).sort((a, b) => a[0] - b[0]);
  const dots = { label: "value", stroke: colour("--accent"), fill: colour("--accent"), paths: () => null, points: { show: true, size: 7 } };
  draw(`search ${message.id} ${message.metric}`, [{ label: message.metric ?? "setting" }, dots], [points.map(p => p[0]), points.map(p => p[1])]);
  const order = names.length ? ` Values: ${names.map((name, i) => `${i} is ${name}`).join(", ")}.` : "";
  at("words").textContent = `${message.configurations.length} of ${message.drawn} drawn configurations have a value; best ${number(message.best)} (${message.direction}).${order}`;
  at("plot").setAttribute("aria-label", `Value against ${message.metric}. ${at("words").textContent}`);
  at("plot").dataset.points = points.length;
}

function part(title, ...content) {
  return [made("h3", title), ...content];
}

function list(items) {
  const all = made("ul");
  all.append(...items.map(text => made("li", text)));
  return all;
}

function showParts(message) {
  const parts = [];
  const alarms = (message.alarms ?? []).map(each => `Step ${each.step}, trial ${each.trial}: ${each.text}`);
  if (alarms.length) parts.push(...part("Alarms", list(alarms)));
  const time = Object.entries(message.time ?? {}).map(([name, seconds]) => `${name}: ${seconds.toFixed(1)} s`);
  if (time.length) parts.push(...part("Time by phase, as of the last checkpoint", list(time)));
  if (message.memory != null) parts.push(...part("Memory", made("p", `at most ${number(message.memory)} MB`)));
  if (message.cluster) parts.push(...part("Cluster", made("p", message.cluster)));
  if (message.samples?.length)
    parts.push(...part("Samples", ...message.samples.flatMap(each => [made("strong", each.prompt), made("pre", each.text)])));
  at("parts").replaceChildren(...parts);
}

function showRun(message) {
  if (message.id !== open.id) return;
  at("run").hidden = false;
  at("run-title").textContent = message.id;
  at("facts").textContent = Object.entries(message.facts ?? {}).map(([name, value]) => `${name}: ${value}`).join(" · ");
  showChoices(message);
  message.configurations ? showSearch(message) : showBands(message);
  showParts(message);
  showActions();
}

function listen() {
  stream?.close();
  const query = new URLSearchParams();
  if (open.id) query.set("id", open.id);
  if (open.metric) query.set("metric", open.metric);
  stream = new EventSource(`api/events?${query}`);
  stream.onopen = () => { at("connection").textContent = "Connected"; };
  stream.onerror = () => { at("connection").textContent = "Not connected: is proxima live still running?"; };
  stream.addEventListener("runs", event => showRuns(JSON.parse(event.data)));
  stream.addEventListener("run", event => showRun(JSON.parse(event.data)));
  stream.addEventListener("problem", event => { at("answer").textContent = JSON.parse(event.data).error; });
}

async function ask(what) {
  const answer = await fetch(`api/${what}?id=${encodeURIComponent(open.id)}`, { method: "POST" });
  const content = await answer.json();
  at("answer").textContent = content.text ?? content.error;
}

function follow() {
  open.id = decodeURIComponent(location.hash.slice(1)) || null;
  open.metric = null;
  at("answer").textContent = "";
  at("run").hidden = true;
  plot?.destroy();
  plot = null;
  listen();
}

at("stop").addEventListener("click", () => ask("stop"));
at("resume").addEventListener("click", () => ask("resume"));
at("metric").addEventListener("change", () => { open.metric = at("metric").value; listen(); });
addEventListener("hashchange", follow);
addEventListener("resize", () => plot?.setSize({ width: width(), height: 320 }));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { plot?.destroy(); plot = null; listen(); });
follow();
