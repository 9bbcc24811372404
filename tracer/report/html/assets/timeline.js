// The timeline of a step: a track for each thread and each stream of the GPU.
class Timeline {
  constructor({ columns, meta }, calls, onSelect) {
    Object.assign(this, columns);
    this.steps = meta.steps;
    this.allSteps = meta.all_steps;
    this.tracks = meta.tracks;
    this.calls = calls;
    this.onSelect = onSelect;
    this.holder = document.getElementById("tracks");
    this.selected = -1;
    this.span = null; // what is measured: [start, end] in ms
    this.holder.addEventListener("mousedown", (event) => this.drag(event), { capture: true });
  }

  // The steady step in the middle by time, or any step if none is steady.
  usual() {
    const numbers = [...this.steps.keys()];
    const steady = numbers.filter((number) => this.steps[number].phase === "steady");
    const sorted = (steady.length ? steady : numbers).sort((a, b) => this.steps[a].wall_ns - this.steps[b].wall_ns);
    return sorted[Math.floor((sorted.length - 1) / 2)];
  }

  show(number) {
    const step = this.steps[number];
    this.number = number;
    this.selected = -1;
    if (this.span) this.onMeasure(null); // of another step
    this.span = null;
    const bars = new Array(step.count);
    const tracks = new Map();
    for (let place = 0; place < step.count; place++) {
      const event = step.first + place;
      const track = this.track[event];
      const bar = { start: this.start[event] / 1e6, duration: this.length[event] / 1e6, type: this.typeOf(event), event, level: 0, children: [] };
      bar.name = bar;
      bars[place] = bar;
      if (!tracks.has(track)) tracks.set(track, { roots: [], levels: 1 });
      const drawn = tracks.get(track);
      const parent = this.parent[event];
      if (parent >= 0 && this.track[step.first + parent] === track) {
        bar.level = bars[parent].level + 1;
        bars[parent].children.push(bar);
        drawn.levels = Math.max(drawn.levels, bar.level + 1);
      } else {
        drawn.roots.push(bar);
      }
    }
    this.bars = bars;
    this.addRanges(step, tracks);
    // `parent` of an event is a place within its step; drawing needs the event.
    this.launches = [];
    for (let event = step.first; event < step.first + step.count; event++) {
      const parent = this.parent[event];
      if (parent >= 0 && this.track[step.first + parent] !== this.track[event]) this.launches.push(event);
    }
    this.draw(step, tracks);
    this.note(step);
  }

  // The ranges of record_function have a track above the calls of their thread, and more if they overlap.
  addRanges(step, tracks) {
    const bars = step.ranges.map((range, number) => ({ start: range.start / 1e6, duration: range.length / 1e6, type: "range", range: number, level: 0, children: [] }));
    bars.forEach((bar, number) => {
      bar.name = bar;
      const { parent, track, lane } = step.ranges[number];
      const place = track - 1 / (2 + lane);
      if (!tracks.has(place)) tracks.set(place, { roots: [], levels: 1 });
      const drawn = tracks.get(place);
      if (parent >= 0) {
        bar.level = bars[parent].level + 1;
        bars[parent].children.push(bar);
        drawn.levels = Math.max(drawn.levels, bar.level + 1);
      } else {
        drawn.roots.push(bar);
      }
    });
  }

  trackName(number) {
    const own = this.tracks[Math.ceil(number)].name;
    return Number.isInteger(number) ? own : "ranges of " + own;
  }

  // The step with its parts, what the host waited for, how busy the GPU was, the memory: [title, plugin, height].
  ofStep(step) {
    const bar = (of, level) => ([name, start, length]) => {
      const made = { start: start / 1e6, duration: length / 1e6, type: of || name, level, children: [], said: OF_PHASES[name] || name };
      made.name = made;
      return made;
    };
    this.partBars = step.parts.map(bar("", 1));
    this.waitBars = step.waits.map(bar("waiting", 0));
    const whole = bar("group", 0)([step.name, 0, step.wall_ns]);
    whole.children = this.partBars;
    const curve = (values, most, type, say) => new Curve(values, most, step.wall_ns / 1e6, type, say);
    const found = [["steps and their parts", this.flame([whole]), 2 * (BAR + 1) + 4]];
    if (this.waitBars.length) found.push(["host waits for the GPU", this.flame(this.waitBars), BAR + 5]);
    if (step.busy.length) {
      const each = step.wall_ns / step.busy.length;
      const whole = step.busy.reduce((sum, ns) => sum + ns, 0);
      found.push(["GPU busy: " + percent(whole, step.wall_ns) + " of the step", curve(step.busy, each, "kernel", (ns) => (percent(ns, each) || "0 %") + " busy"), 36]);
    }
    for (const [device, values] of Object.entries(step.memory)) {
      const most = values.reduce((found, value) => Math.max(found, value), 0);
      found.push(["memory of " + device + ": at most " + size(most), curve(values, most, "copy", size), 36]);
    }
    return found;
  }

  flame(data) {
    const flame = new FlameChartPlugin({ data, colors: colours(), name: "track" });
    flame.on("select", ({ node }) => {
      if (!node) return;
      const { event, start, duration: length } = node.source;
      event === undefined ? this.measure([start, start + length]) : this.select(event);
    });
    return flame;
  }

  draw(step, tracks) {
    const shown = this.ofStep(step);
    this.flames = new Map();
    for (const number of [...tracks.keys()].sort((a, b) => a - b)) {
      const { roots, levels } = tracks.get(number);
      const flame = this.flame(roots);
      shown.push([this.trackName(number), flame, levels * (BAR + 1) + 8]);
      this.flames.set(number, flame);
    }
    const plugins = [new Minimap(this), new TimeGridPlugin(), ...shown.flatMap(([title, plugin]) => [new TogglePlugin(title), plugin]), new Arrows(this), new Span(this)];
    if (this.chart) this.chart.destroy();
    const heights = shown.map(([, , height]) => height);
    const height = heights.reduce((sum, each) => sum + each + BAR + 1, 26 + 30);
    this.chart = new Chart(this.holder, plugins, height, " ms", (bar) => this.tip(bar), (bar) => this.say(bar));
    this.chart.extend = (from, to) => this.extend(from, to);
    this.heights = heights;
    this.place();
  }

  // Each track as high as its levels.
  place() {
    this.chart.stack(this.heights, 3);
  }

  resize() {
    this.chart.resize();
    this.place();
  }

  tip(bar) {
    if (bar.said) return [bar.said, [duration(bar.duration * 1e6) + ", from " + duration(bar.start * 1e6) + " after the start of the step"]];
    if (bar.range !== undefined) {
      const { length, start, name } = this.steps[this.number].ranges[bar.range];
      return [name, ["range, " + duration(length) + " of this step, from " + duration(start) + " after its start"]];
    }
    const node = this.node[bar.event];
    const label = this.calls.label[node];
    const lines = [duration(this.length[bar.event]) + ", " + duration(this.start[bar.event]) + " after the start of the step"];
    const inputs = this.calls.column("inputs")[node];
    if (inputs >= 0 && this.calls.column("inputs_count")[node] === 1) lines.push(this.calls.texts[inputs]);
    const kernel = this.calls.of(label, "kernel");
    if (kernel) lines.push(kernel);
    return [this.calls.names[label], lines];
  }

  say(bar) {
    if (bar.said) return [bar.said];
    return bar.range !== undefined ? [this.steps[this.number].ranges[bar.range].name] : this.calls.say(this.calls.label[this.node[bar.event]]);
  }

  typeOf(event) {
    const node = this.node[event];
    if (!this.calls.byPhase) return this.calls.types[this.calls.label[node]];
    const phase = this.calls.phaseOf(node);
    return PHASES.includes(phase) ? phase : "group";
  }

  recolour() {
    for (const bar of this.bars) bar.type = this.typeOf(bar.event);
    for (const flame of this.flames.values()) flame.initData();
    this.chart.render();
  }

  note(step) {
    const words = [count(step.count, "event") + ", " + duration(step.wall_ns) + "."];
    if (step.left_out) words.push(count(step.left_out, "shorter event") + " left out; all of them: tracer export.");
    if (step.parts_left_out) words.push(count(step.parts_left_out, "shorter part") + " of the step left out.");
    if (step.ranges_left_out) words.push(count(step.ranges_left_out, "range") + " left out.");
    if (step.untimed) words.push(count(step.untimed, "GPU activity").replace("activitys", "activities") + " without times left out.");
    if (this.allSteps > this.steps.length) words.push("The page has " + this.steps.length + " of " + count(this.allSteps, "step") + ": the longest and those nearest to the median.");
    if (this.launches.length > MOST_ARROWS) words.push("Arrows: of the selected call, and of all if at most " + MOST_ARROWS + " are in view.");
    document.getElementById("timeline-note").textContent = words.join(" ");
  }

  // A drag with Shift, with the button pressed, or along the axis measures; any other moves.
  drag(event) {
    const { engine } = this.chart;
    const axis = engine.children[1];
    const inAxis = event.offsetY >= axis.position && event.offsetY < axis.position + axis.height;
    if (event.button || !(event.shiftKey || this.measuring || inAxis)) return;
    event.stopPropagation();
    event.preventDefault();
    this.holder.focus({ preventScroll: true });
    const left = this.chart.canvas.getBoundingClientRect().left;
    const time = (each) => engine.positionX + engine.pixelToTime(Math.max(0, Math.min(engine.width, each.clientX - left)));
    const from = time(event);
    const move = (each) => this.mark([from, time(each)]);
    const stop = (each) => {
      removeEventListener("mousemove", move);
      this.measure(Math.abs(time(each) - from) * engine.zoom > 3 ? [from, time(each)] : null);
    };
    addEventListener("mousemove", move);
    addEventListener("mouseup", stop, { once: true });
  }

  // From one bar to another one, both included.
  extend(from, to) {
    const ends = [from, to].map(({ start, duration: length }) => [start, start + length]);
    this.measure([Math.min(ends[0][0], ends[1][0]), Math.max(ends[0][1], ends[1][1])]);
  }

  mark(span) {
    const wall = this.steps[this.number].wall_ns / 1e6;
    this.span = span && span.map((time) => Math.max(0, Math.min(wall, time))).sort((a, b) => a - b);
    this.chart.render();
  }

  measure(span) {
    this.mark(span);
    this.onMeasure(this.span && new Measured(this, this.span.map((time) => time * 1e6)));
  }

  select(event) {
    this.selected = event;
    this.chosen = null;
    this.chart.render();
    this.onSelect(this.node[event]);
  }

  // The launches below the selected call or work of the GPU; null if nothing is selected.
  related() {
    if (this.selected < 0) return null;
    if (this.chosen) return this.chosen;
    const { first } = this.steps[this.number];
    this.chosen = new Set();
    for (const event of this.launches) {
      for (let each = event; ; each = first + this.parent[each]) {
        if (each === this.selected) this.chosen.add(event);
        if (this.parent[each] < 0) break;
      }
    }
    if (!this.chosen.size) return null;
    return this.chosen;
  }

  inView(event, from, to) {
    const { first } = this.steps[this.number];
    const launched = this.start[first + this.parent[event]] / 1e6;
    const ends = (this.start[event] + this.length[event]) / 1e6;
    return launched <= to && ends >= from;
  }

  // Where an arrow begins (the launching call's end, at its lower edge) or ends (the start of the work).
  point(event, end) {
    const place = end === "start" ? event : event - this.steps[this.number].first;
    const bar = this.bars[place];
    const flame = this.flames.get(this.track[bar.event]);
    const engine = flame.renderEngine;
    if (engine.collapsed || !engine.height) return null;
    const y = bar.level * (BAR + 1) - flame.positionY + (end === "start" ? BAR : 0);
    if (y < 0 || y > engine.height) return null;
    const time = end === "start" ? bar.start + bar.duration / 2 : bar.start;
    return { x: engine.timeToPosition(time), y: engine.position + y };
  }
}
