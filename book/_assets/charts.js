/* Replaces each figure's static picture by the interactive chart, in the page's theme, when a reader comes near it.
   No request leaves the site: the Vega bundle lies beside this file. */
"use strict";
(() => {
  // Pages with charts have the Vega bundle loaded beside their text; it is there, or on its way.
  const vega = () => window.vegaEmbed ? Promise.resolve() : new Promise((resolve, reject) => {
    const script = document.querySelector("script[src*='vega-bundle.js']");
    script.addEventListener("load", () => resolve());
    script.addEventListener("error", () => reject(new Error(`cannot load ${script.src}`)));
  });

  // Texts are measured before they are drawn: with the font of the figures, which comes with the bundle.
  const ready = () => ready.once ??= vega().then(() => {
    document.head.append(Object.assign(document.createElement("style"), {textContent: window.iclFont}));
    return Promise.all([400, 500].map(weight => document.fonts.load(`${weight} 12px "Chart Sans"`)));
  });

  // Pictures that nobody came near are loaded when the page is printed, also by a browser that does not by itself.
  addEventListener("beforeprint", () => {
    for (const picture of document.querySelectorAll("img[loading=lazy]")) picture.loading = "eager";
  });

  const dark = () => document.documentElement.dataset.theme === "dark";
  const theme = () => dark() ? "dark" : "light";

  /* On a dark page every colour keeps its hue and saturation, and its lightness is turned over. What is not nearly white
     on a light page, as the low end of a heat map is, becomes at least three times as bright as the page. */
  function turned(hex) {
    const [r, g, b] = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255);
    const high = Math.max(r, g, b), low = Math.min(r, g, b), l = (high + low) / 2, span = high - low;
    const s = span === 0 ? 0 : 0.9 * span / (1 - Math.abs(2 * l - 1));
    const h = span === 0 ? 0 : high === r ? ((g - b) / span + 6) % 6 : high === g ? (b - r) / span + 2 : (r - g) / span + 4;
    let light = 0.95 - 0.8 * l;
    while (l < 0.93 && brightness(h, s, light) + 0.05 < 3 * (PAGE + 0.05)) light += 0.01;
    return `hsl(${(60 * h).toFixed(1)}, ${(100 * s).toFixed(1)}%, ${(100 * light).toFixed(1)}%)`;
  }

  /* Relative luminance, of #121212 and of a hue of six, a saturation and a lightness. */
  const PAGE = 0.006;
  function brightness(h, s, light) {
    const part = n => {
      const k = (n + 2 * h) % 12, value = light - s * Math.min(light, 1 - light) * Math.max(-1, Math.min(k - 3, 9 - k, 1));
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    };
    return 0.2126 * part(0) + 0.7152 * part(8) + 0.0722 * part(4);
  }

  function themed(spec, paper) {
    const copy = structuredClone(spec);
    const walk = node => {
      for (const key of Object.keys(node ?? {})) {
        if (key === "datasets" || key === "values") continue;
        if (typeof node[key] === "string" && /^#[0-9a-f]{6}$/i.test(node[key])) node[key] = turned(node[key]);
        else if (typeof node[key] === "object") walk(node[key]);
      }
    };
    const turn = dark() && !paper, css = getComputedStyle(document.documentElement);
    if (turn) walk(copy);
    const text = paper ? "#222" : css.getPropertyValue("--pst-color-text-base").trim() || "#222";
    const muted = paper ? "#555" : css.getPropertyValue("--pst-color-text-muted").trim() || "#555";
    const line = turn ? "#4a4f57" : "#dcdfe4";
    const merge = (name, extra) => { copy.config[name] = {...copy.config[name], ...extra}; };
    merge("axis", {labelColor: muted, titleColor: text, gridColor: line, tickColor: line});
    merge("title", {color: text, subtitleColor: muted});
    merge("legend", {labelColor: text, titleColor: text});
    return copy;
  }

  /* How wide a line of text is, in pixels. */
  function measured(text, size, weight, font) {
    const pen = measured.pen ??= document.createElement("canvas").getContext("2d");
    pen.font = `${weight} ${size}px ${font}`;
    return pen.measureText(text).width;
  }

  /* Text of a chart does not wrap by itself: break it into lines of a width. */
  function broken(text, width, size, weight, font) {
    const out = [""];
    for (const word of text.split(" ")) {
      if (out.at(-1) && measured(out.at(-1) + " " + word, size, weight, font) > width) out.push(word);
      else out[out.length - 1] = (out.at(-1) + " " + word).trim();
    }
    return out;
  }

  /* The title, in lines of the figure's width. */
  function wrapped(spec, width) {
    if (!spec.title) return;
    const title = typeof spec.title === "string" ? {text: spec.title} : spec.title;
    const {fontSize, fontWeight, subtitleFontSize} = spec.config.title;
    const fit = (lines, size, weight) =>
      [lines].flat().flatMap(line => broken(line, width - 16, size, weight, spec.config.font));
    spec.title = {...title, text: fit(title.text, fontSize, fontWeight)};
    if (title.subtitle) spec.title.subtitle = fit(title.subtitle, subtitleFontSize, 400);
  }

  /* The titles of the axis below and of a scale of colours, in lines of a width. */
  function captioned(spec, width) {
    for (const {encoding} of [spec, ...spec.layer ?? []]) {
      for (const titled of [encoding?.x, encoding?.color?.legend]) {
        if (typeof titled?.title === "string") titled.title = broken(titled.title, width, 12.5, 400, spec.config.font);
      }
    }
  }

  /* What a phone leaves for the plot, with the title below in as many lines as that takes. Names of rows would leave no
     room: they take more lines too, and the limits' names stay inside. */
  function named(spec, width) {
    const rows = (spec.layer ?? []).map(layer => layer.encoding?.y).find(y => y?.type === "nominal" && y.sort)?.sort;
    if (width >= 520) {
      const size = spec.config.axis.labelFontSize, wide = row => Math.min(260, measured(row, size, 400, spec.config.font));
      return width - 20 - (rows ? Math.max(...rows.map(wide)) : 4.6 * size);
    }
    const beside = width - 57;  // the title of the axis at the left, and its labels
    captioned(spec, rows ? 0.5 * width : beside - 30);  // it is centred below the plot, whose numbers may be longer
    if (!rows) return beside;
    const font = spec.config.font;
    const lines = Object.fromEntries(rows.map(row => [row, broken(row, 0.36 * width, 12, 400, font)]));
    const most = Math.max(...Object.values(lines).map(row => row.length));
    // At its right the last number of the axis, which may stand half beyond it.
    spec.padding = {left: 5, top: 5, bottom: 5, right: 14};
    const room = width - 25 - Math.max(...Object.values(lines).flat().map(line => measured(line, 12, 400, font)));
    spec.height = Math.max(spec.height, rows.length * (14 * most + 8));
    for (const {encoding, mark, data} of spec.layer) {
      if (encoding?.y?.type === "nominal") {
        const labelExpr = `${JSON.stringify(lines)}[datum.label]`;
        encoding.y.axis = {...encoding.y.axis, labelExpr, labelBaseline: "middle"};
      }
      if (encoding?.text?.field === "name") {
        const [row] = spec.datasets[data.name], {type, domain} = encoding.x.scale;
        const [low, at, high] = [domain[0], row[encoding.x.field], domain[1]].map(type === "log" ? Math.log : Number);
        const place = room * (at - low) / (high - low), long = measured(row.name, 12, 400, font);
        mark.dx = mark.align === "left" ? Math.min(mark.dx, room - place - long) : Math.max(mark.dx, long - place);
      }
    }
    return room;
  }

  /* Where all numbers of the axis below have labels, or all columns of a heat map, a phone has room for some: for every
     second or third, say, if that leads from the first to the last. */
  function thinned(spec, room) {
    const across = (spec.layer ?? []).map(({encoding}) => encoding?.x).filter(x => x?.axis);
    if (!across.length) return;
    const [{type, field, axis}] = across, rows = spec.datasets?.[(spec.layer[0].data ?? spec.data).name];
    const all = axis.values ?? (type === "ordinal" && rows?.map(row => row[field]));
    if (!all) return;
    const numbers = [...new Set(all)].sort((a, b) => a - b), steps = numbers.length - 1;
    const wide = number => measured(`${Number(Number(number).toPrecision(3))}`, spec.config.axis.labelFontSize, 400, spec.config.font);
    const most = Math.floor(room / (8 + Math.max(...numbers.map(wide))));
    if (steps <= most) return;
    let parts = most;
    while (parts > 2 && steps % parts) parts--;
    if (parts < 3) parts = most;
    const values = Array.from({length: parts + 1}, (_, i) => numbers[Math.round(i * steps / parts)]);
    for (const x of across) x.axis = {...x.axis, values};
  }

  /* Labels at the ends of lines need room that a phone does not have: a legend takes their place. */
  function fitted(spec, width) {
    spec.width = width;
    spec.autosize = {type: "fit-x", contains: "padding"};
    const room = named(spec, width);
    thinned(spec, room);
    // As many columns as the longest name leaves room for; a name that is cut says nothing.
    const names = (spec.layer ?? []).flatMap(layer => layer.encoding?.color?.scale?.domain ?? []);
    const {labelFontSize, symbolSize = 100, columns: usual} = spec.config.legend;
    const beside = 24 + Math.sqrt(symbolSize);
    const longest = beside + Math.max(0, ...names.map(name => measured(name, labelFontSize, 400, spec.config.font)));
    const columns = Math.max(1, Math.min(width < 520 ? 2 : usual, Math.floor(room / longest)));
    spec.config.legend = {...spec.config.legend, columns, labelLimit: room - beside};
    if (width >= 520) return;
    if (!spec.layer?.some(layer => layer.name === "labels")) return;
    spec.layer = spec.layer.filter(layer => layer.name !== "labels");
    for (const {encoding} of spec.layer) {
      for (const channel of ["color", "strokeDash"]) if (encoding?.[channel]) encoding[channel].legend = {title: null, columns};
    }
  }

  const tables = (spec, view) => {
    const found = new Map(Object.entries(spec.datasets ?? {}));
    const look = node => {
      if (node?.data?.values) found.set(node.data.name ?? "data", node.data.values);
      for (const child of node?.layer ?? []) look(child);
    };
    look(spec);
    for (const name of found.keys()) {
      try { found.set(name, view.data(name)); } catch { /* not a dataset the view keeps under its own name */ }
    }
    return found;
  };

  function csv(found) {
    const rows = [...found].flatMap(([name, data], i) =>
      data.map(row => found.size > 1 ? {table: /^data-/.test(name) ? i + 1 : name, ...row} : row));
    const columns = [...new Set(rows.flatMap(row => Object.keys(row)))];
    const cell = value => value == null ? "" : /[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value;
    return [columns, ...rows.map(row => columns.map(c => row[c]))].map(line => line.map(cell).join(",")).join("\n") + "\n";
  }

  function save(name, type, content) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], {type}));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function buttons(figure, spec) {
    const bar = document.createElement("div");
    bar.className = "icl-chart__bar";
    const page = location.pathname.split("/").pop().replace(/\.html$/, "") || "index";
    const number = [...document.querySelectorAll(".icl-chart")].indexOf(figure) + 1;
    const offer = (label, run) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = label;
      button.setAttribute("aria-label", `${label} of figure ${number}`);
      button.addEventListener("click", run);
      bar.append(button);
    };
    offer("Data", () => save(`${page}-${number}.csv`, "text/csv", csv(tables(spec, figure.view))));
    offer("Specification", () => save(`${page}-${number}.vl.json`, "application/json", JSON.stringify(spec, null, 1)));
    offer("Picture", async () => save(`${page}-${number}.svg`, "image/svg+xml", await figure.picture()));
    figure.querySelector(".icl-chart__view").after(bar);
    return bar;
  }

  /* The address of the page with these settings of a figure, and with what else it held. */
  function address(name, settings) {
    const url = new URL(location.href);
    for (const key of [...url.searchParams.keys()]) if (key.startsWith(`${name}.`)) url.searchParams.delete(key);
    for (const [key, value] of Object.entries(settings)) url.searchParams.set(`${name}.${key}`, value);
    url.hash = `explore-${name}`;
    return url;
  }

  function sliders(figure, explorable, bar) {
    const form = document.createElement("form"), asked = new URLSearchParams(location.search);
    form.className = "icl-controls";
    form.addEventListener("submit", event => event.preventDefault());
    const values = {}, inputs = [];
    const readout = document.createElement("p");
    readout.className = "icl-readout";
    readout.setAttribute("aria-live", "polite");
    let running = false, moved = false;
    figure.update = async () => {
      const result = window.icl.explorables[explorable.function](values, explorable.constants ?? {});
      readout.textContent = result.readout;
      figure.moved = result.datasets;
      await show(figure.view, figure.moved);
    };
    // A slider moves faster than a chart is drawn: what moved meanwhile is drawn once, at its last value.
    const follow = async () => {
      moved = true;
      if (running) return;
      running = true;
      try {
        while (moved) { moved = false; await figure.update(); }
      } finally { running = false; }
    };
    for (const control of explorable.controls) {
      const label = document.createElement("label");
      const output = document.createElement("output");
      const input = document.createElement("input"), turns = typeof control.value === "boolean";
      if (turns) {
        Object.assign(input, {type: "checkbox", name: control.name, checked: control.value});
        input.setAttribute("role", "switch");
      } else {
        Object.assign(input,
          {type: "range", name: control.name, min: control.min, max: control.max, step: control.step});
        input.value = control.value;
      }
      // The label is of the number beside the slider too, the first in it, and would be that one's alone.
      input.id = label.htmlFor = `icl-${[...document.querySelectorAll(".icl-chart")].indexOf(figure)}-${control.name}`;
      input.setAttribute("aria-label", control.label);
      const show = () => {
        values[control.name] = turns ? input.checked : Number(input.value);
        output.textContent = turns ? (input.checked ? "on" : "off") : input.value;
      };
      const set = value => {
        if (turns) input.checked = value === true || value === "true";
        else if (value !== "" && isFinite(value)) input.value = value;  // the slider itself keeps it on its scale
        show();
      };
      input.addEventListener("input", () => { show(); tell(); follow(); });
      set(asked.get(`${explorable.function}.${control.name}`) ?? control.value);
      inputs.push({control, set});
      const name = Object.assign(document.createElement("span"), {textContent: control.label});
      label.append(name, output, input);
      form.append(label);
    }
    // The address says the settings, but for those the page begins with: whoever has it finds the figure as it is here.
    const link = Object.assign(document.createElement("a"), {textContent: "Link to this setting"});
    const reset = Object.assign(document.createElement("button"), {type: "button", textContent: "Reset"});
    const place = () => {
      const moved = inputs.filter(({control: {name, value}}) => values[name] !== value).map(({control: {name}}) => name);
      link.href = address(explorable.function, Object.fromEntries(moved.map(name => [name, values[name]])));
    };
    let telling;
    // Browsers refuse an address that changes a hundred times in half a minute.
    const tell = () => {
      place();
      clearTimeout(telling);
      telling = setTimeout(() => history.replaceState(history.state, "", link.href), 250);
    };
    reset.addEventListener("click", () => { for (const {control, set} of inputs) set(control.value); tell(); follow(); });
    place();
    bar.prepend(link, reset);
    figure.querySelector("img").before(form, readout);
  }

  /* Move a view's curves. */
  async function show(view, datasets) {
    for (const [name, rows] of Object.entries(datasets)) view.data(name, rows);
    await view.runAsync();
  }

  function laid(spec, width, paper = false) {
    const drawn = themed(spec, paper);
    wrapped(drawn, width);
    fitted(drawn, width);
    return drawn;
  }

  /* The figure as it stands, light on a dark page too, as a file for paper and for other programs: with its font. */
  async function picture(figure, spec) {
    const drawn = laid(spec, figure.querySelector(".icl-chart__view").clientWidth, true);
    drawn.background = "white";
    const {view} = await window.vegaEmbed(document.createElement("div"), drawn, {actions: false, renderer: "none"});
    await show(view, figure.moved ?? {});
    const svg = await view.toSVG();
    view.finalize();
    return svg.replace(">", `><style>${window.iclFont}</style>`);
  }

  async function draw(figure) {
    await ready();
    const spec = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
    let host = figure.querySelector(".icl-chart__view");
    const first = !host;
    if (first) {
      host = document.createElement("div");
      host.className = "icl-chart__view";
      figure.querySelector("img").after(host);
    }
    const of = theme(), drawn = laid(spec, host.clientWidth);
    figure.drawnWidth = figure.clientWidth;
    figure.picture = () => picture(figure, spec);
    figure.view?.finalize();
    figure.view = (await window.vegaEmbed(host, drawn, {actions: false, renderer: "svg", tooltip: {theme: of}})).view;
    if (first) {
      figure.querySelector("img").hidden = true;
      const bar = buttons(figure, spec);
      if (spec.usermeta?.icl?.explorable) sliders(figure, spec.usermeta.icl.explorable, bar);
    }
    await figure.update?.();
    figure.dataset.drawn = of;
    if (of !== theme()) await draw(figure); // it changed meanwhile
  }

  const AHEAD = 600;  // pixels: what is this near is drawn

  // The first figure of a long page need not wait for the page's end: what is parsed can be drawn.
  const parsed = node => document.readyState !== "loading" || !!node && (!!node.nextSibling || parsed(node.parentElement));

  function start() {
    const report = figure => error => { figure.dataset.drawn = "failed"; console.error(error); };
    const known = new Set();
    let waiting = [], clock;
    const near = figure => {
      const {top, bottom} = figure.getBoundingClientRect();
      return figure.checkVisibility() && bottom > -AHEAD && top < innerHeight + AHEAD;
    };
    const look = () => {
      const now = waiting.filter(near);
      waiting = waiting.filter(figure => !now.includes(figure));
      now.forEach(figure => draw(figure).catch(report(figure)));
      if (!waiting.length) clock = clearInterval(clock);
    };
    const resized = new ResizeObserver(entries => {
      for (const {target} of entries) {
        clearTimeout(target.resizing);
        if (target.dataset.drawn && Math.abs(target.clientWidth - target.drawnWidth) > 4) {
          target.resizing = setTimeout(() => draw(target).catch(report(target)), 120);
        }
      }
    });
    const meet = () => {
      const found = [...document.querySelectorAll(".icl-chart")].filter(figure => !known.has(figure) && parsed(figure));
      if (!found.length) return;
      found.forEach(figure => { known.add(figure); waiting.push(figure); resized.observe(figure); });
      // A reader comes near by scrolling, by opening a fold, by following a link. A browser that draws no frame for a
      // while, busy or behind another window, tells of none of them: the clock asks too, until every chart is drawn.
      clock ??= setInterval(look, 300);
      look();
    };
    addEventListener("scroll", look, {passive: true});
    const redraw = () => known.forEach(f => {
      if (f.dataset.drawn && f.dataset.drawn !== theme()) draw(f).catch(report(f)); // the theme's scripts set it more than once
    });
    new MutationObserver(redraw).observe(document.documentElement, {attributeFilter: ["data-theme"]});
    meet();
    if (document.readyState !== "loading") return;
    const growing = new MutationObserver(() => waiting.length || meet()); // what comes after a figure that is far is farther
    growing.observe(document, {childList: true, subtree: true});
    document.addEventListener("DOMContentLoaded", () => { growing.disconnect(); meet(); });
  }
  start();
})();
