// The flame graph: groups and calls, as wide as the time or the calls in them.
const MOST_HEIGHT = 700;
// Of a larger tree the bars that can be seen before one zooms are drawn first, and all of them once the page is idle.
const LARGE = 50000;
const SEEN = 1 / 5000; // of the width

class Icicle {
  constructor(calls, onSelect) {
    this.calls = calls;
    this.onSelect = onSelect;
    this.trees = {};
    this.holder = document.getElementById("icicle");
    this.flame = new FlameChartPlugin({ data: [], colors: colours(), name: "calls" });
    this.flame.on("select", ({ node }) => node && this.onSelect(this.tree, node.source.place));
    this.found = document.getElementById("found");
    this.query = "";
  }

  show(grouping, measure) {
    this.trees[grouping] ||= new Tree(this.calls, grouping);
    this.tree = this.trees[grouping];
    this.measure = measure;
    this.incomplete = this.tree.size > LARGE;
    this.drawn = this.tree.bars(measure, this.incomplete ? SEEN : 0);
    this.colourBars();
    const height = Math.min(Math.max(this.drawn.levels * (BAR + 1) + 26, 120), MOST_HEIGHT);
    const units = measure === "calls" ? " calls" : " ms";
    if (this.chart) this.chart.destroy();
    this.flame = new FlameChartPlugin({ data: this.drawn.roots, colors: colours(), name: "calls" });
    this.flame.on("select", ({ node }) => node && this.onSelect(this.tree, node.source.place));
    this.chart = new Chart(this.holder, [new TimeGridPlugin(), this.flame], height, units, (bar) => this.tip(bar), (bar) => this.tree.say(bar.place));
    this.chart.canvas.addEventListener("dblclick", () => {
      const found = this.flame.selectedRegion;
      if (found) this.chart.zoomTo(found.data.source.start, found.data.source.duration);
    });
    this.note();
  }

  // All bars: what is searched for, marked or zoomed to may be narrow.
  complete() {
    if (!this.incomplete) return;
    this.incomplete = false;
    const chosen = this.flame.selectedRegion && this.flame.selectedRegion.data.source.place;
    this.drawn = this.tree.bars(this.measure);
    this.colourBars();
    this.flame.data = this.drawn.roots;
    this.flame.parseData();
    this.flame.initData();
    if (chosen) this.mark(chosen, false);
    else this.chart.render();
  }

  // The bar of a place of the tree; null: it has no width.
  bar(place) {
    this.complete();
    return this.drawn.made[place];
  }

  value(width) {
    return this.measure === "calls" ? count(width, "call") : duration(width);
  }

  tip(bar) {
    const width = this.tree.width(this.measure)[bar.place];
    const gap = this.tree.gaps.get(bar.place);
    if (gap) return [this.tree.name(bar.place), [duration(gap.ns) + " " + OUTSIDE + ", " + percent(width, this.drawn.total), count(gap.gaps, "gap") + ", the longest " + duration(gap.longest)]];
    const lines = [this.value(width) + " " + (this.measure === "gpu" ? "on the GPU" : this.measure === "host" ? "on the host" : "with those in it") + ", " + percent(width, this.drawn.total)];
    const label = this.tree.label[bar.place];
    const phase = this.tree.phase(bar.place);
    if (phase !== "other") lines.push(phase === "several" ? "several phases" : phase);
    if (label >= 0) {
      const kernel = this.calls.of(label, "kernel");
      if (kernel) lines.push(kernel);
      lines.push(this.calls.kinds[label]);
    }
    return [this.tree.name(bar.place), lines];
  }

  note() {
    const { drawn, measure } = this;
    const unit = { host: "host time", gpu: "GPU time", calls: "hops" }[measure];
    const outside = measure === "host" ? this.calls.total.outside : 0;
    const words = [...this.calls.said, "All " + this.value(drawn.total - outside) + (measure === "calls" ? " of the dispatcher" : measure === "host" ? " in ops, summed over threads" : " of the GPU") + (outside ? ", and " + duration(outside) + " " + OUTSIDE : "") + "."];
    if (drawn.leftOut) words.push(count(drawn.leftOut, "bar") + " without " + unit + " left out.");
    if (this.tree.grouping === "key") words.push("By key: the own time of each hop.");
    document.getElementById("icicle-note").textContent = words.join(" ");
  }

  search(query) {
    this.query = query.trim();
    this.complete();
    this.recolour();
  }

  recolour() {
    this.colourBars();
    this.flame.initData();
    this.chart.render();
  }

  matches(query) {
    const wanted = query.toLowerCase();
    const ofLabel = this.calls.searched.map((text) => text.includes(wanted));
    const { tree } = this;
    return (place) => (tree.label[place] < 0 ? tree.text[place].toLowerCase().includes(wanted) : ofLabel[tree.label[place]]);
  }

  // Colours by phase or kind; while something is searched for, those that match and all others.
  colourBars() {
    const { tree, drawn } = this;
    this.best = null;
    if (!this.query) {
      for (const bar of drawn.made) if (bar) bar.type = tree.typeOf(bar.place);
      this.found.textContent = "";
      return;
    }
    const matches = this.matches(this.query);
    const width = tree.width(this.measure);
    const inside = new Uint8Array(tree.size); // a match is around it: it counts once
    let total = 0;
    let number = 0;
    for (let place = 0; place < tree.size; place++) {
      const bar = drawn.made[place];
      const match = matches(place);
      const parent = tree.parent[place];
      const around = parent >= 0 && inside[parent];
      inside[place] = match || around ? 1 : 0;
      if (!bar) continue;
      bar.type = match ? "match" : "dim";
      if (match) {
        number += 1;
        if (!around) total += width[place];
        if (!around && (this.best === null || width[place] > width[this.best])) this.best = place;
      }
    }
    this.found.textContent = number
      ? count(number, "bar") + ": " + this.value(total) + ", " + percent(total, drawn.total) + ". Enter: zoom to the widest."
      : "No bar matches.";
  }

  // Selects the bar of a place of the tree, as if it was clicked.
  select(place, zoom) {
    this.mark(place, zoom);
    this.onSelect(this.tree, place);
  }

  mark(place, zoom) {
    const bar = this.bar(place);
    if (!bar) return;
    const node = this.flame.flatTree.find((each) => each.source === bar);
    this.flame.selectedRegion = { data: node, type: "node" };
    if (zoom) this.chart.zoomTo(bar.start, bar.duration);
    else this.chart.render();
  }
}
