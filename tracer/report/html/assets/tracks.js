// What a timeline has beside bars: arrows, a minimap, curves, and the span that is measured.
const OF_PHASES = { forward: "forward", backward: "backward", optimizer: "optimizer", data: "data", communication: "communication", compile: "compiling", waiting: "waiting for GPU", group: "several phases, or none" };
const MOST_ARROWS = 400;

// Arrows from the call that launched to the work of the GPU; flame-chart-js has none.
class Arrows extends UIPlugin {
  constructor(timeline) {
    super("arrows");
    this.height = 0;
    this.timeline = timeline;
  }

  postRender() {
    const { timeline } = this;
    const parent = this.renderEngine.parent;
    const chosen = timeline.related();
    const from = parent.positionX;
    const to = from + parent.getRealView();
    const inView = timeline.launches.filter((event) => timeline.inView(event, from, to));
    const { ctx } = parent;
    ctx.save();
    for (const event of inView) {
      const strong = chosen && chosen.has(event);
      if (!strong && (chosen || inView.length > MOST_ARROWS)) continue;
      this.arrow(ctx, timeline.point(timeline.parent[event], "start"), timeline.point(event, "end"), strong);
    }
    ctx.restore();
  }

  arrow(ctx, from, to, strong) {
    if (!from || !to) return;
    ctx.strokeStyle = ctx.fillStyle = strong ? colour("match") : colour("quiet");
    ctx.globalAlpha = strong ? 1 : 0.45;
    ctx.lineWidth = strong ? 2 : 1;
    const bend = (to.y - from.y) / 2;
    const head = bend < 0 ? 6 : -6;
    ctx.beginPath();
    ctx.moveTo(from.x, from.y);
    ctx.bezierCurveTo(from.x, from.y + bend, to.x, to.y - bend, to.x, to.y);
    ctx.stroke();
    ctx.beginPath();
    ctx.moveTo(to.x, to.y);
    ctx.lineTo(to.x - 3.5, to.y + head);
    ctx.lineTo(to.x + 3.5, to.y + head);
    ctx.fill();
  }
}

// The whole step, with what is in view; a drag shows what it covers, a click goes there.
class Minimap extends UIPlugin {
  constructor(timeline) {
    super("minimap");
    this.height = 30;
    this.timeline = timeline;
  }

  init(engine, interactions) {
    super.init(engine, interactions);
    interactions.on("down", (region, mouse) => { this.from = region && region.type === "minimap" ? mouse.x : null; });
    interactions.on("up", (region, mouse) => this.show(mouse.x));
  }

  // The view from where the mouse went down to here.
  show(to) {
    const { from } = this;
    this.from = null;
    if (from === null || from === undefined) return;
    const { parent } = this.renderEngine;
    const scale = (parent.max - parent.min) / parent.width;
    const view = parent.getRealView();
    const dragged = Math.abs(to - from) > 3;
    const [start, length] = dragged ? [Math.min(from, to) * scale, Math.abs(to - from) * scale] : [to * scale - view / 2, view];
    if (dragged) parent.setZoom(parent.width / length);
    parent.setPositionX(Math.max(parent.min, Math.min(parent.max - parent.getRealView(), parent.min + start)));
    parent.render();
  }

  render() {
    const engine = this.renderEngine;
    const { parent } = engine;
    const scale = engine.width / (parent.max - parent.min || 1);
    const box = (type, start, length, y, height) => {
      engine.setCtxValue("fillStyle", colour(type));
      engine.fillRect((start - parent.min) * scale, y, Math.max(length * scale, 1.5), height);
    };
    for (const { start, duration, type } of this.timeline.partBars) box(type, start, duration, 4, 12);
    for (const { start, duration } of this.timeline.waitBars) box("waiting", start, duration, 18, 6);
    const left = (parent.positionX - parent.min) * scale;
    const width = parent.getRealView() * scale;
    engine.ctx.globalAlpha = 0.65;
    box("back", parent.min, parent.positionX - parent.min, 0, this.height);
    box("back", parent.positionX + parent.getRealView(), parent.max, 0, this.height);
    engine.ctx.globalAlpha = 1;
    engine.renderStroke(colour("focus"), left + 1, 1, Math.max(width - 2, 2), this.height - 2);
    this.interactionsEngine.addHitRegion("minimap", null, 0, 0, engine.width, this.height, "crosshair");
    engine.reset(); // it would take this colour for that of a canvas that was resized, which is black
  }
}

// Numbers over a step, each for an equal part of it, from 0 at the bottom to `most` at the top.
class Curve extends UIPlugin {
  // `say(value)`: what the tooltip says of one.
  constructor(values, most, length, type, say) {
    super("curve");
    this.height = 32;
    Object.assign(this, { values, most, each: length / values.length, type, say });
  }

  init(engine, interactions) {
    super.init(engine, interactions);
    interactions.on("hover", (region) => { this.hovered = region; });
  }

  renderTooltip() {
    if (!this.hovered) return false;
    const { parent } = this.renderEngine;
    const { x, y } = this.interactionsEngine.getGlobalMouse();
    const value = this.values[Math.floor((parent.positionX + parent.pixelToTime(x)) / this.each)];
    const box = parent.canvas.getBoundingClientRect();
    if (value !== undefined) tooltip.show(this.say(value), [], box.left + x, box.top + y);
    return true;
  }

  render() {
    const engine = this.renderEngine;
    const { parent } = engine;
    const { each } = this;
    engine.setCtxValue("fillStyle", colour(this.type));
    this.values.forEach((value, place) => {
      const x = parent.timeToPosition(place * each);
      const width = each * parent.zoom;
      const high = this.most ? (value / this.most) * (this.height - 4) : 0;
      if (x + width > 0 && x < engine.width) engine.fillRect(x, this.height - 2 - high, width + 0.5, high);
    });
    this.interactionsEngine.addHitRegion("curve", null, 0, 0, engine.width, this.height);
  }
}

// The span that is measured, above all tracks.
class Span extends UIPlugin {
  constructor(timeline) {
    super("span");
    this.height = 0;
    this.timeline = timeline;
  }

  postRender() {
    const { span } = this.timeline;
    if (!span) return;
    const { parent } = this.renderEngine;
    const [left, right] = span.map((time) => parent.timeToPosition(time));
    const { ctx } = parent;
    ctx.save();
    ctx.fillStyle = ctx.strokeStyle = colour("focus");
    ctx.globalAlpha = 0.14;
    ctx.fillRect(left, 0, right - left, parent.height);
    ctx.globalAlpha = 1;
    ctx.lineWidth = 1.5;
    for (const x of [left, right]) {
      ctx.beginPath();
      ctx.moveTo(x, 0);
      ctx.lineTo(x, parent.height);
      ctx.stroke();
    }
    ctx.restore();
  }
}

// What ran in a part of a step: `[start, end]` in ns from its start.
class Measured {
  constructor(timeline, [start, end]) {
    Object.assign(this, { timeline, start, end });
    this.step = timeline.steps[timeline.number];
    this.ops = new Map();
    this.lines = new Map();
    this.kernels = new Map();
    for (let event = this.step.first; event < this.step.first + this.step.count; event++) this.add(event);
  }

  inside(start, length) {
    return Math.max(0, Math.min(start + length, this.end) - Math.max(start, this.start));
  }

  // Of the host the outermost calls, of the GPU all work, which counts for the line and op that launched it.
  add(event) {
    const { timeline, step } = this;
    const { calls } = timeline;
    const ns = this.inside(timeline.start[event], timeline.length[event]);
    const node = timeline.node[event];
    const onGpu = calls.onGpu(node);
    if (!ns || (!onGpu && timeline.parent[event] >= 0)) return;
    let root = event;
    while (timeline.parent[root] >= 0) root = step.first + timeline.parent[root];
    const op = timeline.node[root];
    this.sum(this.ops, calls.names[calls.label[op]], op, ns, onGpu);
    this.sum(this.lines, calls.ofOrigin(calls.origin[node], "line") || NONE.line, op, ns, onGpu);
    if (onGpu) this.sum(this.kernels, calls.names[calls.label[node]], node, ns, true);
  }

  sum(sums, name, node, ns, onGpu) {
    if (!sums.has(name)) sums.set(name, { name, node, host: 0, gpu: 0, rows: 0, most: 0 });
    const found = sums.get(name);
    found[onGpu ? "gpu" : "host"] += ns;
    if (!onGpu || sums === this.kernels) found.rows += 1;
    if (ns > found.most) Object.assign(found, { most: ns, node });
  }

  // How long of the span each part of the step took, and what no part has; unknown of a step of too many parts.
  facts() {
    if (this.step.parts_left_out) return [];
    const parts = new Map();
    for (const [part, start, length] of this.step.parts) parts.set(part, (parts.get(part) || 0) + this.inside(start, length));
    const named = [...parts].filter(([, ns]) => ns).sort((a, b) => b[1] - a[1]);
    const rest = this.end - this.start - named.reduce((sum, [, ns]) => sum + ns, 0);
    return [...named.map(([part, ns]) => [OF_PHASES[part], ns]), ["elsewhere", rest]].map(([name, ns]) => [name, duration(ns) + " (" + percent(ns, this.end - this.start) + ")"]);
  }
}
