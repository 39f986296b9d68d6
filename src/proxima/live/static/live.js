// One stream of events from the server: the list of runs, and the run that is open.
import uPlot from "./uPlot.js";

const at = id => document.getElementById(id);
const open = { id: null, metric: null };
const plots = new Map();  // by the element that a plot is in: the plot, and what it was made for
let stream = null, entries = [], readOnly = false, paintedBy = "kl", shownTexts = "", chartTitles = "";

const small = value => value !== 0 && Math.abs(value) < 1e-3;
const number = value => value == null ? "–" : small(value) ? String(Number(value.toPrecision(3)))
  : value.toLocaleString("en", { maximumSignificantDigits: 4 });
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
  const link = made("a", "", { href: `#${encodeURIComponent(entry.id)}` });
  const kind = entry.kind === "search" ? "search " : "";
  link.append(...entry.name.split(/(?<=_)/).flatMap(part => [part, made("wbr")]));
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
  at("choice").hidden = !message.metrics.length;
  if (!message.metrics.length) at("words").textContent = "Nothing is recorded yet: it is starting, or compiling its programs.";
}

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const HEIGHT = 320;
const width = holder => holder.clientWidth || 300;
const brief = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });

// An axis as wide as the longest of its numbers needs.
const room = (plot, values) => Math.max(50, 22 + 7 * Math.max(0, ...(values ?? []).map(value => String(value ?? "").length)));

function axes(isTime = false) {
  const plain = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  const steps = (plot, values) => values.map(value => Math.abs(value) < 10_000 ? number(value) : brief.format(value));
  return [isTime ? plain : { ...plain, values: steps }, { ...plain, size: room }];
}

function draw(holder, kind, [first, ...rest], data, extra = {}) {
  const isTime = extra.scales?.x?.time === true, read = { value: (plot, value) => number(value) };
  const series = [isTime ? first : { ...read, ...first }, ...rest.map(each => ({ ...read, ...each }))];
  const shape = `${kind} ${series.length}`, old = plots.get(holder);
  if (old?.shape === shape) return old.plot.setData(data);
  old?.plot.destroy();
  const options = { width: width(holder), height: HEIGHT, scales: { x: { time: false } }, axes: axes(), series, ...extra };
  plots.set(holder, { shape, plot: new uPlot(options, data, holder) });
}

function clearPlots(keep = () => false) {
  for (const [holder, { plot }] of plots) {
    if (keep(holder)) continue;
    plot.destroy();
    plots.delete(holder);
  }
}

// The middle of the trials with its interval and, where they are few, a thin line for each trial.
function banded(bands, label, stroke) {
  const empty = bands.steps.map(() => null), lines = bands.trials === 1 ? [] : Object.entries(bands.lines);
  const edge = name => ({ label: name, stroke: "transparent", points: { show: false }, spanGaps: true });
  const thin = ([trial]) => ({ label: `trial ${trial}`, stroke: colour("--soft"), width: 0.7, points: { show: false }, spanGaps: true });
  return {
    tables: [[bands.steps, bands.low ?? empty, bands.high ?? empty, bands.iqm], ...lines.map(([, line]) => line)],
    series: [edge("low"), edge("high"), { label, stroke, width: 2, spanGaps: true }, ...lines.map(thin)],
  };
}

const middle = bands => bands.trials === 1 ? "One trial" : `Interquartile mean of ${bands.trials} trials${bands.low ? ", with its interval" : ""}`;

function showBands(message) {
  const bands = message.bands;
  if (!bands) return;
  const { tables, series } = banded(bands, "IQM", colour("--accent"));
  draw(at("plot"), `run ${message.id} ${message.metric} ${Object.keys(bands.lines)}`, [{ label: "step" }, ...series], uPlot.join(tables),
    { bands: [{ series: [2, 1], fill: colour("--band") }] });
  const failed = bands.failed ? `; ${bands.failed} without a finite last value left out` : "";
  at("words").textContent = `${middle(bands)}${failed}. Last: ${number(bands.iqm.at(-1))}.`;
  at("plot").setAttribute("aria-label", `${message.metric} over steps. ${at("words").textContent}`);
  at("plot").dataset.last = bands.steps.at(-1);
  at("plot").dataset.points = Math.max(...tables.map(table => table[0].length));
}

// Values that differ by more than a factor of 20, and are all above 0, are drawn on a logarithmic scale.
function isWide(values) {
  return values.length > 0 && Math.min(...values) > 0 && Math.max(...values) > 20 * Math.min(...values);
}

function powersOnly(axis) {
  const filter = (plot, values) => values.map(value => Number.isInteger(Math.log10(value)) ? value : null);
  const values = (plot, powers) => powers.map(value => value == null ? "" : number(value));
  return { ...axis, values, grid: { ...axis.grid, filter }, ticks: { ...axis.ticks, filter } };
}

function showChart(chart, holder, id) {
  const [first, ...others] = chart.lines;
  const { tables, series } = banded(first.bands, first.name, colour("--accent"));
  const dashed = line => ({ label: line.name, stroke: colour("--good"), width: 1.5, dash: [6, 4], points: { show: false }, spanGaps: true });
  const values = chart.lines.flatMap(line => line.bands.iqm).filter(value => value != null);
  const wide = isWide(values), [across, up] = axes(chart.x_is_time);
  const scales = { x: { time: chart.x_is_time }, y: { distr: wide ? 3 : 1 } };
  draw(holder, `${id} ${chart.title} ${Object.keys(first.bands.lines)} ${wide}`,
    [{ label: chart.x_is_time ? "time" : "x" }, ...series, ...others.map(dashed)],
    uPlot.join([...tables, ...others.map(line => [line.bands.steps, line.bands.iqm])]),
    { scales, axes: [across, wide ? powersOnly(up) : up], bands: [{ series: [2, 1], fill: colour("--band") }] });
  const [low, high] = chart.steps.map(step => step.toLocaleString("en"));
  const ends = chart.lines.map(line => `${line.name} ${number(line.bands.iqm.at(-1))}`).join(", ");
  const words = `${middle(first.bands)}, as of ${low === high ? `step ${low}` : `steps ${low} to ${high}`}. At the end: ${ends}.`;
  holder.nextSibling.textContent = words;
  holder.setAttribute("aria-label", `${chart.title}. ${words}`);
  holder.dataset.step = chart.steps[1];
}

function showCharts(message) {
  const charts = (message.charts ?? []).filter(chart => chart.lines.length);
  const titles = charts.map(chart => chart.title);
  if (chartTitles !== titles.join("\n")) {
    chartTitles = titles.join("\n");
    clearPlots(holder => holder === at("plot"));
    at("charts").replaceChildren(...titles.map(title => {
      const box = made("section");
      box.append(made("h3", title), made("div", "", { class: "chart", role: "img" }), made("p", "", { class: "note" }));
      return box;
    }));
  }
  const holders = at("charts").querySelectorAll(".chart");
  charts.forEach((chart, index) => showChart(chart, holders[index], message.id));
}

// Settings that are words are drawn side by side, each with its name below it.
function showSearch(message) {
  const known = message.configurations.filter(([, x, y]) => x != null && y != null);
  const names = [...new Set(known.map(([, x]) => x).filter(x => typeof x !== "number"))].map(String).sort();
  const place = x => typeof x === "number" ? x : names.indexOf(String(x));
  const points = known.map(([, x, y]) => [place(x), y]).sort((a, b) => a[0] - b[0]);
  const xs = points.map(p => p[0]), wide = !names.length && isWide(xs), [across, up] = axes();
  const dots = (label, stroke, size) => ({ label, stroke, paths: () => null, points: { show: true, size, fill: stroke, stroke } });
  const range = (plot, low, high) => wide ? [low / 1.5, high * 1.5] : [low - 0.04 * (high - low || 1), high + 0.04 * (high - low || 1)];
  const named = { ...across, splits: () => names.map((name, index) => index), values: () => names };
  draw(at("plot"), `search ${message.id} ${message.metric} ${wide} ${names}`,
    [{ label: message.metric ?? "setting", ...(names.length && { value: (plot, x) => names[x] ?? "–" }) }, dots("value", colour("--accent"), 7), dots("best", colour("--good"), 12)],
    [xs, points.map(p => p[1]), points.map(p => p[1] === message.best ? p[1] : null)],
    { scales: { x: { time: false, distr: wide ? 3 : 1, range } }, axes: [names.length ? named : wide ? powersOnly(across) : across, up] });
  const failed = message.configurations.length - message.configurations.filter(([, , y]) => y != null).length;
  at("words").textContent = `${message.configurations.length} of ${message.drawn} drawn configurations were trained`
    + `${failed ? `, ${failed} of them without a value` : ""}; best ${number(message.best)} (${message.direction}).`;
  at("plot").setAttribute("aria-label", `Value against ${message.metric}. ${at("words").textContent}`);
  at("plot").dataset.points = points.length;
}

// The best configurations so far, with their settings.
function configurations(message) {
  const table = made("table"), head = made("tr"), names = message.metrics;
  head.append(...["Number", "Value", ...names].map(name => made("th", name, { scope: "col" })));
  const rows = message.top.map(([index, value, settings]) => {
    const row = made("tr"), told = names.map(name => settings[name]);
    row.append(...[index, number(value), ...told.map(each => typeof each === "number" ? number(each) : each ?? "–")].map(each => made("td", String(each))));
    return row;
  });
  table.append(head, ...rows);
  const box = made("div", "", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The best configurations so far" });
  box.append(table);
  return box;
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
  if (message.top?.length) parts.push(...part("The best configurations so far", configurations(message)));
  const alarms = (message.alarms ?? []).map(each => `Step ${each.step}, trial ${each.trial}: ${each.text}`);
  if (alarms.length) parts.push(...part("Alarms", list(alarms)));
  const time = Object.entries(message.time ?? {}).map(([name, seconds]) => `${name} ${seconds.toFixed(1)} s`);
  if (time.length) parts.push(...part("Time by phase, as of the last checkpoint", made("p", time.join(" · "))));
  if (message.memory != null) parts.push(...part("Memory", made("p", `at most ${number(message.memory)} MB`)));
  if (message.cluster) parts.push(...part("Cluster", list(message.cluster.split("; "))));
  at("parts").replaceChildren(...parts);
}

function token([blanks, word, words, colours]) {
  const drawn = made("span", word, { class: "token", title: words });
  for (const [name, css] of Object.entries(colours)) drawn.style.setProperty(`--${name}`, css);
  return [blanks, drawn];
}

function text(sample) {
  const box = made("article", "", { class: "sample" }), words = made("p", "", { class: "text" });
  words.append(made("span", sample.prompt, { class: "given" }), ...(sample.tokens.length ? sample.tokens.flatMap(token) : [sample.text]));
  if (sample.ended) words.append(made("span", "end", { class: "end" }));
  const scores = made("p", "", { class: "scores" });
  scores.append(...sample.scores.flatMap(([name, value]) => [`${name} `, made("b", value), " · "]).slice(0, -1));
  box.append(words, scores);
  return box;
}

function colourSwitch(scales) {
  const box = made("div", "", { class: "switch" }), legend = made("span", "", { class: "legend" });
  const choices = scales.map(scale => {
    const label = made("label"), radio = made("input", "", { type: "radio", name: "colour", id: scale.name });
    radio.checked = scale.name === paintedBy;
    radio.addEventListener("change", () => { paintedBy = scale.name; });
    label.append(radio, scale.title);
    return label;
  });
  const ends = side => scales.map(scale => made("span", scale[side], { class: `by-${scale.name}` }));
  legend.append(...ends("less"), made("span", "", { class: "ramp", "aria-hidden": "true" }), ...ends("more"));
  box.append(made("span", "Colour of tokens:"), ...choices, legend);
  return box;
}

function showSamples(message) {
  const samples = message.samples, now = JSON.stringify(samples ?? null);
  if (now === shownTexts) return;  // whoever reads or selects is not disturbed
  shownTexts = now;
  if (!samples) return at("samples").replaceChildren();
  const when = samples.step == null ? "when it was judged" : `at update ${samples.step.toLocaleString("en")}`;
  if (!samples.scales.some(scale => scale.name === paintedBy)) paintedBy = samples.scales[0]?.name;
  at("samples").replaceChildren(made("h3", "Samples"), made("p", `What trial ${samples.trial} wrote ${when}.`, { class: "note" }),
    ...(samples.scales.length ? [colourSwitch(samples.scales)] : []), ...samples.texts.map(text));
}

function showRun(message) {
  if (message.id !== open.id) return;
  at("run").hidden = false;
  at("run-title").textContent = message.id;
  at("facts").textContent = Object.entries(message.facts ?? {}).map(([name, value]) => `${name}: ${value}`).join(" · ");
  showChoices(message);
  message.configurations ? showSearch(message) : showBands(message);
  showCharts(message);
  showSamples(message);
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
  clearPlots();
  listen();
}

at("stop").addEventListener("click", () => ask("stop"));
at("resume").addEventListener("click", () => ask("resume"));
at("metric").addEventListener("change", () => { open.metric = at("metric").value; listen(); });
addEventListener("hashchange", follow);
addEventListener("resize", () => plots.forEach(({ plot }, holder) => plot.setSize({ width: width(holder), height: HEIGHT })));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { clearPlots(); listen(); });
follow();
