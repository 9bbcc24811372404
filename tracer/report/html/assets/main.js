// Connects the parts of the page.
const MOST_FIRST = 3;

const OF_KINDS = { module: "module or key", group: "line", autograd: "autograd", wrapper: "other functionality", composite: "composite", backend: "backend", library: "library", api: "API", kernel: "GPU kernel", copy: "GPU copy" };

// What the colours mean, below each picture.
function legends(calls, timeline) {
  const drawn = new Set([...(calls.byPhase ? calls.phases : [...calls.types, "module"]), "group"]);
  if (calls.byPhase && calls.columns["labels.waits"].some(Boolean)) drawn.add("waiting");
  if (calls.outside.length) drawn.add("outside");
  if (timeline.steps.some((step) => step.ranges.length)) drawn.add("range");
  const texts = calls.byPhase ? OF_PHASES : OF_KINDS;
  legend("legend", { ...texts, outside: OUTSIDE }, drawn);
  legend("timeline-legend", { ...texts, range: "range" }, drawn);
}

// The first rows of a table, where a reader looks first; they lead where the rows lead.
function firstRows(section, table) {
  const rows = table ? table.leads.slice(0, MOST_FIRST) : [];
  for (const row of rows) {
    const button = element("button");
    button.type = "button";
    const cell = (title) => row.cells[table.titles.indexOf(title)];
    button.append(element("span", "figure", cell("share").textContent));
    for (const title of ["line", "what to do"]) {
      const parts = cell(title) ? [...cell(title).childNodes].filter((part) => part.nodeName !== "BR") : [];
      button.append(...parts.map((part) => element(part.nodeName === "CODE" ? "code" : "span", "", part.textContent)));
    }
    button.addEventListener("click", (event) => table.show(row, event.detail ? null : button)); // 0: by a key
    const item = element("li");
    item.append(button);
    section.querySelector("ol").append(item);
  }
  section.hidden = !rows.length;
}

async function main() {
  const calls = new Calls(await unpack("tree-data"));
  const chain = new Chain(calls);
  const icicle = new Icicle(calls, (tree, place) => chain.showBar(tree, place));
  const hasModules = calls.columns["origins.module"].some((text) => text >= 0);
  const view = { grouping: hasModules ? "module" : "line", measure: "host" };
  const idle = window.requestIdleCallback || setTimeout; // Safari has only the second
  const rest = () => requestAnimationFrame(() => idle(() => icicle.complete())); // first what is there is shown
  const show = () => {
    icicle.show(view.grouping, view.measure);
    if (document.documentElement.dataset.ready) rest();
  };
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
    if (place >= 0 && icicle.bar(place)) icicle.select(place, true);
    document.getElementById("time").scrollIntoView();
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && chain.close());
  for (const id of ["icicle", "tracks"]) {
    const holder = document.getElementById(id);
    holder.addEventListener("opened", () => chain.panel.hidden || chain.enter(holder));
  }

  const timeline = new Timeline(await unpack("timeline-data"), calls, (node) => chain.showNode(node));
  timeline.onMeasure = (found) => (found ? chain.showSpan(found) : chain.node < 0 && chain.close());
  chain.closed = () => timeline.chart && timeline.mark(null);
  const measure = document.getElementById("timeline-measure");
  measure.addEventListener("click", () => {
    timeline.measuring = !timeline.measuring;
    measure.setAttribute("aria-pressed", timeline.measuring);
  });
  legends(calls, timeline);
  choices("colouring", COLOURINGS, calls.byPhase ? "phase" : "kind", (value) => {
    calls.byPhase = value === "phase";
    icicle.recolour();
    if (timeline.chart) timeline.recolour();
    legends(calls, timeline);
  });
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

  const open = (facts, names, from) => {
    const { text, nodes } = calls.named(names);
    if (!nodes.length) return;
    const heaviest = facts.length ? chain.showRow(text, facts, nodes) : chain.showRow("", chain.facts(nodes), nodes);
    if (from) chain.enter(from);
    icicle.mark(icicle.tree.place[heaviest], false);
  };
  for (const point of document.querySelectorAll(".point")) {
    point.addEventListener("click", () => open([], [point.dataset.name], null));
    point.addEventListener("keydown", (event) => event.key === "Enter" && open([], [point.dataset.name], point));
  }
  const tables = [...document.querySelectorAll(".part table")].map((table) => new Table(table, open, timeline));
  for (const section of document.querySelectorAll(".first")) {
    firstRows(section, tables.find((table) => table.section === section.dataset.of));
  }
  followSections();
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
  rest();
}

run(main);
