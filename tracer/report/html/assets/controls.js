// What pages with pictures have beside them: choices, buttons, the theme, navigation.
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

function theme(onChange) {
  const select = document.getElementById("theme");
  select.addEventListener("change", () => {
    if (select.value) document.documentElement.dataset.theme = select.value;
    else delete document.documentElement.dataset.theme;
    onChange();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", onChange);
}

function zoomButtons(prefix, chart) {
  document.getElementById(prefix + "-in").addEventListener("click", () => chart().zoom(1.6));
  document.getElementById(prefix + "-out").addEventListener("click", () => chart().zoom(1 / 1.6));
  document.getElementById(prefix + "-reset").addEventListener("click", () => chart().reset());
}

// What the colours of the types `drawn` mean.
function legend(id, texts, drawn) {
  const shown = Object.entries(texts).filter(([type]) => drawn.has(type));
  document.getElementById(id).replaceChildren(...shown.map(([type, text]) => {
    const item = element("span", "", text);
    const swatch = element("span", "swatch");
    swatch.style.background = "var(--" + type + ")";
    item.prepend(swatch);
    return item;
  }));
}

// Marks the link to the section that one is in.
function followSections() {
  const nav = document.querySelector("nav");
  const links = [...nav.querySelectorAll("a")];
  const targets = links.map((link) => document.querySelector(link.getAttribute("href")));
  const mark = () => {
    const above = targets.filter((target) => target.getClientRects().length && target.getBoundingClientRect().top < innerHeight / 4);
    links.forEach((link, number) => {
      if (targets[number] !== above[above.length - 1]) return link.removeAttribute("aria-current");
      link.setAttribute("aria-current", "true");
      nav.scrollLeft = link.offsetLeft - nav.clientWidth / 2;
    });
  };
  addEventListener("scroll", () => requestAnimationFrame(mark), { passive: true });
  mark();
}

// Draws the page, or says why it could not be drawn.
function run(main) {
  main().catch((error) => {
    const failure = document.getElementById("failure");
    failure.textContent = "This page could not be drawn: " + error + ". The tables below do not need it.";
    failure.hidden = false;
    throw error;
  });
}
