/* A deck's behaviour besides reveal's own: the theme, figures drawn as their slide comes, and all of them for print. */
"use strict";
(() => {
  const root = document.documentElement;
  if (new URLSearchParams(location.search).has("dark")) root.dataset.theme = "dark";

  window.slides = {
    /* Formulas set, and every figure of the slide drawn; returns what could not be. */
    async settled(slide) {
      await window.MathJax?.startup?.promise;
      const late = new Promise(done => setTimeout(done, 60_000));
      const figures = [...slide.querySelectorAll(".icl-chart")];
      for (const figure of figures) {
        const drawn = new Promise(done => {
          const look = () => { if (figure.dataset.drawn) done(); };
          new MutationObserver(look).observe(figure, {attributeFilter: ["data-drawn"]});
          look();
        });
        dispatchEvent(new Event("scroll"));  // charts are drawn as a reader comes near, who here does not scroll
        await Promise.race([late, drawn]);
      }
      return figures.filter(({dataset: {drawn}}) => !["light", "dark"].includes(drawn))
        .map(figure => `not drawn: ${figure.querySelector("img").alt}`);
    },

    /* The same of every slide, one under another as they are printed. */
    async printed() {
      const failed = [];
      for (const sheet of document.querySelectorAll(".pdf-page")) {
        sheet.scrollIntoView();
        failed.push(...await slides.settled(sheet));
      }
      return failed;
    },
  };

  Reveal.initialize({
    width: 1280, height: 720, margin: 0, minScale: 0.2, maxScale: 3,
    center: false, controls: false, hash: true, slideNumber: "c/t", transition: "none", backgroundTransition: "none",
    pdfSeparateFragments: false, pdfMaxPagesPerSlide: 1, pdfPageHeightOffset: 0,
    plugins: [RevealNotes],
  });
  Reveal.addKeyBinding({keyCode: 84, key: "T", description: "Light or dark"}, () => {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  });
  // What a slide shows is drawn when it comes, and not at the next tick of a clock.
  Reveal.on("slidechanged", () => dispatchEvent(new Event("scroll")));
  // What a figure says is read once somebody has moved it.
  document.addEventListener("input", event => event.target.closest(".icl-controls")?.classList.add("is-moved"));
  // The arrow keys move a slider that has the focus, and not the slides.
  document.addEventListener("keydown", event => {
    if (event.target.matches?.("input")) event.stopPropagation();
  }, true);
})();
