// The page of a job: its ranks below each other on one clock.
const MOST_LANES = 4; // of collectives that overlap in a rank
const LEAST_HATCH = 6; // pixels
const OF_COLOURS = { ...OF_PHASES, waiting: "waiting: for the last rank, for a message (a bubble), for the GPU", communication: "collectives, messages", group: "step" };

// Bars that say their level themselves: those of a rank overlap, so none is in another.
class Rows extends FlameChartPlugin {
  parseData() {
    this.flatTree = this.data.map((source, index) => ({ source, end: source.start + source.duration, parent: null, level: source.level, index }));
    this.flatTree.sort((a, b) => a.level - b.level || a.source.start - b.source.start);
    this.calcMinMax();
  }
}

// Up and down go to the row above or below, at the same time, also of the next rank.
class RanksChart extends Chart {
  // The first step in view is selected first: the page begins with a later one.
  start() {
    const { engine, flames } = this;
    const middle = engine.positionX + engine.getRealView() / 2;
    const node = !this.selected && flames[0].flatTree.find((each) => each.source.start <= middle && each.end > middle);
    if (!node) return super.start();
    this.choose(flames[0], node);
    return null;
  }

  vertical(by) {
    const from = this.start();
    if (!from) return;
    const rows = this.flames.flatMap((flame) => [...new Set(flame.flatTree.map((node) => node.level))].map((level) => ({ flame, level })));
    const row = rows[rows.findIndex(({ flame, level }) => flame === from.flame && level === from.node.level) + by];
    if (!row) return;
    const { start } = from.node.source;
    const away = ({ source, end }) => Math.max(source.start - start, start - end, 0);
    this.choose(row.flame, row.flame.flatTree.filter((node) => node.level === row.level).reduce((best, node) => (away(node) < away(best) ? node : best)));
  }

  above() {
    this.vertical(-1);
  }

  below() {
    this.vertical(1);
  }
}

// What goes across ranks: the moment at which the last one came, messages, and the shade of waits.
class Across extends Arrows {
  postRender() {
    const { parent } = this.renderEngine;
    const { ctx } = parent;
    const [from, to] = [parent.positionX, parent.positionX + parent.getRealView()];
    const inView = this.timeline.bars.filter(({ start, duration: length }) => start <= to && start + length >= from);
    ctx.save();
    for (const bar of inView) if (bar.waits) this.hatch(ctx, bar);
    const { chosen } = this.timeline;
    const seen = new Set();
    const drawn = inView.filter((bar) => bar.across && !seen.has(bar.across) && seen.add(bar.across));
    for (const { across } of drawn) {
      const strong = across === chosen;
      if (strong || drawn.length <= MOST_ARROWS) across.last === undefined ? this.message(ctx, across, strong) : this.meeting(ctx, across, strong);
    }
    ctx.restore();
  }

  // A corner of a bar; null if its rank is collapsed.
  at(bar, time, low = 0) {
    const flame = this.timeline.flames[bar.rank];
    const engine = flame.renderEngine;
    if (engine.collapsed) return null;
    return { x: engine.timeToPosition(time), y: engine.position + bar.level * (BAR + 1) - flame.positionY + low };
  }

  hatch(ctx, bar) {
    const [one, other] = [this.at(bar, bar.start), this.at(bar, bar.start + bar.duration)];
    if (!one || other.x - one.x < LEAST_HATCH) return;
    const left = Math.max(one.x, 0);
    const width = Math.min(other.x, this.renderEngine.parent.width) - left;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, one.y, width, BAR);
    ctx.clip();
    ctx.strokeStyle = colour("back");
    ctx.globalAlpha = 0.35;
    ctx.lineWidth = 1.5;
    ctx.beginPath();
    for (let x = left - BAR; x < left + width; x += 7) {
      ctx.moveTo(x, one.y + BAR);
      ctx.lineTo(x + BAR, one.y);
    }
    ctx.stroke();
    ctx.restore();
  }

  // From the first rank to the last one when the last one came; of the selected one also when each came.
  meeting(ctx, { bars, came }, strong) {
    const ends = [bars[0], bars[bars.length - 1]].map((bar, last) => this.at(bar, came, last ? BAR : 0));
    if (came === null || ends.includes(null)) return;
    ctx.strokeStyle = ctx.fillStyle = colour(strong ? "match" : "quiet");
    ctx.globalAlpha = strong ? 1 : 0.6;
    ctx.lineWidth = strong ? 2.5 : 1;
    ctx.beginPath();
    ctx.moveTo(ends[0].x, ends[0].y);
    ctx.lineTo(ends[1].x, ends[1].y);
    ctx.stroke();
    if (!strong) return;
    ctx.globalAlpha = 0.22;
    ctx.beginPath();
    ctx.moveTo(ends[0].x, ends[0].y);
    for (const bar of bars) {
      for (const low of [0, BAR]) {
        const { x, y } = this.at(bar, bar.start, low) || ends[0];
        ctx.lineTo(x, y);
      }
    }
    ctx.lineTo(ends[1].x, ends[1].y);
    ctx.fill();
  }

  message(ctx, { bars, sender, sent }, strong) {
    const flame = this.timeline.flames[sender];
    if (!flame || flame.renderEngine.collapsed) return;
    const engine = flame.renderEngine;
    const down = sender < bars[0].rank;
    const from = { x: engine.timeToPosition(sent), y: engine.position + (down ? engine.height : 0) };
    this.arrow(ctx, from, this.at(bars[0], bars[0].start + bars[0].duration, down ? 0 : BAR), strong);
  }
}

class Ranks {
  constructor({ columns, meta }, onSelect) {
    Object.assign(this, { columns, onSelect, texts: meta.texts, ranks: meta.ranks, wall: meta.wall_ns / 1e6, query: "", chosen: null });
    this.holder = document.getElementById("ranks-chart");
    this.found = document.getElementById("found");
    this.bars = [...this.steps(), ...this.parts(), ...this.communication()];
    for (const bar of this.bars) {
      bar.name = bar; // its text is made when it is drawn
      bar.colour = bar.type;
      bar.searched = [bar.title, ...bar.names, "rank " + this.ranks[bar.rank].rank, bar.step >= 0 ? "step " + bar.step : ""].join(" ").toLowerCase();
    }
    this.partBars = this.bars.filter((bar) => bar.kind === "step" && !bar.rank);
    this.waitBars = this.bars.filter((bar) => bar.waits).sort((a, b) => b.duration - a.duration).slice(0, 3000);
    this.kinds = this.longestOfEach();
    this.draw();
    legend("legend", OF_COLOURS, new Set(this.bars.map((bar) => bar.type)));
  }

  text(number) {
    return number < 0 ? "" : this.texts[number];
  }

  // An object with the values of a row, texts by `texts`.
  rows(table, texts) {
    const names = Object.keys(this.columns).filter((name) => name.startsWith(table + "."));
    const size = names.length ? this.columns[names[0]].length : 0;
    return Array.from({ length: size }, (none, row) => Object.fromEntries(names.map((name) => {
      const short = name.slice(table.length + 1);
      const value = this.columns[name][row];
      return [short, texts.includes(short) ? this.text(value) : value];
    })));
  }

  bar(kind, rank, level, type, start, end, more) {
    return { kind, rank, level, type, start: start / 1e6, duration: Math.max(end - start, 0) / 1e6, names: [], step: -1, ...more };
  }

  steps() {
    return this.rows("steps", ["phase"]).map((row) => this.bar("step", row.rank, 0, "group", row.start_ns, row.end_ns, { title: "step " + row.step, step: row.step, phase: row.phase }));
  }

  parts() {
    return this.rows("parts", ["part"]).map((row) => this.bar("part", row.rank, 1, PHASES.includes(row.part) ? row.part : "group", row.start_ns, row.start_ns + row.length_ns, { title: OF_PHASES[row.part] || row.part }));
  }

  // Collectives and receives: the wait, and what is behind it.
  communication() {
    const meetings = this.rows("meetings", ["op", "line", "group", "why"]).map((row) => ({ ...row, calls: [], bars: [], came: row.last < 0 ? null : row.came_ns / 1e6 }));
    const made = [];
    for (const { rank, meeting: number, start_ns: start, wait_ns: wait, end_ns: end } of this.rows("calls", [])) {
      const of = meetings[number];
      made.push({ rank, start, end, wait, across: of, title: of.op, names: [of.line, of.group && "group " + of.group, of.why].filter(Boolean), step: of.step });
    }
    const places = new Map(this.ranks.map(({ rank }, place) => [rank, place]));
    for (const row of this.rows("messages", ["line", "sent_at", "why"])) {
      const across = { ...row, calls: [], bars: [], sender: places.get(row.sender), from: row.sender, sent: row.sent_ns / 1e6, op: "receive from rank " + row.sender };
      made.push({ rank: row.rank, start: row.begin_ns, end: row.end_ns, wait: row.end_ns - row.begin_ns, across, title: across.op, names: [row.line, row.sent_at && "sent at " + row.sent_at, row.why].filter(Boolean), step: row.step });
    }
    made.sort((a, b) => a.start - b.start);
    const ends = this.ranks.map(() => []);
    return made.flatMap((call) => {
      const lanes = ends[call.rank];
      let lane = lanes.findIndex((end) => end <= call.start);
      if (lane < 0) lane = lanes.length < MOST_LANES ? lanes.length : lanes.indexOf(Math.min(...lanes));
      lanes[lane] = call.end;
      const { start, end, wait, ...more } = call;
      const bar = (type, from, to) => this.bar("call", call.rank, 2 + lane, type, from, to, { ...more, call, waits: type === "waiting" });
      call.bars = [...(wait ? [bar("waiting", start, start + wait)] : []), ...(end > start + wait || !wait ? [bar("communication", start + wait, end)] : [])];
      call.across.calls.push(call);
      call.across.bars.push(call.bars[0]);
      return call.bars;
    });
  }

  draw() {
    const shown = [];
    this.flames = this.ranks.map(({ title, memory, busy }, rank) => {
      const own = this.bars.filter((bar) => bar.rank === rank);
      const flame = new Rows({ data: own, colors: colours(), name: "rank" });
      flame.on("select", ({ node }) => node && this.select(node.source));
      shown.push([title, flame, own.reduce((most, bar) => Math.max(most, bar.level + 1), 1) * (BAR + 1) + 4]);
      const of = " of rank " + this.ranks[rank].rank;
      const each = (this.wall * 1e6) / busy.length;
      if (busy.length) shown.push(["GPU" + of + " computes", new Curve(busy, each, this.wall, "kernel", (ns) => (percent(ns, each) || "0 %") + " of the time"), 26]);
      for (const [device, values] of Object.entries(memory)) {
        const most = values.reduce((found, value) => Math.max(found, value), 0);
        shown.push(["memory" + of + ", " + device + ": at most " + size(most), new Curve(values, most, this.wall, "copy", size), 26]);
      }
      return flame;
    });
    for (const { bars } of new Set(this.bars.map((bar) => bar.across).filter(Boolean))) bars.sort((a, b) => a.rank - b.rank);
    this.heights = shown.map(([, , height]) => height);
    const height = this.heights.reduce((sum, each) => sum + each + BAR + 1, 26 + 30);
    const plugins = [new Minimap(this), new TimeGridPlugin(), ...shown.flatMap(([title, plugin]) => [new TogglePlugin(title), plugin]), new Across(this)];
    this.chart = new RanksChart(this.holder, plugins, height, " ms", (bar) => this.tip(bar), (bar) => [bar.title.replace(/^c10d::/, ""), bar.names[0] || "", ""]);
    this.chart.stack(this.heights, 3);
    this.chart.canvas.addEventListener("dblclick", () => {
      const found = this.chart.selected;
      if (found) this.zoomTo(found.node.source);
    });
  }

  resize() {
    this.chart.resize();
    this.chart.stack(this.heights, 3);
  }

  zoomTo({ start, duration: length }) {
    this.chart.zoomTo(start, length);
  }

  tip(bar) {
    const rank = "rank " + this.ranks[bar.rank].rank + (bar.step >= 0 && bar.kind !== "step" ? ", step " + bar.step : "");
    const lines = [rank + ": " + duration(bar.duration * 1e6) + (bar.waits ? " waited" : "")];
    return [bar.title, [...lines, ...bar.names]];
  }

  // `show`: with its panel.
  select(bar) {
    this.chosen = bar.across || null;
    this.chart.render();
    this.onSelect(bar);
  }

  // As if it was clicked, and in view.
  goTo(bar) {
    const flame = this.flames[bar.rank];
    const node = flame.flatTree.find((each) => each.source === bar);
    for (const each of this.flames) each.selectedRegion = each === flame ? { data: node, type: "node" } : null;
    this.chart.reveal(flame, node);
    this.select(bar);
  }

  search(query) {
    this.query = query.trim().toLowerCase();
    const matches = this.bars.filter((bar) => this.query && bar.searched.includes(this.query));
    const matching = new Set(matches);
    for (const bar of this.bars) bar.type = !this.query ? bar.colour : matching.has(bar) ? "match" : "dim";
    this.best = longest(matches);
    this.found.textContent = !this.query ? "" : this.best ? count(matches.length, "bar") + ". Enter: zoom to the longest." : "No bar matches.";
    for (const flame of this.flames) flame.initData();
    this.chart.render();
  }

  // The longest bar that a row of a table is about.
  named(names) {
    const is = (text) => text && names.some((name) => name === text || (name.startsWith("...") && name.length > 9 && text.endsWith(name.slice(3))));
    const ops = this.kinds.filter(({ across }) => is(across.op));
    const lines = this.kinds.filter(({ across }) => is(across.line) || is(across.sent_at));
    const both = lines.filter((bar) => ops.includes(bar));
    return longest([both, lines, ops].find((bars) => bars.length) || []);
  }

  // The longest bar of each op and line that calls others.
  longestOfEach() {
    const found = new Map();
    for (const bar of this.bars) {
      if (!bar.across) continue;
      const kind = [bar.across.op, bar.across.line, bar.across.sent_at].join("\n");
      found.set(kind, longest([found.get(kind) || bar, bar]));
    }
    return [...found.values()];
  }
}

function longest(bars) {
  return bars.reduce((best, bar) => (!best || bar.duration > best.duration ? bar : best), null);
}

// The panel: what a rank waited for, who was last, and why.
class RanksChain extends Chain {
  constructor(ranks) {
    super(null);
    this.ranks = ranks;
  }

  heaviestBelow() {
    return [];
  }

  name(bar) {
    return "rank " + this.ranks().ranks[bar.rank].rank;
  }

  showBar(bar) {
    this.node = 0;
    this.bar = bar;
    const facts = [["rank", String(this.ranks().ranks[bar.rank].rank)]];
    if (bar.step >= 0) facts.push(["step", String(bar.step)]);
    if (!bar.call) facts.push(["time", duration(bar.duration * 1e6)]);
    const parts = bar.call ? this.ofCall(bar.call, facts) : this.within(bar);
    this.fill(bar.title, facts, parts);
  }

  ofCall({ across, wait, start, rank }, facts) {
    facts.push(["waited", duration(wait)]);
    if (across.bytes >= 0) facts.push(["bytes", size(across.bytes)]);
    if (across.group) facts.push(["group", across.group]);
    if (across.ranks > 0) facts.push(["ranks", String(across.ranks)], ["all ranks waited", duration(across.wait_ns)]);
    const list = element("ol", "links");
    list.append(this.row("line", across.line || NONE.line, [], ""));
    list.append(this.row("op", across.op, across.number >= 0 ? ["call " + across.number.toLocaleString("en-US") + " of its group"] : [], duration(wait) + " waited"));
    if (across.from !== undefined) {
      list.append(this.row("sent by", "rank " + across.from, [across.sent_at, across.why].filter(Boolean), ""));
      return [list];
    }
    if (across.last < 0) return [list, element("p", "hint", across.why)];
    const late = across.late_ns > 0 ? duration(across.late_ns) + " late" : "";
    list.append(this.row("last", "rank " + across.last, [across.why].filter(Boolean), late));
    const order = [...across.calls].sort((a, b) => a.start - b.start);
    const came = element("ol", "links");
    for (const call of order) {
      const row = this.row("rank " + this.ranks().ranks[call.rank].rank, call === order[0] ? "came first" : "came " + duration(call.start - order[0].start) + " later", [], duration(call.wait) + " waited", () => this.ranks().goTo(call.bars[0]));
      if (call.rank === rank) row.classList.add("here");
      came.append(row);
    }
    return [list, element("h3", "", "Ranks as they came"), came];
  }

  // The longest waits of a rank in a step or a part of one.
  within(bar) {
    const end = bar.start + bar.duration;
    const waits = this.ranks().bars.filter((each) => each.waits && each.rank === bar.rank && each.start < end && each.start + each.duration > bar.start);
    if (!waits.length) return [element("p", "hint", "No wait for another rank.")];
    const list = element("ol", "links");
    for (const each of waits.sort((a, b) => b.duration - a.duration).slice(0, MOST_LINES)) {
      list.append(this.row("wait", each.title, each.names, duration(each.duration * 1e6), () => this.ranks().goTo(each)));
    }
    return [element("h3", "", "Longest waits"), list];
  }
}

// The choice of a step: at first the steady one in which ranks waited longest.
function chooseStep(ranks) {
  const spans = new Map();
  for (const bar of ranks.bars) {
    if (bar.kind !== "step") continue;
    const { start, duration: length, phase } = bar;
    const own = spans.get(bar.step) || { start, end: start, wait: 0, phase };
    spans.set(bar.step, { ...own, start: Math.min(own.start, start), end: Math.max(own.end, start + length) });
  }
  for (const bar of ranks.bars) if (bar.waits && spans.has(bar.step)) spans.get(bar.step).wait += bar.duration;
  const select = document.getElementById("step");
  const option = (value, text) => {
    const made = element("option", "", text);
    made.value = value;
    select.append(made);
  };
  option("", "all");
  for (const [step, { start, end, phase }] of spans) option(step, step + ": " + duration((end - start) * 1e6) + (phase === "warmup" ? " (warm-up)" : ""));
  const show = () => {
    const span = spans.get(Number(select.value));
    if (select.value && span) ranks.chart.zoomTo(span.start, span.end - span.start);
    else ranks.chart.reset();
  };
  select.addEventListener("change", show);
  const steady = [...spans].filter(([, { phase }]) => phase === "steady");
  const best = (steady.length ? steady : [...spans]).sort((a, b) => b[1].wait - a[1].wait)[0];
  if (best) select.value = best[0];
  show();
}

async function main() {
  const chain = new RanksChain(() => ranks);
  const ranks = new Ranks(await unpack("job-data"), (bar) => chain.showBar(bar));
  chooseStep(ranks);
  document.documentElement.dataset.drawn = "yes";

  const search = document.getElementById("search");
  search.addEventListener("input", () => ranks.search(search.value));
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && ranks.best) { ranks.goTo(ranks.best); ranks.zoomTo(ranks.best); }
    if (event.key === "Escape") { search.value = ""; ranks.search(""); }
  });
  zoomButtons("zoom", () => ranks.chart);
  document.getElementById("chain-zoom").addEventListener("click", () => {
    ranks.zoomTo(chain.bar);
    document.getElementById("ranks-picture").scrollIntoView();
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && chain.close());
  ranks.holder.addEventListener("opened", () => chain.panel.hidden || chain.enter(ranks.holder));
  for (const table of document.querySelectorAll(".part table")) {
    const open = (facts, names, from) => {
      ranks.goTo(ranks.named(names));
      if (from) chain.enter(from);
    };
    new Table(table, open, null, (names) => ranks.named(names));
  }
  followSections();
  theme(() => ranks.chart.recolour());
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => ranks.resize(), 100);
  });
  document.documentElement.dataset.ready = "yes";
}

run(main);
