// The chain of a call: from the module and line that asked for it, through hops, library and API calls, to the kernel.
const WHAT = { call: "op", redispatch: "redispatch", library: "library call", api: "API call", kernel: "kernel", memcpy: "copy", memset: "fill" };
const MOST_LINES = 12;

class Chain {
  constructor(calls, goTo) {
    this.calls = calls;
    this.goTo = goTo;
    this.panel = document.getElementById("chain");
    this.below = this.heaviestBelow();
    document.getElementById("chain-close").addEventListener("click", () => this.close());
  }

  // Who opened it with a key reads it, and is back where it was opened when it closes.
  enter(from) {
    this.from = from;
    this.panel.focus();
  }

  close() {
    this.panel.hidden = true;
    document.body.classList.remove("chained");
    if (this.closed) this.closed();
    if (this.from) this.from.focus();
    this.from = null;
  }

  // Of each node the one below it that the time goes to: most GPU time if it has any, else most host time.
  heaviestBelow() {
    const { calls } = this;
    const gpu = calls.column("gpu_ns");
    const host = calls.column("host_ns");
    const best = new Int32Array(calls.size).fill(-1);
    for (let node = 0; node < calls.size; node++) {
      const parent = calls.parent[node];
      if (parent < 0) continue;
      const other = best[parent];
      if (other < 0 || gpu[node] > gpu[other] || (gpu[node] === gpu[other] && host[node] > host[other])) best[parent] = node;
    }
    return best;
  }

  weight(node) {
    return this.calls.column("gpu_ns")[node] || this.calls.column("host_ns")[node];
  }

  // Of a bar: `nodes` are those that it merges.
  showBar(tree, place, facts) {
    let nodes = [...tree.nodes(place)];
    let calls = nodes;
    if (!nodes.length) {
      // A group: its heaviest call.
      const below = [];
      for (let each = place + 1; each < tree.size; each++) {
        let above = each;
        while (above > place) above = tree.parent[above];
        if (above === place) below.push(...tree.nodes(each));
      }
      nodes = below.filter((node) => this.calls.parent[node] < 0);
      if (!nodes.length) nodes = below;
      calls = nodes;
    }
    if (!nodes.length) return;
    const heaviest = calls.reduce((best, node) => (this.weight(node) > this.weight(best) ? node : best));
    this.show(heaviest, nodes, tree.label[place] < 0 ? tree.name(place) : "", facts);
  }

  // Of a row of a table: it says what the row says, then the heaviest chain of the calls that the row counts.
  showRow(name, facts, nodes) {
    const heaviest = nodes.reduce((best, node) => (this.weight(node) > this.weight(best) ? node : best));
    this.show(heaviest, nodes, name, facts);
    return heaviest;
  }

  showNode(node) {
    this.show(node, [node], "");
  }

  show(node, nodes, group, facts = this.facts(nodes)) {
    this.node = node;
    const parts = [...this.ofSeveral(nodes), this.list(node, !!group), ...this.lines(nodes)];
    this.fill(group || this.calls.names[this.calls.label[node]], facts, parts);
  }

  fill(title, facts, parts) {
    document.getElementById("chain-title").textContent = title;
    document.getElementById("chain-body").replaceChildren(this.factsOf(facts), ...parts);
    this.open();
  }

  open() {
    const inside = this.panel.contains(document.activeElement);
    document.getElementById("chain-zoom").hidden = this.node < 0;
    this.panel.hidden = false;
    tooltip.hide();
    this.panel.scrollTop = 0;
    document.body.classList.add("chained");
    if (inside) this.panel.focus(); // the button that was pressed is gone
  }

  // What ran in a span of a step: by its parts, by op, by line and by kernel.
  showSpan(found) {
    this.node = -1;
    const { start, end, step } = found;
    const length = end - start;
    document.getElementById("chain-title").textContent = duration(length) + " of " + step.name + ", from " + duration(start) + " after its start";
    const left = step.left_out ? [element("p", "hint", "Of the step's longest " + count(step.count, "call") + ".")] : [];
    const lists = [["op", found.ops], ["line", found.lines], ["kernel", found.kernels]].flatMap(([what, sums]) => this.sums(what, sums, length));
    document.getElementById("chain-body").replaceChildren(this.factsOf(found.facts()), ...left, ...lists);
    this.open();
  }

  sums(what, sums, length) {
    if (!sums.size) return [];
    const rows = [...sums.values()].sort((a, b) => b.host - a.host || b.gpu - a.gpu);
    const list = element("ol", "links");
    for (const { name, node, host, gpu, rows: times } of rows.slice(0, MOST_LINES)) {
      const cost = [...(host ? [duration(host) + " (" + percent(host, length) + ")"] : []), ...(gpu ? ["GPU " + duration(gpu)] : []), ...(times ? [times.toLocaleString("en-US") + " x"] : [])];
      list.append(this.row(what, name, [], cost.join(", "), () => this.showNode(node)));
    }
    const parts = [element("h3", "", "By " + what), list];
    if (rows.length > MOST_LINES) parts.push(element("p", "hint", count(rows.length - MOST_LINES, "more " + what) + " left out."));
    return parts;
  }

  factsOf(facts) {
    const shown = element("p", "facts");
    for (const [name, value] of facts) {
      const fact = element("span", "", name + " ");
      fact.append(element("b", "", value));
      shown.append(fact);
    }
    return shown;
  }

  facts(nodes) {
    const { calls } = this;
    const sum = (name) => nodes.reduce((total, node) => total + calls.column(name)[node], 0);
    const facts = [];
    const add = (name, value) => facts.push([name, value]);
    const host = sum("host_ns");
    const gpu = sum("gpu_ns");
    add("calls", sum("rows").toLocaleString("en-US"));
    if (host) add("host", duration(host) + " (" + percent(host, calls.total.host) + ")");
    if (host) add("self", duration(sum("self_ns")));
    if (gpu) add("GPU", duration(gpu) + " (" + percent(gpu, calls.total.gpu) + ")");
    if (nodes.length === 1) {
      add("median", duration(calls.column("median_ns")[nodes[0]]));
      add("longest", duration(calls.column("longest_ns")[nodes[0]]));
    }
    const raised = sum("raised");
    if (raised) add("raised", raised.toLocaleString("en-US"));
    return facts;
  }

  ofSeveral(nodes) {
    return nodes.length < 2 ? [] : [element("p", "hint", "Below: the heaviest of " + nodes.length.toLocaleString("en-US") + " chains.")];
  }

  list(node, ofGroup) {
    const { calls } = this;
    const list = element("ol", "links");
    const above = [];
    for (let each = node; each >= 0; each = calls.parent[each]) above.unshift(each);
    const origin = calls.origin[node];
    const module = calls.ofOrigin(origin, "module");
    const line = calls.ofOrigin(origin, "line");
    const backward = calls.ofOrigin(origin, "backward");
    const from = calls.ofOrigin(origin, "called_from");
    if (module) list.append(this.row("module", module, [], ""));
    const more = [];
    if (backward) more.push("backward: " + backward);
    const said = calls.ofOrigin(origin, "said");
    if (said) more.unshift(said);
    if (from && from !== line) more.push("run from " + from);
    more.push(...this.outerFrames(above[0]));
    list.append(this.row("line", line || NONE.line, more, ""));
    for (const each of above) list.append(this.call(each, each === node && !ofGroup ? "here" : ofGroup ? "below" : ""));
    for (let each = this.below[node]; each >= 0; each = this.below[each]) list.append(this.call(each, "below"));
    return list;
  }

  // The Python stack of an outermost call, if the trace has stacks.
  outerFrames(root) {
    const frames = this.calls.stacks[this.calls.column("stack")[root]] || [];
    return frames.slice(1).map((frame) => "called from " + frame);
  }

  call(node, className) {
    const { calls } = this;
    const label = calls.label[node];
    const kind = calls.kinds[label];
    const more = [];
    const kernel = calls.of(label, "kernel");
    const registered = calls.of(label, "registered_at");
    const override = calls.of(label, "override");
    const inputs = calls.column("inputs")[node];
    const others = calls.column("inputs_count")[node] - 1;
    if (kernel) more.push("kernel function " + kernel);
    if (registered) more.push("registered at " + registered);
    if (override) more.push("override " + override);
    if (inputs >= 0 && calls.texts[inputs]) more.push((HOPS.has(kind) ? "inputs " : "") + calls.texts[inputs] + (others > 0 ? " and " + (HOPS.has(kind) ? count(others, "more input") : others + " more") : ""));
    const row = this.row(WHAT[kind] || kind, calls.names[label], more, this.cost(node), () => this.showNode(node));
    if (className) row.classList.add(className);
    return row;
  }

  cost(node) {
    const { calls } = this;
    const gpu = calls.column("gpu_ns")[node];
    const host = duration(calls.column("host_ns")[node]) + (gpu ? ", GPU " + duration(gpu) : "");
    return (calls.onGpu(node) ? "GPU " + duration(gpu) : host) + ", " + calls.column("rows")[node].toLocaleString("en-US") + " x";
  }

  row(what, name, more, cost, onClick) {
    const row = element("li");
    row.append(element("span", "what", what));
    const middle = element("span", "name");
    if (onClick) {
      const button = element("button", "", name);
      button.type = "button";
      button.addEventListener("click", onClick);
      middle.append(button);
    } else {
      middle.append(element("code", "", name));
    }
    for (const text of more) middle.append(element("div", "more", text));
    row.append(middle, element("span", "cost", cost));
    return row;
  }

  // The lines that asked for it, if it is of several.
  lines(nodes) {
    const { calls } = this;
    const found = new Map();
    for (const node of nodes) {
      const origin = calls.origin[node];
      const line = calls.ofOrigin(origin, "line") || NONE.line;
      const sums = found.get(line) || { host: 0, gpu: 0, rows: 0, node };
      sums.host += calls.column("host_ns")[node];
      sums.gpu += calls.column("gpu_ns")[node];
      sums.rows += calls.column("rows")[node];
      if (this.weight(node) > this.weight(sums.node)) sums.node = node;
      found.set(line, sums);
    }
    if (found.size < 2) return [];
    const rows = [...found].sort((a, b) => b[1].gpu - a[1].gpu || b[1].host - a[1].host);
    const list = element("ol", "links");
    for (const [line, sums] of rows.slice(0, MOST_LINES)) {
      const cost = (sums.host ? duration(sums.host) : "") + (sums.gpu ? (sums.host ? ", " : "") + "GPU " + duration(sums.gpu) : "") + ", " + sums.rows.toLocaleString("en-US") + " x";
      list.append(this.row("line", line, [], cost, () => this.showNode(sums.node)));
    }
    const parts = [element("h3", "", "Asked for by " + count(rows.length, "line")), list];
    if (rows.length > MOST_LINES) parts.push(element("p", "hint", count(rows.length - MOST_LINES, "more line") + " left out; grouped by line, the flame graph has all."));
    return parts;
  }
}
