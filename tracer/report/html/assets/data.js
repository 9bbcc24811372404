// The data of the page: base64 of gzip of columns of numbers (tracer/report/html/columns.py).
async function unpack(id) {
  const text = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place++) bytes[place] = text.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const plain = await new Response(stream).arrayBuffer();
  const length = new DataView(plain).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(plain, 4, length)));
  const types = { int8: Int8Array, int16: Int16Array, int32: Int32Array, float64: Float64Array };
  const columns = {};
  for (const [name, [type, offset, count]] of Object.entries(header.columns)) {
    columns[name] = new types[type](plain, 4 + length + offset, count);
  }
  return { columns, meta: header.meta };
}

function duration(ns) {
  if (Math.abs(ns) < 995) return (ns / 1e3).toFixed(2) + " us";
  if (Math.abs(ns) < 999950) return (ns / 1e3).toFixed(1) + " us";
  if (Math.abs(ns) < 999950000) return (ns / 1e6).toFixed(1) + " ms";
  return (ns / 1e9).toFixed(1) + " s";
}

function size(bytes) {
  const power = Math.min(Math.floor(Math.log2(bytes || 1) / 10), 4);
  return (bytes / 1024 ** power).toFixed(power ? 1 : 0) + [" B", " KiB", " MiB", " GiB", " TiB"][power];
}

function count(number, noun) {
  return number.toLocaleString("en-US") + " " + noun + (number === 1 ? "" : "s");
}

function percent(part, whole) {
  if (!whole) return "";
  const text = ((100 * part) / whole).toFixed(1) + " %";
  return part && text === "0.0 %" ? "< 0.1 %" : text;
}

// An element with text: the only way in which names come into the page, apart from the canvas.
function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

const HOPS = new Set(["call", "redispatch"]);
const ON_GPU = new Set(["kernel", "memcpy", "memset"]);

// The calls of the trace as a tree; nodes come after their parents.
class Calls {
  constructor({ columns, meta }) {
    this.texts = meta.texts;
    this.stacks = meta.stacks;
    this.said = meta.said;
    this.modules = meta.modules; // of a module in others: all of them, the outermost first
    this.outside = meta.outside.map(([lines, ns, gaps, longest, said]) => ({ lines, ns, gaps, longest, said }));
    this.parent = columns["nodes.parent"];
    this.label = columns["nodes.label"];
    this.origin = columns["nodes.origin"];
    this.size = this.parent.length;
    this.column = (name) => columns["nodes." + name];
    this.labels = columns["labels.op"].length;
    this.columns = columns;
    this.kinds = Array.from(columns["labels.kind"], (text) => this.texts[text]);
    this.names = this.kinds.map((kind, label) => this.nameOf(label));
    // What a bar says: the middle of a long text is left out there, so nothing in front that all have.
    this.shortNames = this.names.map((name) => name.replace(/^aten::/, "").replace(/^(void|std::enable_if\S*) /, ""));
    this.hop = Uint8Array.from(this.kinds, (kind) => (HOPS.has(kind) ? 1 : 0));
    // By label, in lower case: what a search looks at.
    this.searched = this.names.map((name, label) => (name + " " + (this.of(label, "kernel") || "")).toLowerCase());
    this.types = this.kinds.map((kind, label) => this.typeOf(label));
    this.phases = Array.from(columns["origins.phase"], (text) => (text < 0 ? "other" : this.texts[text]));
    this.lines = new Map(Array.from(columns["origins.line"], (text, origin) => [this.texts[text], this.ofOrigin(origin, "said")]));
    this.byPhase = new Set(this.phases).size > 1; // what colours mean: phases, or kinds of calls
    const outside = this.outside.reduce((sum, gap) => sum + gap.ns, 0);
    this.total = { host: this.sum("own_ns") + outside, gpu: this.sum("own_gpu_ns"), calls: 0, outside };
    for (let node = 0; node < this.size; node++) {
      if (this.hop[this.label[node]]) this.total.calls += this.column("rows")[node];
    }
  }

  sum(name) {
    let total = 0;
    for (const value of this.column(name)) total += value;
    return total;
  }

  of(label, name) {
    const text = this.columns["labels." + name][label];
    return text < 0 ? "" : this.texts[text];
  }

  ofOrigin(origin, name) {
    const text = this.columns["origins." + name][origin];
    return text < 0 ? "" : this.texts[text];
  }

  nameOf(label) {
    const op = this.of(label, "op") || "an unknown op";
    return HOPS.has(this.kinds[label]) ? op + " [" + (this.of(label, "key") || "?") + "]" : op;
  }

  // What the bar of a call says: see `fitted`.
  say(label) {
    const name = this.shortNames[label];
    return [name, "", this.hop[label] ? name.slice(0, name.lastIndexOf(" [")) : ""];
  }

  isNamed(label, text) {
    if (this.names[label] === text || ["op", "table_name", "kernel", "key"].some((name) => this.of(label, name) === text)) return true;
    return text.endsWith("...") && text.length > 20 && ["op", "table_name"].some((name) => this.of(label, name).startsWith(text.slice(0, -3)));
  }

  isFrom(origin, text) {
    const module = this.ofOrigin(origin, "module");
    return (this.modules[module] || [module]).includes(text) || this.ofOrigin(origin, "line") === text || this.ofOrigin(origin, "called_from") === text;
  }

  // The outermost nodes that fit, by label and by origin.
  outermost(fits) {
    const inside = new Uint8Array(this.size);
    const found = [];
    for (let node = 0; node < this.size; node++) {
      const parent = this.parent[node];
      inside[node] = parent >= 0 && inside[parent] ? 1 : 0;
      if (inside[node] || !fits(this.label[node], this.origin[node])) continue;
      inside[node] = 1;
      found.push(node);
    }
    return found;
  }

  // The calls that a row with these names is about: GPU work before autograd nodes, these before hops, lines and modules.
  named(texts) {
    const origins = [...new Set(this.origin)];
    const ways = [
      (text) => this.byLabel((label) => ON_GPU.has(this.kinds[label]) && this.isNamed(label, text)),
      (text) => this.byOrigin(origins, (origin) => this.ofOrigin(origin, "backward") === text),
      (text) => this.byLabel((label) => this.isNamed(label, text)),
      (text) => this.byOrigin(origins, (origin) => this.isFrom(origin, text)),
    ];
    for (const way of ways) {
      for (const text of texts) {
        const nodes = way(text);
        if (nodes.length) return { text, nodes: this.narrowed(nodes, texts.filter((each) => each !== text)) };
      }
    }
    return { text: "", nodes: [] };
  }

  byLabel(fits) {
    const chosen = this.kinds.map((kind, label) => fits(label));
    return chosen.includes(true) ? this.outermost((label) => chosen[label]) : [];
  }

  byOrigin(origins, fits) {
    const chosen = new Set(origins.filter(fits));
    return chosen.size ? this.outermost((label, origin) => chosen.has(origin)) : [];
  }

  // Of these nodes those from the lines and modules that have one of the names, if any are.
  narrowed(nodes, texts) {
    for (const text of texts) {
      const own = nodes.filter((node) => this.isFrom(this.origin[node], text));
      if (own.length) nodes = own;
    }
    return nodes;
  }

  // The phase of a call, which that of what it launched is; "other": none is known.
  phaseOf(node) {
    return this.columns["labels.waits"][this.label[node]] ? "waiting" : this.phases[this.origin[node]];
  }

  // The kind of a call.
  typeOf(label) {
    const kind = this.kinds[label];
    if (kind === "library" || kind === "api") return kind;
    if (kind === "kernel") return "kernel";
    if (ON_GPU.has(kind)) return "copy";
    const key = this.of(label, "key");
    if (key.startsWith("Autograd")) return "autograd";
    if (/^Composite/.test(key)) return "composite";
    if (/^(ADInplaceOrView|Python|Functionalize|Autocast|Func|Batched|BackendSelect|PreDispatch|Tracer|Conjugate|Negative|ZeroTensor|Named)/.test(key)) return "wrapper";
    return "backend";
  }

  // The place of the GPU's work, or of the hop: `host` or `gpu`.
  onGpu(node) {
    return ON_GPU.has(this.kinds[this.label[node]]);
  }
}
