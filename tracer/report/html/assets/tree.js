// The calls in the order of a grouping: groups (modules, lines, ...) above, calls below, equal ones merged.
const GROUPINGS = { module: "module", line: "line", op: "op", key: "key" };
const COLOURINGS = { phase: "phase", kind: "kind" };
const MEASURES = { host: "host time", gpu: "GPU time", calls: "calls" };
const OUTSIDE = "outside ops";
const NONE = { module: "no module", line: "no Python line", key: "no key" };

class Tree {
  constructor(calls, grouping) {
    this.calls = calls;
    this.grouping = grouping;
    this.parent = [];
    this.label = []; // of a call; -1: a group
    this.text = []; // of a group
    this.type = []; // of a group
    this.first = []; // of the nodes that it has, the first; `next` has the one after each
    this.next = new Int32Array(calls.size).fill(-1);
    this.groups = new Map();
    this.slots = new Int32Array(2 ** Math.ceil(Math.log2(2 * calls.size + 2))).fill(-1);
    grouping === "key" ? this.byKey() : this.byOrigin();
    this.gaps = new Map(); // time outside ops: of a group the lines around it
    for (const gap of calls.outside) this.gaps.set(this.group(this.group(-1, OUTSIDE, "outside"), gap.lines, "outside"), gap);
    this.groups = this.slots = null;
    this.values = {};
  }

  get size() {
    return this.parent.length;
  }

  add(parent, label, text, type) {
    this.parent.push(parent);
    this.label.push(label);
    this.text.push(text);
    this.type.push(type);
    this.first.push(-1);
    return this.parent.length - 1;
  }

  group(parent, name, type) {
    const key = parent + "\n" + type + "\n" + name;
    if (!this.groups.has(key)) this.groups.set(key, this.add(parent, -1, name, type));
    return this.groups.get(key);
  }

  // A hash table in typed arrays: a Map takes several times as long for a million calls.
  call(parent, label) {
    const { slots } = this;
    const mask = slots.length - 1;
    let slot = (Math.imul(parent + 1, 0x9e3779b1) ^ Math.imul(label + 1, 0x85ebca6b)) >>> 7;
    for (slot &= mask; slots[slot] >= 0; slot = (slot + 1) & mask) {
      const node = slots[slot];
      if (this.parent[node] === parent && this.label[node] === label) return node;
    }
    slots[slot] = this.add(parent, label, "", "");
    return slots[slot];
  }

  has(place, node) {
    this.next[node] = this.first[place];
    this.first[place] = node;
  }

  *nodes(place) {
    for (let node = this.first[place]; node >= 0; node = this.next[node]) yield node;
  }

  // module, line, op: groups of where the outermost call came from, then the calls as they were made.
  byOrigin() {
    const { calls } = this;
    const above = new Map();
    const place = new Int32Array(calls.size);
    for (let node = 0; node < calls.size; node++) {
      let parent;
      if (calls.parent[node] >= 0) {
        parent = place[calls.parent[node]];
      } else {
        const origin = calls.origin[node];
        if (!above.has(origin)) above.set(origin, this.groupsOf(origin));
        parent = above.get(origin);
      }
      place[node] = this.call(parent, calls.label[node]);
      this.has(place[node], node);
    }
    this.place = place;
  }

  groupsOf(origin) {
    const { calls, grouping } = this;
    if (grouping === "op") return -1;
    const line = calls.ofOrigin(origin, "line") || NONE.line;
    const backward = calls.ofOrigin(origin, "backward");
    let parent = -1;
    if (grouping === "module") {
      const module = calls.ofOrigin(origin, "module") || NONE.module;
      for (const each of calls.modules[module] || [module]) parent = this.group(parent, each, "module");
    }
    parent = this.group(parent, line, "group");
    return backward ? this.group(parent, "backward", "group") : parent;
  }

  // key: the own time of hops, by key, then by op and kernel function, then by line.
  byKey() {
    const { calls } = this;
    this.place = new Int32Array(calls.size).fill(-1);
    for (let node = 0; node < calls.size; node++) {
      const label = calls.label[node];
      if (!calls.hop[label] && calls.parent[node] >= 0) continue;
      const key = calls.hop[label] ? calls.of(label, "key") || NONE.key : "calls outside ops";
      const call = this.call(this.group(-1, key, "module"), label);
      const line = calls.ofOrigin(calls.origin[node], "line") || NONE.line;
      const place = this.group(call, line, "group");
      this.place[node] = place;
      this.has(place, node);
    }
  }

  // The width of each node in ns or calls.
  width(measure) {
    if (this.values[measure]) return this.values[measure];
    const { calls } = this;
    const found = new Float64Array(this.size);
    const rows = calls.column("rows");
    const own = this.grouping === "key";
    const time = measure === "calls" ? null : calls.column({ host: own ? "own_ns" : "host_ns", gpu: own ? "own_gpu_ns" : "gpu_ns" }[measure]);
    for (let node = 0; node < calls.size; node++) {
      const place = this.place[node];
      if (place < 0) continue;
      if (time) found[place] += time[node];
      else if (calls.hop[calls.label[node]]) found[place] += rows[node];
    }
    if (measure === "host") for (const [place, gap] of this.gaps) found[place] = gap.ns;
    // A call has its own time with all below it; a group, and any count, is the sum of what is in it.
    for (let place = this.size - 1; place >= 0; place--) {
      const parent = this.parent[place];
      if (parent >= 0 && (measure === "calls" || own || this.label[parent] < 0)) found[parent] += found[place];
    }
    this.values[measure] = found;
    return found;
  }

  name(place) {
    return this.label[place] < 0 ? this.text[place] : this.calls.names[this.label[place]];
  }

  // What its bar says (see `fitted`): of a module or a file the last part; of lines their text, too.
  say(place) {
    if (this.label[place] >= 0) return this.calls.say(this.label[place]);
    const text = this.text[place];
    const number = text.replace(/[^ ]*(?=:\d)/g, "");
    const gap = this.gaps.get(place);
    if (gap) return [text.replace(/[^ ]*\//g, ""), gap.said, number];
    if (this.type[place] === "group") return [text.slice(text.lastIndexOf("/") + 1), this.calls.lines.get(text) || "", number];
    const parent = this.parent[place];
    const above = parent >= 0 && this.label[parent] < 0 ? this.text[parent] + "." : "";
    return [above && text.startsWith(above) ? text.slice(above.length) : text, "", ""];
  }

  typeOf(place) {
    if (this.type[place] === "outside") return "outside";
    if (this.calls.byPhase) return PHASES.includes(this.phase(place)) ? this.phase(place) : "group";
    return this.label[place] < 0 ? this.type[place] : this.calls.types[this.label[place]];
  }

  // The phase that all calls of a place are of; "several": they are of several.
  phase(place) {
    this.phases ||= this.ofPhases();
    return this.phases[place];
  }

  // A group, and what has no calls of its own, is of the phases of what is in it.
  ofPhases() {
    const found = new Array(this.size).fill("");
    const add = (place, phase) => (found[place] = found[place] && found[place] !== phase ? "several" : phase);
    for (let node = 0; node < this.calls.size; node++) if (this.place[node] >= 0) add(this.place[node], this.calls.phaseOf(node));
    for (let place = this.size - 1; place >= 0; place--) {
      const parent = this.parent[place];
      if (parent >= 0 && this.first[parent] < 0) add(parent, found[place]);
    }
    return found;
  }

  // What flame-chart-js draws: nested bars, the widest first, time outside ops last. Bars of no width are left out, and counted.
  // A tree may have a million nodes: nothing here is made for a node but its bar. `least`: a part of the whole; bars
  // that are narrower are not made, but that there are levels of them is known.
  bars(measure, least = 0) {
    const width = this.width(measure);
    const scale = measure === "calls" ? 1 : 1e6;
    const first = new Int32Array(this.size + 1).fill(-1); // by parent + 1; `after`: the next with this parent
    const after = new Int32Array(this.size);
    const made = new Array(this.size).fill(null);
    const depth = new Int16Array(this.size); // 0: has no bar
    let [leftOut, levels, total] = [0, 0, 0];
    for (let place = 0; place < this.size; place++) {
      const parent = this.parent[place];
      if (!(width[place] > 0)) leftOut += 1;
      else if (parent < 0 || depth[parent]) depth[place] = parent < 0 ? 1 : depth[parent] + 1;
      levels = Math.max(levels, depth[place]);
      if (parent < 0 && depth[place]) total += width[place];
    }
    for (let place = this.size - 1; place >= 0; place--) {
      if (!depth[place] || (this.parent[place] >= 0 && width[place] < least * total)) continue;
      const above = this.parent[place] + 1;
      after[place] = first[above];
      first[above] = place;
    }
    const below = (place, from, level) => {
      const places = [];
      for (let each = first[place + 1]; each >= 0; each = after[each]) places.push(each);
      const isOutside = (each) => place < 0 && this.type[each] === "outside";
      if (places.length > 1) places.sort((a, b) => isOutside(a) - isOutside(b) || width[b] - width[a]);
      let start = from;
      return places.map((each) => {
        const duration = width[each] / scale;
        const bar = { start, duration, type: "group", place: each, level, children: null };
        bar.name = bar; // its text is made when it is drawn
        start += duration;
        made[each] = bar;
        return bar;
      });
    };
    const roots = below(-1, 0, 0);
    const waiting = roots.slice();
    while (waiting.length) {
      const bar = waiting.pop();
      if (first[bar.place + 1] < 0) continue;
      bar.children = below(bar.place, bar.start, bar.level + 1);
      for (const child of bar.children) waiting.push(child);
    }
    return { roots, made, levels, total, leftOut };
  }
}
