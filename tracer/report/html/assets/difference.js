// The page of a difference: what a step spends before and after, as two flame graphs with one scale.
const SIDES = ["before", "after"];
const LEAST_FACTOR = 1.1; // of a bar for which no rule decides
const MOST_OF_A_SIDE = 330; // pixels
const WORDS = {
  slower: "\u25b2 slower, or only after",
  faster: "\u25bc faster, or only before",
  longer: "\u25b3 longer, not decided",
  shorter: "\u25bd shorter, not decided",
  same: "no change, or the machine",
};
const DECIDED = { slower: "slower", new: "slower", faster: "faster", vanished: "faster", "": "open" };

// The calls of both sides. `changes` are the rows by line: what names them, their cells, ns of both sides, verdicts of
// host and GPU. `rows` has the cells of lines, ops and modules by name.
class BothCalls extends Calls {
  constructor(data) {
    super(data);
    const { sides, titles, rows, changes, outside } = data.meta;
    Object.assign(this, { sides, titles, changes });
    this.rows = Object.fromEntries(Object.entries(rows).map(([by, figures]) => [by, new Map(Object.entries(figures))]));
    this.outside = outside.map(([lines, ns, cells]) => ({ lines, ns, cells, said: "", verdicts: [cells[3], "no change"] }));
  }
}

class BothTree extends Tree {
  // What a step spends on each side, in ns.
  widths(measure) {
    return (this.values[measure] ||= SIDES.map((side, number) => {
      const found = new Float64Array(this.size);
      const time = this.calls.column(side + { host: "_ns", gpu: "_gpu_ns" }[measure]);
      for (let node = 0; node < this.calls.size; node++) found[this.place[node]] += time[node];
      if (measure === "host") for (const [place, gap] of this.gaps) found[place] = gap.ns[number];
      for (let place = this.size - 1; place >= 0; place--) {
        const parent = this.parent[place];
        if (parent >= 0 && this.label[parent] < 0) found[parent] += found[place];
      }
      return found;
    }));
  }

  // What is decided of the kinds in each place, or that a call is in: `slower`, `faster`, `open`.
  decisions(measure) {
    const found = this.parent.map(() => new Set());
    const own = this.calls.changes.map((kind) => DECIDED[kind.verdicts[measure === "gpu" ? 1 : 0]]);
    const change = this.calls.column("change");
    for (let node = 0; node < this.calls.size; node++) found[this.place[node]].add(own[change[node]]);
    for (const [place, gap] of this.gaps) found[place].add(DECIDED[gap.verdicts[0]]);
    for (let place = this.size - 1; place >= 0; place--) {
      if (this.parent[place] >= 0) for (const each of found[place]) found[this.parent[place]].add(each);
    }
    return found;
  }

  // The figures of the row that is about this bar and nothing else.
  row(place) {
    const { calls, grouping } = this;
    const parent = this.parent[place];
    if (this.gaps.has(place)) return this.gaps.get(place).cells;
    if (this.label[place] < 0) {
      if (this.type[place] === "module") return calls.rows.module.get(this.text[place]);
      const backward = parent >= 0 && this.text[place] === "backward";
      return grouping === "line" ? calls.rows.line.get(backward ? this.text[parent] + " (backward)" : this.text[place]) : null;
    }
    if (parent >= 0 && this.label[parent] >= 0) return null;
    if (grouping === "op") return calls.rows.op.get(calls.of(this.label[place], "op"));
    const kind = calls.changes[calls.column("change")[this.first[place]]];
    return this.widths("host").every((width, side) => Math.abs(width[place] - kind.ns[side]) < 9) ? kind.cells : null;
  }

  facts(place, measure) {
    const row = this.row(place);
    if (row) return this.calls.titles.map((title, column) => [title, row[column]]).filter(([, cell]) => cell);
    return factsOf(this.widths(measure).map((width) => width[place]));
  }

  // Bars of both sides: siblings in one order, the outermost at the same place.
  bars(measure) {
    const widths = this.widths(measure);
    const decided = this.decisions(measure);
    const most = (place) => Math.max(widths[0][place], widths[1][place]);
    const inside = new Map();
    for (let place = 0; place < this.size; place++) {
      if (!most(place)) continue;
      if (!inside.has(this.parent[place])) inside.set(this.parent[place], []);
      inside.get(this.parent[place]).push(place);
    }
    const drawn = { roots: [[], []], made: [[], []], levels: [0, 0], types: new Set() };
    const isOutside = (place) => this.type[place] === "outside";
    const lay = (parent, starts, level, bars) => {
      const places = (inside.get(parent) || []).sort((a, b) => isOutside(a) - isOutside(b) || most(b) - most(a));
      for (const place of places) {
        const type = this.change(place, widths, measure, decided[place]);
        const made = [0, 1].map((side) => this.bar(place, side, starts[side], widths[side][place], type, level));
        made.forEach((bar, side) => {
          if (!bar.duration) return;
          bars[side].push(bar);
          drawn.made[side][place] = bar;
          drawn.levels[side] = Math.max(drawn.levels[side], level + 1);
        });
        drawn.types.add(type);
        lay(place, starts, level + 1, made.map((bar) => bar.children));
        starts = starts.map((start, side) => start + (level ? widths[side][place] : most(place)) / 1e6);
      }
    };
    lay(-1, [0, 0], 0, drawn.roots);
    return drawn;
  }

  bar(place, side, start, width, type, level) {
    const bar = { start, duration: width / 1e6, type, change: type, place, side, level, children: [] };
    bar.name = bar; // its text is made when it is drawn
    return bar;
  }

  // The row decides; of other bars the way they changed themselves, if that is decided of a kind in or around them.
  change(place, widths, measure, decided) {
    const [before, after] = widths.map((width) => width[place]);
    const row = measure === "host" && this.row(place);
    if (row) decided = new Set([DECIDED[row[3]]]);
    if (after > before && decided.has("slower")) return "slower";
    if (after < before && decided.has("faster")) return "faster";
    const open = decided.has("open") && Math.max(after / before, before / after) > LEAST_FACTOR;
    return !open ? "same" : after > before ? "longer" : "shorter";
  }
}

function factsOf([before, after]) {
  const facts = [["before", before ? duration(before) : ""], ["after", after ? duration(after) : ""]];
  return [...facts, ["ratio", before && after ? (after / before).toFixed(2) : ""]].filter(([, cell]) => cell);
}

class BothFlames {
  constructor(calls, onSelect) {
    Object.assign(this, { calls, onSelect, trees: {}, query: "" });
    this.found = document.getElementById("found");
  }

  treeOf(grouping) {
    return (this.trees[grouping] ||= new BothTree(this.calls, grouping));
  }

  show(grouping, measure) {
    this.measure = measure;
    this.tree = this.treeOf(grouping);
    this.drawn = this.tree.bars(measure);
    this.colourBars();
    if (this.chart) this.chart.destroy();
    this.flames = this.drawn.roots.map((data, side) => new FlameChartPlugin({ data, colors: colours(), name: SIDES[side] }));
    for (const flame of this.flames) flame.on("select", ({ node }) => node && this.onSelect(this.tree, node.source.place));
    const titles = SIDES.map((side, number) => new TogglePlugin(side + ": " + this.calls.sides[number]));
    this.heights = this.drawn.levels.map((levels) => Math.min(Math.max(levels, 1) * (BAR + 1) + 8, MOST_OF_A_SIDE));
    const height = this.heights.reduce((sum, each) => sum + each + BAR + 1, 26);
    const plugins = [new TimeGridPlugin(), ...this.flames.flatMap((flame, side) => [titles[side], flame])];
    this.chart = new Chart(document.getElementById("icicle"), plugins, height, " ms", (bar) => this.tip(bar), (bar) => this.say(bar));
    this.chart.stack(this.heights, 2);
    legend("legend", WORDS, this.drawn.types);
  }

  resize() {
    this.chart.resize();
    this.chart.stack(this.heights, 2);
  }

  tip(bar) {
    const facts = this.tree.facts(bar.place, this.measure).map(([title, cell]) => title + " " + cell);
    return [this.tree.name(bar.place), [facts.join(", "), WORDS[bar.change].replace(/^\W+/, "")]];
  }

  // The sign of its colour, then as any bar.
  say({ place, change }) {
    const sign = change === "same" ? "" : WORDS[change].slice(0, 2);
    const [name, more, short] = this.tree.say(place);
    return [sign + name, more, short && sign + short];
  }

  search(query) {
    this.query = query.trim().toLowerCase();
    this.colourBars();
    for (const flame of this.flames) flame.initData();
    this.chart.render();
  }

  colourBars() {
    const matches = (bar) => (this.tree.name(bar.place) + " " + (this.calls.of(this.tree.label[bar.place], "kernel") || "")).toLowerCase().includes(this.query);
    this.best = null;
    let number = 0;
    for (const bar of this.drawn.made.flat()) {
      if (!bar) continue;
      const match = this.query && matches(bar);
      bar.type = !this.query ? bar.change : match ? "match" : "dim";
      if (!match) continue;
      number += 1;
      if (!this.best || bar.duration > this.best.duration) this.best = bar;
    }
    this.found.textContent = !this.query ? "" : number ? count(number, "bar") + ". Enter: zoom to the widest." : "No bar matches.";
  }

  // The bar after, or that before of what vanished.
  mark(place, zoom) {
    const bar = this.drawn.made[1][place] || this.drawn.made[0][place];
    if (!bar) return;
    this.flames.forEach((flame, side) => {
      const data = side === bar.side && flame.flatTree.find((each) => each.source === bar);
      flame.selectedRegion = data ? { data, type: "node" } : null;
    });
    if (zoom) this.chart.zoomTo(bar.start, bar.duration);
    else this.chart.render();
  }
}

// The panel: a chain with what each call takes before and after.
class BothChain extends Chain {
  // Time outside ops has no calls.
  showBar(tree, place, facts) {
    if (!tree.gaps.has(place)) return super.showBar(tree, place, facts);
    this.node = -1;
    this.fill(tree.name(place) + ": " + OUTSIDE, facts, []);
  }

  facts(nodes) {
    const sum = (name) => nodes.reduce((total, node) => total + this.calls.column(name)[node], 0);
    const onGpu = nodes.every((node) => this.calls.onGpu(node));
    return factsOf(SIDES.map((side) => sum(side + (onGpu ? "_gpu_ns" : "_ns"))));
  }

  cost(node) {
    const [one, other] = SIDES.map((side) => {
      const ns = this.calls.column(side + (this.calls.onGpu(node) ? "_gpu_ns" : "_ns"))[node];
      const calls = this.calls.column(side + "_calls")[node];
      return calls ? duration(ns) + ", " + calls.toLocaleString("en-US") + " x" : "none";
    });
    return one + " \u2192 " + other;
  }

  lines() {
    return [];
  }
}

// The place that a row is about, in the tree in which it is one bar: [tree, place], or nothing.
function placeOf(flames, calls, section, names) {
  const grouping = section.replace(/s$/, "");
  if (!["line", "op", "module"].includes(grouping)) return null;
  const tree = flames.treeOf(grouping);
  const change = calls.column("change");
  const group = tree.text.findIndex((text, place) => text === names[0] && (tree.gaps.has(place) || tree.type[place] === "module"));
  if (group >= 0 || grouping === "module") return group < 0 ? null : [tree, group];
  const fits = (node) => (grouping === "op" ? calls.of(calls.label[node], "op") === names[0] : calls.changes[change[node]].names.every((name) => names.includes(name)));
  const node = calls.parent.findIndex((parent, each) => parent < 0 && fits(each));
  return node < 0 ? null : [tree, tree.place[node]];
}

async function main() {
  const calls = new BothCalls(await unpack("tree-data"));
  const chain = new BothChain(calls);
  const flames = new BothFlames(calls, (tree, place) => chain.showBar(tree, place, tree.facts(place, flames.measure)));
  const view = { grouping: "line", measure: "host" };
  const show = () => flames.show(view.grouping, view.measure);
  const hasModules = calls.columns["origins.module"].some((text) => text >= 0);
  choices("grouping", hasModules ? { line: "line", module: "module", op: "op" } : { line: "line", op: "op" }, "line", (value) => { view.grouping = value; show(); });
  const hasGpu = SIDES.some((side) => calls.sum(side + "_gpu_ns"));
  choices("measure", hasGpu ? { host: "host time", gpu: "GPU time" } : { host: "host time" }, "host", (value) => { view.measure = value; show(); });
  show();
  document.documentElement.dataset.drawn = "yes";

  const search = document.getElementById("search");
  search.addEventListener("input", () => flames.search(search.value));
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && flames.best) flames.mark(flames.best.place, true);
    if (event.key === "Escape") { search.value = ""; flames.search(""); }
  });
  zoomButtons("zoom", () => flames.chart);
  document.getElementById("chain-zoom").addEventListener("click", () => {
    flames.mark(flames.tree.place[chain.node], true);
    document.getElementById("time").scrollIntoView();
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && chain.close());
  const holder = document.getElementById("icicle");
  holder.addEventListener("opened", () => chain.panel.hidden || chain.enter(holder));

  for (const table of document.querySelectorAll(".part table")) {
    const section = table.closest(".part").id;
    new Table(table, (facts, names, from) => {
      const found = placeOf(flames, calls, section, names);
      if (!found) return;
      chain.showBar(...found, facts);
      if (from) chain.enter(from);
      flames.mark(flames.tree.place[chain.node], false);
    }, null);
  }
  followSections();
  theme(() => flames.chart.recolour());
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => flames.resize(), 100);
  });
  document.documentElement.dataset.ready = "yes";
}

run(main);
