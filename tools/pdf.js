/* What tools/pdf.py does in the browser with the whole book on one page. */
"use strict";
window.book = {
  /* Wait until formulas are set and letters and pictures there. */
  async ready() {
    await window.MathJax?.startup?.promise;
    await document.fonts.ready;
    await Promise.all([...document.querySelectorAll("figure img")].map(image => image.decode()));
  },

  /* Each chart, drawn as a reader who comes to it finds it, becomes a picture; returns what could not be drawn. One
     chapter at a time is there meanwhile: whatever asks for a place would have the whole book laid out. */
  async draw() {
    const pages = [...document.querySelectorAll(".print-page")], failed = [];
    for (const page of pages) page.style.display = "none";
    const scripts = [...document.querySelectorAll("script[type='text/plain']")].map(({src}) => src);
    const last = scripts.filter(src => src.includes("charts.js")); // it draws with what the others bring
    for (const src of [...scripts.filter(src => !last.includes(src)), ...last]) {
      const script = Object.assign(document.createElement("script"), {src});
      await new Promise((done, fail) => {
        Object.assign(script, {onload: done, onerror: () => fail(new Error(`cannot load ${src}`))});
        document.head.append(script);
      });
    }
    for (const page of pages) {
      page.style.display = "";
      for (const figure of page.querySelectorAll("figure.icl-chart")) {
        figure.scrollIntoView();
        await new Promise(done => {
          const look = () => { if (figure.dataset.drawn) done(); };
          new MutationObserver(look).observe(figure, {attributeFilter: ["data-drawn"]});
          setTimeout(done, 120_000);
          look();
        });
        const picture = figure.querySelector("img");
        if (!["light", "dark"].includes(figure.dataset.drawn)) {
          failed.push(`not drawn: ${picture.alt}`);
          continue;
        }
        picture.src = URL.createObjectURL(new Blob([await figure.picture()], {type: "image/svg+xml"}));
        for (const attribute of ["width", "height", "hidden"]) picture.removeAttribute(attribute);
        figure.view.finalize();
        for (const child of [...figure.children]) {
          if (!child.matches("img, .icl-question, .print-fold")) child.remove();
        }
        // Nothing that watches the figure draws it again.
        figure.replaceWith(figure.cloneNode(true));
        delete figure.dataset.drawn;
      }
      page.style.display = "none";
    }
    for (const page of pages) page.style.display = "";
    return failed;
  },

  /* What is too wide for a sheet is set smaller; returns what is too wide nevertheless. */
  fit() {
    const width = box => box.getBoundingClientRect().width, article = document.querySelector(".bd-article");
    const edge = article.getBoundingClientRect().right + 1, beyond = e => e.getBoundingClientRect().right > edge;
    for (const table of article.querySelectorAll("table")) {
      const size = parseFloat(getComputedStyle(table).fontSize);
      for (let part = 0.95; part > 0.55 && beyond(table); part -= 0.05) {
        table.style.setProperty("font-size", `${part * size}px`, "important");
      }
    }
    for (const formula of article.querySelectorAll("mjx-container[display]")) {
      const part = width(formula.closest("div.math") ?? formula.parentElement) / Math.max(formula.scrollWidth, width(formula));
      if (part < 1) formula.style.fontSize = `${parseFloat(formula.style.fontSize || 100) * part * 0.99}%`;
    }
    return [...article.querySelectorAll("img, table, pre, mjx-container, p, li, dd, h1, h2, h3, h4")]
      .filter(e => beyond(e) || (e.matches("pre") && e.scrollWidth > e.clientWidth + 1))
      .map(e => `${e.localName}: ${e.textContent.trim().slice(0, 60)}`);
  },

  /* The contents get their numbers. */
  number(sheets) {
    for (const place of document.querySelectorAll(".print-number")) place.textContent = sheets[place.dataset.of];
  },
};
