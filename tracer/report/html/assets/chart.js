// What the two drawings share: flame-chart-js with the colours of the page, a tooltip, zoom.
const { FlameChartContainer, FlameChartPlugin, TimeGridPlugin, TogglePlugin, UIPlugin } = flameChartJs;
Object.getPrototypeOf(UIPlugin).defaultMaxListeners = 0; // every track listens to one mouse
const TYPES = ["module", "group", "range", "autograd", "wrapper", "composite", "backend", "library", "api", "kernel", "copy", "outside", "dim", "match"];
const BAR = 18;
const FONT = '12px system-ui, "DejaVu Sans", sans-serif';

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function colours() {
  return Object.fromEntries(TYPES.map((type) => [type, colour(type)]));
}

function styles() {
  const text = colour("text");
  return {
    main: { blockHeight: BAR, backgroundColor: colour("back"), font: FONT, fontColor: text },
    timeGrid: { color: colour("line") },
    timeGridPlugin: { font: FONT, fontColor: text },
    togglePlugin: { color: colour("raised"), strokeColor: colour("line"), dotsColor: colour("quiet"), fontColor: text, font: FONT, triangleColor: colour("quiet"), height: BAR },
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

// Of a text that does not fit the beginning; flame-chart-js shows beginning and end.
function textsFromTheStart(texts) {
  this.setCtxValue("fillStyle", this.styles.fontColor);
  for (const { text, x, y, textMaxWidth } of texts) {
    const { width } = this.ctx.measureText(text);
    let shown = text;
    if (width > textMaxWidth) {
      const letters = Math.floor(((textMaxWidth - this.placeholderWidth) * text.length) / width);
      if (letters < 2) continue;
      shown = text.slice(0, letters) + "\u2026";
    }
    this.ctx.fillText(shown, Math.max(x, 0) + this.blockPaddingLeftRight, y + this.blockHeight - this.blockPaddingTopBottom);
  }
}

class Chart {
  // `plugins` are drawn one below the other; `tip(bar)` returns [title, lines] for the bar under the mouse.
  constructor(holder, plugins, height, units, tip) {
    this.holder = holder;
    this.height = height;
    this.units = units;
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
    for (const child of this.engine.children) child.renderTexts = textsFromTheStart;
    // The wheel scrolls the page; with Ctrl it zooms.
    this.stopWheel = (event) => {
      if (!event.ctrlKey && !event.metaKey) event.stopPropagation();
    };
    // flame-chart-js takes leaving the canvas for a click where the last click was.
    this.canvas.addEventListener("mouseup", () => {
      this.container.interactionsEngine.mouseDownPosition = null;
    });
    holder.addEventListener("wheel", this.stopWheel, { capture: true, passive: true });
    // Arrow keys move and zoom while the drawing has the focus.
    holder.onfocus = () => this.container.hotkeys(true);
    holder.onblur = () => this.container.hotkeys(false);
    holder.onkeydown = (event) => event.key.startsWith("Arrow") && event.preventDefault();
    if (document.activeElement === holder) this.container.hotkeys(true);
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

  recolour() {
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

  zoom(factor) {
    const { engine } = this;
    this.container.interactionsEngine.changeZoom((1 - factor) * engine.zoom, engine.width / 2);
    engine.tryToChangePosition(0);
    this.render();
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
