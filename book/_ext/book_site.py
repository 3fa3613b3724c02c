"""The Sphinx extension: chapters are run, read with their outputs, and offered as notebooks."""

import gc
import os
import shutil
from pathlib import Path
from typing import Any

import addresses
import assets
import chapters
import claims_data
import dates
import directives
import docstrings
import equations
import figures
import landing
import markup
import measurements
import myst_nb.sphinx_ext
import nbformat
import news
import notebooks
import page_footer
import pictures
import previews
import projects
import prose
import runs
import searching
import short_path
import sidebar
import sphinx_exercise
import teaching
import transclude
from docutils import nodes
from sphinx.application import Sphinx


def _configure(app: Sphinx, config: Any) -> None:
    """Configure myst-nb's readers and cache, two processes for pages, and a lock that lasts as long as this process."""
    app.icl_lock = chapters.lock(Path(app.outdir).parent)
    config.nb_custom_formats = {f"/{page}.md": "runs.as_page" for page in chapters.with_cells()}
    config.nb_execution_cache_path = str(runs.folder())
    app.parallel = max(app.parallel, runs.WORKERS)
    # Pages are trees of a million small objects, none of which is garbage before a build ends.
    gc.set_threshold(1_000_000, 20, 50)


def _discard_unfinished(app: Sphinx, config: Any) -> None:
    """Read all pages if the last build was cut short or had warnings: Sphinx would not warn of them again."""
    mark = _unfinished_mark(app)
    if mark.exists():
        shutil.rmtree(app.doctreedir, ignore_errors=True)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()


def _mark_finished(app: Sphinx, fault: Exception | None) -> None:
    if fault is None and not app._warncount:
        _unfinished_mark(app).unlink(missing_ok=True)


def _unfinished_mark(app: Sphinx) -> Path:
    """A file that is there from a build's beginning to its good end."""
    return Path(app.outdir).parent / ".unfinished"


def _run_chapters(app: Sphinx) -> None:
    """Run the chapters that changed, examine what they say, and write down what they measured, if anything changed."""
    alone = os.environ.get("ICL_PAGE", "")
    digest = measurements.sources_digest(alone)
    if measurements.are_of(digest):
        return
    pages = [alone] if alone else chapters.pages()
    chapters.examine(pages)
    markup.examine(pages)
    equations.examine()
    with_cells = [page for page in pages if page in chapters.with_cells()]
    figures.examine(with_cells)
    lenders = [lender for page in pages if alone for lender in transclude.lenders(chapters.source(page))]
    executed = runs.run_stale(list(dict.fromkeys([*with_cells, *lenders])))
    prose.examine(with_cells, executed)
    transclude.examine(pages, executed)
    measurements.collect(pages, executed)
    measurements.finish(digest)


def _follow_run(app: Sphinx, docname: str, source: list[str]) -> None:
    """A page is read again when its chapter has put out something else, or what downloads are made with."""
    if lenders := runs.glued_pages(source[0], docname):
        for page in lenders:
            app.env.note_dependency(str(measurements.place(page)))
        source[0] = runs.filled(source[0], docname)
    if chapters.is_chapter(source[0]):
        app.env.note_dependency(str(measurements.place(docname)))
        app.env.note_dependency(notebooks.__file__)
        app.env.note_dependency(str(chapters.ROOT / "book/references.bib"))


def _one_document(app: Sphinx, doctree: Any) -> None:
    """Assign all nodes of a page to its document.

    What autodoc writes comes with documents of its own, whose settings hold all that Sphinx knows of the book: with
    them each page of the library was kept as 26 MB, to be written once and read twice.
    """
    for node in doctree.findall():
        node.document = doctree


def _drop_said_outputs(app: Sphinx, doctree: Any) -> None:
    """Remove the outputs of `said`, which are for the build, and output areas that are then empty."""
    for output in list(
        doctree.findall(lambda node: "cell_output" in getattr(node, "get", lambda *_: ())("classes", ()))
    ):
        for bundle in list(output.children):
            if any(text.strip() == "<!-- checked -->" for text in bundle.findall(nodes.Text)):
                output.remove(bundle)
        if not output.children:
            output.parent.remove(output)


def _own_code(app: Sphinx, environment: Any) -> None:
    """The pages that show code show the library's; of what it wraps, they would show Python's too.

    They link back to a module's own reference: viewcode takes the first module that has one of its names, and that may
    be another's constant, which is an instance of a class of this one.
    """
    modules = getattr(environment, "_viewcode_modules", {})
    for name, entry in list(modules.items()):
        if not name.startswith(("icl.", "icl_bench.", "icl_book.")):
            del modules[name]
        elif entry:
            modules[name] = (*entry[:3], name)


def _skip_current_code(app: Sphinx) -> list[Any]:
    """Leave viewcode nothing to do while its pages are newer than the library: it would import PyTorch to see that."""
    environment: Any = app.env
    lib, pages = chapters.ROOT / "lib", Path(app.outdir) / "_modules"
    for name in [name for name, entry in getattr(environment, "_viewcode_modules", {}).items() if entry]:
        path, page = lib / name.replace(".", "/"), pages / f"{name.replace('.', '/')}.html"
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if not page.exists() or page.stat().st_mtime < source.stat().st_mtime:
            return []
    environment._viewcode_modules = {}  # the environment is on disk already
    return []


def _offer_notebook(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Lay the notebooks beside the page and have the theme's download menu list the one without solutions.

    The theme lists it by itself only beside launch buttons.
    """
    if doctree is not None and (chapters.ROOT / f"{page}.md").exists() and chapters.is_chapter(chapters.source(page)):
        site = app.config.html_baseurl
        citation, _ = page_footer.citation(page, chapters.title(page).replace("*", ""))
        for name in notebooks.files(page):
            target = Path(app.outdir) / "_sources" / f"{name}.ipynb"
            target.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(runs.offer(page, citation, site, solutions=name != page), target)
        context["ipynb_source"] = f"{page}.ipynb"


def _offer_solutions(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Have the download menu list the notebook with solutions too."""
    if "ipynb_source" not in context or len(names := notebooks.files(page)) == 1:
        return
    for menu in context["header_buttons"]:
        if menu["label"] == "download-buttons":
            plain = menu["buttons"][0]
            url, tip = plain["url"].replace(f"{page}.ipynb", f"{names[1]}.ipynb"), "Download notebook with solutions"
            other = {"url": url, "text": "with solutions", "tooltip": tip, "label": "download-solutions-button"}
            menu["buttons"].insert(1, plain | other)


def _lay_pictures(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Lay a page's pictures beside it, and have it load the script that draws its charts as soon as can be."""
    if "body" in context:
        if 'class="icl-chart"' in context["body"]:
            app.add_js_file("vega/vega-bundle.js", loading_method="async")  # of this page alone
        uri = lambda file: context["pathto"](file, 1)  # noqa: E731
        context["body"] = pictures.beside(context["body"], page, Path(app.outdir), uri)


def _assets(app: Sphinx) -> None:
    assets.lay(Path(app.outdir) / "_static")
    # These two lay theirs when all is written, and a page names the digest of a style sheet that is there: pages that
    # are written anew would differ from those of a build from nothing.
    sphinx_exercise.copy_asset_files(app, None)
    myst_nb.sphinx_ext.add_global_html_resources(app, None)


#: A host serves the page for missing addresses at any depth of any folder. So it looks for the book's own folder, the
#: deepest above the address that has this script, and has its links start from there, all but those within the page.
_FIND_BASE = """<script>{
  const parts = location.protocol.startsWith("http") ? location.pathname.split("/") : [];
  while (parts.pop() !== undefined) {
    const folder = `${parts.join("/")}/`, ask = new XMLHttpRequest();
    ask.open("HEAD", `${folder}_static/page.js`, false);
    ask.send();
    if (ask.status !== 200) continue;
    document.write(`<base href="${folder}">`);
    break;
  }
  document.addEventListener("DOMContentLoaded", () => {
    for (const link of document.querySelectorAll('a[href^="#"]'))
      link.href = location.pathname + link.getAttribute("href");
  });
}</script>"""


def _missing_page(app: Sphinx) -> list[Any]:
    """The page that hosts serve in place of one that is not there."""
    body = "<h1>Page not found</h1>\n<p>There is no page at this address. The list of pages and the search help.</p>"
    return [("404", {"title": "Page not found", "body": body, "metatags": _FIND_BASE}, "page.html")]


def _lay_claims(app: Sphinx, fault: Exception | None) -> None:
    """The ledger as data beside its page."""
    if fault is None:
        claims_data.lay(Path(app.outdir) / "book/evidence", directives.checks())


def _repository(app: Sphinx, config: Any) -> None:
    """On a public host, link pages to the repository that builds them."""
    if name := os.environ.get("GITHUB_REPOSITORY"):
        url = f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}"
        branch = os.environ.get("GITHUB_REF_NAME", "main")
        config.html_theme_options |= {"repository_url": url, "repository_branch": branch, "use_repository_button": True}
        if url.startswith("https://github.com/"):
            owner, project = name.lower().split("/")
            is_user_site = project == f"{owner}.github.io"
            config.html_baseurl = f"https://{owner}.github.io/" + ("" if is_user_site else f"{name.split('/')[-1]}/")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register everything."""
    dates.settle()
    addresses.setup(app)
    docstrings.setup(app)
    directives.setup(app)
    landing.setup(app)
    news.setup(app)
    searching.setup(app)
    sidebar.setup(app)
    page_footer.setup(app)
    short_path.setup(app)
    previews.setup(app)
    teaching.setup(app)
    projects.setup(app)
    # It does not say so itself: it numbers sections once all pages have been read.
    app.extensions["sphinx_multitoc_numbering"].parallel_read_safe = True
    app.connect("config-inited", _configure)
    app.connect("config-inited", _discard_unfinished)
    app.connect("config-inited", _repository)
    app.connect("builder-inited", _run_chapters)
    app.connect("builder-inited", _assets)
    app.connect("source-read", _follow_run)
    app.connect("doctree-read", _one_document)
    app.connect("doctree-read", _drop_said_outputs)
    app.connect("env-updated", _own_code)
    app.connect("html-collect-pages", _missing_page)
    app.connect("html-collect-pages", _skip_current_code, priority=400)  # before viewcode
    app.connect("build-finished", _lay_claims)
    app.connect("build-finished", _mark_finished)
    app.connect("html-page-context", _lay_pictures)
    app.connect("html-page-context", _offer_notebook)  # before the theme builds its menu, at priority 501
    app.connect("html-page-context", _offer_solutions, priority=502)
    return {"version": "3", "env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
