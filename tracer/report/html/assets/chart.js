// What the two drawings share: flame-chart-js with the colours of the page, a tooltip, zoom.
const { FlameChartContainer, FlameChartPlugin, TimeGridPlugin, TogglePlugin, UIPlugin } = flameChartJs;
Object.getPrototypeOf(UIPlugin).defaultMaxListeners = 0; // every track listens to one mouse
const PHASES = ["forward", "backward", "optimizer", "data", "communication", "compile", "waiting"]; // as the bar of a step's parts has them
const KINDS = ["autograd", "wrapper", "composite", "backend", "library", "api", "kernel", "copy"];
const CHANGES = ["slower", "faster", "longer", "shorter", "same"]; // of a difference
const TYPES = [...PHASES, ...KINDS, "module", "group", "range", "outside", "dim", "match", ...CHANGES]; // each has a colour in page.css
const INKS = ["#14181c", "#ffffff"];
const BAR = 18;
const FONT = '12px system-ui, "DejaVu Sans", sans-serif';

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function colours() {
  return Object.fromEntries(TYPES.map((type) => [type, colour(type)]));
}

function luminance(hex) {
  const [red, green, blue] = [1, 3, 5].map((place) => {
    const value = parseInt(hex.slice(place, place + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

// What is read best on a colour.
function ink(hex) {
  const contrast = (one, other) => (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  const [dark, light] = INKS.map((each) => contrast(luminance(each), luminance(hex)));
  return dark > light ? INKS[0] : INKS[1];
}

function styles() {
  const text = colour("text"); // on a narrow page the dots would be on the titles
  return {
    main: { blockHeight: BAR, backgroundColor: colour("back"), font: FONT, fontColor: text },
    timeGrid: { color: colour("line") },
    timeGridPlugin: { font: FONT, fontColor: text },
    togglePlugin: { color: colour("raised"), strokeColor: colour("line"), dotsColor: colour(innerWidth < 620 ? "raised" : "quiet"), fontColor: text, font: FONT, triangleColor: colour("quiet"), height: BAR },
  };
}

const tooltip = {
  element: document.getElementById("tooltip"),
  show(title, lines, x, y) {
    this.element.replaceChildren(element("b", "", title), element("span", "", lines.join("\n")));
    this.element.hidden = false;
    const { offsetWidth, offsetHeight } = this.element;
    const left = Math.max(4, Math.min(x + 14, innerWidth - offsetWidth - 8));
    const top = y + 18 + offsetHeight > innerHeight ? y - offsetHeight - 10 : y + 18;
    this.element.style.left = left + "px";
    this.element.style.top = Math.max(4, top) + "px";
  },
  hide() {
    this.element.hidden = true;
  },
};

addEventListener("scroll", () => tooltip.hide(), { passive: true });

// The beginning of a text that is wider than the room; "" if that is a letter.
function cut(ctx, text, room) {
  const { width } = ctx.measureText(text);
  if (width <= room) return text;
  const letters = Math.floor(((room - ctx.measureText("\u2026").width) * text.length) / width);
  return letters < 2 ? "" : text.slice(0, letters) + "\u2026";
}

// What a bar says: its name and, in the room beside it, more about it; without room for the name the short one.
function fitted(ctx, [name, more, short], room) {
  if (ctx.measureText(name).width > room) return cut(ctx, short || name, room);
  const both = more ? cut(ctx, name + "  " + more, room) : name;
  return both.length > name.length + 4 ? both : name;
}

// Round numbers at equal distances, in the unit that fits; flame-chart-js rounds the labels and moves the lines to them.
class Ticks {
  constructor(engine, units) {
    this.engine = engine;
    this.units = units;
  }

  step() {
    const least = (this.engine.getRealView() * 110) / this.engine.width;
    const power = 10 ** Math.floor(Math.log10(least || 1));
    const step = [1, 2, 5, 10].find((each) => each * power >= least) * power;
    return this.units === " ms" ? step : Math.max(step, 1);
  }

  places() {
    const { engine } = this;
    const step = this.step();
    const end = engine.positionX + engine.getRealView();
    const places = [];
    for (let number = Math.ceil(engine.positionX / step); number * step <= end; number++) {
      places.push([engine.timeToPosition(number * step), this.text(number * step, step, end)]);
    }
    return places;
  }

  // `0.2 s`, `1.2 s` if the last one is above a second; else `200 ms`.
  text(value, step, end) {
    if (this.units !== " ms") return value.toLocaleString("en-US") + this.units;
    const above = (unit) => step >= unit / 2 || (end >= unit && step >= unit / 10);
    const [unit, size] = above(1e3) ? [" s", 1e-3] : above(1) ? [" ms", 1] : [" us", 1e3];
    return Number((value * size).toPrecision(12)).toLocaleString("en-US", { maximumFractionDigits: 6 }) + unit;
  }

  // Lines in the axis alone: further down they would run through what bars say.
  draw(axis) {
    axis.setCtxFont(FONT);
    for (const [x, text] of this.places()) {
      axis.setCtxValue("fillStyle", colour("quiet"));
      axis.fillRect(x, 0, 1, axis.height);
      axis.setCtxValue("fillStyle", colour("text"));
      if (x + 6 + axis.ctx.measureText(text).width < axis.width) axis.fillText(text, x + 4, axis.charHeight);
    }
  }
}

// What a picture does with a key; all others, and all with Ctrl, Alt or Meta, are the browser's.
const KEYS = {
  ArrowLeft: (chart) => chart.beside(-1),
  ArrowRight: (chart) => chart.beside(1),
  ArrowUp: (chart) => chart.above(),
  ArrowDown: (chart) => chart.below(),
  Enter: (chart) => chart.open(),
  Escape: (chart) => chart.leave(),
  "+": (chart) => chart.zoom(1.6),
  "-": (chart) => chart.zoom(1 / 1.6),
};

class Chart {
  // `plugins` are drawn one below the other; `tip(bar)` returns [title, lines] for the bar under the mouse.
  // `say(bar)` what is written on one: see `fitted`.
  constructor(holder, plugins, height, units, tip, say) {
    this.holder = holder;
    this.height = height;
    this.units = units;
    this.told = tip;
    this.tip = (found, engine, mouse) => {
      if (!found || !mouse) return tooltip.hide();
      const box = this.canvas.getBoundingClientRect();
      const [x, y] = [box.left + mouse.x, box.top + mouse.y];
      if (document.elementFromPoint(x, y) !== this.canvas) return tooltip.hide(); // the panel is above it
      tooltip.show(...tip(found.data.source), x, y);
    };
    this.canvas = element("canvas");
    this.canvas.width = this.width();
    this.canvas.height = height;
    holder.replaceChildren(this.canvas);
    this.flames = plugins.filter((plugin) => plugin instanceof FlameChartPlugin);
    this.container = new FlameChartContainer({ canvas: this.canvas, plugins, settings: this.settings() });
    this.ticks = new Ticks(this.engine, units);
    Object.assign(this.engine.timeGrid, { renderTimes: (axis) => this.ticks.draw(axis), renderLines: () => {} });
    for (const { renderEngine: child } of this.flames) {
      // `text` is the bar; flame-chart-js writes each in the same colour, its beginning and its end.
      child.renderTexts = (texts) => {
        for (const { text, x, y, textMaxWidth } of texts) {
          child.setCtxValue("fillStyle", this.inks[text.type]);
          child.fillText(fitted(child.ctx, say(text), textMaxWidth), Math.max(x, 0) + child.blockPaddingLeftRight, y + BAR - child.blockPaddingTopBottom);
        }
      };
      const stroke = child.addStroke.bind(child);
      child.addStroke = (each, order) => stroke({ ...each, color: colour("focus") }, order); // of what is selected
    }
    // The wheel scrolls the page; with Ctrl it zooms.
    this.stopWheel = (event) => {
      if (!event.ctrlKey && !event.metaKey) event.stopPropagation();
    };
    // flame-chart-js takes leaving the canvas for a click where the last click was.
    this.canvas.addEventListener("mouseup", () => {
      this.container.interactionsEngine.mouseDownPosition = null;
    });
    holder.addEventListener("wheel", this.stopWheel, { capture: true, passive: true });
    holder.onkeydown = (event) => this.key(event); // `false` would take the key from the browser
    holder.onblur = () => tooltip.hide();
    this.canvas.addEventListener("mouseleave", () => tooltip.hide());
    this.recolour(); // the styles of a plugin count only from here on
  }

  width() {
    return Math.max(this.holder.clientWidth, 100);
  }

  settings() {
    return { styles: styles(), options: { tooltip: this.tip, timeUnits: this.units } };
  }

  render() {
    this.container.render();
  }

  resize(height = this.height) {
    this.height = height;
    this.container.resize(this.width(), height);
    this.render();
  }

  // A title and a picture of this height, each in turn; `first` is the place of the first picture.
  stack(heights, first) {
    const { engine } = this;
    heights.forEach((height, number) => {
      const child = engine.children[first + 2 * number];
      child.collapsed = false;
      child.height = height;
    });
    engine.recalcChildrenLayout();
    for (const child of engine.children) child.applyCanvasSize();
    this.recolour();
  }

  recolour() {
    this.inks = Object.fromEntries(TYPES.map((type) => [type, ink(colour(type))]));
    for (const flame of this.flames) {
      flame.userColors = colours();
      flame.colors = {};
    }
    this.container.setSettings(this.settings());
    this.container.setSettings(this.settings()); // the height of the axis is from the font before
    this.render();
  }

  get engine() {
    return this.container.renderEngine;
  }

  reset() {
    this.engine.resetView();
    for (const child of this.engine.children) child.resetView();
    for (const flame of this.flames) flame.setPositionY(0);
    this.render();
  }

  // Around what is selected and in view, or the middle.
  zoom(factor) {
    const { engine, selected } = this;
    const middle = selected ? engine.timeToPosition(selected.node.source.start + selected.node.source.duration / 2) : -1;
    const around = middle >= 0 && middle <= engine.width ? middle : engine.width / 2;
    this.container.interactionsEngine.changeZoom((1 - factor) * engine.zoom, around);
    engine.tryToChangePosition(0);
    this.render();
  }

  key(event) {
    const act = KEYS[event.key];
    if (!act || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const from = event.shiftKey && this.extend && event.key.startsWith("Arrow") && (this.anchor || this.start());
    act(this);
    this.anchor = from || null;
    if (from && this.selected) this.extend(from.node.source, this.selected.node.source);
  }

  // {flame, node} of the selected bar, if there is one.
  get selected() {
    const flame = this.flames.find((each) => each.selectedRegion && each.selectedRegion.type === "node");
    return flame && { flame, node: flame.selectedRegion.data };
  }

  // The selected bar, or else the first one, which is then selected.
  start() {
    if (this.selected) return this.selected;
    const flame = this.flames.find((each) => each.flatTree.length);
    if (flame) this.choose(flame, flame.flatTree[0]);
    return null;
  }

  beside(by) {
    const from = this.start();
    if (!from) return;
    const node = from.flame.flatTree[from.flame.flatTree.indexOf(from.node) + by];
    if (node && node.level === from.node.level) this.choose(from.flame, node);
  }

  above() {
    const from = this.start();
    if (!from) return;
    if (from.node.parent) return this.choose(from.flame, from.node.parent);
    const flame = this.flames[this.flames.indexOf(from.flame) - 1];
    if (flame) this.choose(flame, flame.flatTree[0]);
  }

  below() {
    const from = this.start();
    if (!from) return;
    const child = from.flame.flatTree.find((each) => each.parent === from.node);
    if (child) return this.choose(from.flame, child);
    const flame = this.flames[this.flames.indexOf(from.flame) + 1];
    if (flame) this.choose(flame, flame.flatTree[0]);
  }

  choose(flame, node) {
    for (const each of this.flames) each.selectedRegion = each === flame ? { data: node, type: "node" } : null;
    this.reveal(flame, node);
    const box = this.canvas.getBoundingClientRect();
    const top = box.top + flame.renderEngine.position + node.level * (BAR + 1) - flame.positionY;
    if (top < 60 || top + BAR > innerHeight) scrollBy(0, top - innerHeight / 2);
    const x = Math.max(this.engine.timeToPosition(node.source.start), 0);
    const y = this.canvas.getBoundingClientRect().top - box.top + top;
    requestAnimationFrame(() => tooltip.show(...this.told(node.source), box.left + x, y)); // scrolling hides it
  }

  // As much of the bar as the view holds, and wide enough to be seen.
  reveal(flame, node) {
    const { engine } = this;
    const { start, duration } = node.source;
    const view = engine.getRealView();
    if (duration > view || duration * engine.zoom < 4) this.zoomTo(start, Math.max(duration, ((engine.max - engine.min) * 2) / engine.width ** 2) * (duration > view ? 1 : 20));
    else if (start < engine.positionX || start + duration > engine.positionX + view) engine.setPositionX(Math.max(engine.min, Math.min(engine.max - view, start + (duration - view) / 2)));
    const y = node.level * (BAR + 1);
    const { height } = flame.renderEngine;
    if (y < flame.positionY) flame.setPositionY(y);
    else if (y + BAR > flame.positionY + height) flame.setPositionY(y + BAR - height);
    this.render();
  }

  open() {
    const from = this.start();
    if (!from) return;
    tooltip.hide();
    from.flame.emit("select", { node: from.node });
    this.holder.dispatchEvent(new Event("opened"));
  }

  // Escape: the page closes its panel; without one, the whole picture.
  leave() {
    tooltip.hide();
    if (document.getElementById("chain").hidden) this.reset();
  }

  zoomTo(start, length) {
    const { engine } = this;
    const least = (engine.max - engine.min) * 1e-7;
    const margin = Math.max(length * 0.02, least);
    const from = Math.max(engine.min, start - margin);
    const to = Math.min(engine.max, start + length + margin);
    engine.setZoom(engine.width / (to - from));
    engine.setPositionX(from);
    this.render();
  }

  destroy() {
    this.container.interactionsEngine.destroy();
    this.holder.removeEventListener("wheel", this.stopWheel, { capture: true });
    this.canvas.remove();
    tooltip.hide();
  }
}
