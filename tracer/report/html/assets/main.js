// Connects the parts of the page.
function choices(id, options, chosen, onChange) {
  const holder = document.getElementById(id);
  for (const [value, text] of Object.entries(options)) {
    const label = element("label", "", text);
    const input = element("input");
    input.type = "radio";
    input.name = id;
    input.value = value;
    input.checked = value === chosen;
    input.addEventListener("change", () => onChange(value));
    label.prepend(input);
    holder.append(label);
  }
}

function legend(calls, timeline) {
  const texts = { module: "module or key", group: "line", range: "range", autograd: "autograd", wrapper: "other functionality", composite: "composite", backend: "backend", library: "library", api: "API", kernel: "GPU kernel", copy: "GPU copy", outside: OUTSIDE };
  const holder = document.getElementById("legend");
  const drawn = new Set([...calls.types, "module", "group"]);
  if (calls.outside.length) drawn.add("outside");
  if (timeline.steps.some((step) => step.ranges.length)) drawn.add("range");
  for (const [type, text] of Object.entries(texts)) {
    if (!drawn.has(type)) continue;
    const item = element("span", "", text);
    const swatch = element("span", "swatch");
    swatch.style.background = "var(--" + type + ")";
    item.prepend(swatch);
    holder.append(item);
  }
}

function theme(onChange) {
  const select = document.getElementById("theme");
  select.addEventListener("change", () => {
    if (select.value) document.documentElement.dataset.theme = select.value;
    else delete document.documentElement.dataset.theme;
    onChange();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", onChange);
}

// Rows of any table lead to the chain of the op, line, module or kernel that they name.
function leads(icicle, timeline) {
  for (const row of document.querySelectorAll(".part tbody tr")) {
    const codes = [...row.querySelectorAll("code")].map((code) => code.textContent);
    const inSteps = row.closest("#steps");
    if (!codes.length && !inSteps) continue;
    row.classList.add("leads");
    row.addEventListener("click", () => {
      if (getSelection().toString()) return;
      if (inSteps) return showStep(row, timeline);
      const parts = codes.flatMap((text) => [text, ...text.split(" -> ")]);
      for (const onGpu of [true, false]) {
        for (const part of parts) {
          const place = icicle.find(part, onGpu);
          if (place >= 0) return icicle.select(place, false);
        }
      }
    });
  }
}

function showStep(row, timeline) {
  const cells = [...row.cells].map((cell) => cell.textContent);
  const number = timeline.steps.findIndex((step) => cells.slice(0, 2).includes(step.step));
  if (number < 0) return;
  const select = document.getElementById("step");
  select.value = number;
  select.dispatchEvent(new Event("change"));
  document.getElementById("timeline").scrollIntoView();
}

function zoomButtons(prefix, chart) {
  document.getElementById(prefix + "-in").addEventListener("click", () => chart().zoom(1.6));
  document.getElementById(prefix + "-out").addEventListener("click", () => chart().zoom(1 / 1.6));
  document.getElementById(prefix + "-reset").addEventListener("click", () => chart().reset());
}

async function main() {
  const calls = new Calls(await unpack("tree-data"));
  const chain = new Chain(calls);
  const icicle = new Icicle(calls, (tree, place) => chain.showBar(tree, place));
  const hasModules = calls.columns["origins.module"].some((text) => text >= 0);
  const view = { grouping: hasModules ? "module" : "line", measure: "host" };
  const show = () => icicle.show(view.grouping, view.measure);
  const groupings = { ...GROUPINGS };
  if (!hasModules) delete groupings.module;
  const measures = { ...MEASURES };
  if (!calls.total.gpu) delete measures.gpu;
  choices("grouping", groupings, view.grouping, (value) => { view.grouping = value; show(); });
  choices("measure", measures, view.measure, (value) => { view.measure = value; show(); });
  show();
  document.documentElement.dataset.drawn = "yes";

  const search = document.getElementById("search");
  search.addEventListener("input", () => icicle.search(search.value));
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && icicle.best !== null) icicle.select(icicle.best, true);
    if (event.key === "Escape") { search.value = ""; icicle.search(""); }
  });
  zoomButtons("zoom", () => icicle.chart);
  document.getElementById("chain-zoom").addEventListener("click", () => {
    const place = icicle.tree.place[chain.node];
    if (place >= 0 && icicle.drawn.made[place]) icicle.select(place, true);
    document.getElementById("time").scrollIntoView();
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && chain.close());

  const timeline = new Timeline(await unpack("timeline-data"), calls, (node) => chain.showNode(node));
  legend(calls, timeline);
  const select = document.getElementById("step");
  timeline.steps.forEach((step, number) => {
    const option = element("option", "", step.name + ": " + duration(step.wall_ns) + (step.phase === "warmup" ? " (warm-up)" : ""));
    option.value = number;
    select.append(option);
  });
  if (timeline.steps.length) {
    select.value = timeline.usual();
    timeline.show(Number(select.value));
    select.addEventListener("change", () => timeline.show(Number(select.value)));
    zoomButtons("timeline", () => timeline.chart);
  } else {
    document.getElementById("timeline").hidden = true;
  }

  for (const point of document.querySelectorAll(".point")) {
    const open = () => {
      const place = icicle.find(point.dataset.name);
      if (place >= 0) icicle.select(place, false);
    };
    point.addEventListener("click", open);
    point.addEventListener("keydown", (event) => event.key === "Enter" && open());
  }
  leads(icicle, timeline);
  theme(() => {
    icicle.chart.recolour();
    if (timeline.chart) timeline.chart.recolour();
  });
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      icicle.chart.resize();
      if (timeline.chart) timeline.resize();
    }, 100);
  });
  document.documentElement.dataset.ready = "yes";
}

main().catch((error) => {
  const failure = document.getElementById("failure");
  failure.textContent = "This page could not be drawn: " + error + ". The tables below do not need it.";
  failure.hidden = false;
  throw error;
});
