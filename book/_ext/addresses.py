"""Addresses of figures, equations, exercises and checks: an id that stays, and a link to it beside the thing itself.

An id comes from what its author called the thing: a figure's from the function that moves it or from its title, an
equation's from its number in the paper. An equation without a number has the id that stands above it, `(eq-gap)=`, or
else that of its section or exercise and its place among the equations there: eq-the-pole-2. It keeps that when it is
edited, and when other sections are. The id that it had before, a digest of its TeX, leads to it too.
Figures of numbered chapters are Sphinx's own figures, so `numfig` numbers them, and `{numref}` with the page's file
name and the id names one: how-much-to-forget/fig-forgetting.
"""

import hashlib
import json
import re
from collections import Counter
from typing import Any

import equations
import numbering
import runs
import transclude
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx_exercise.nodes import exercise_enumerable_node, solution_node

#: A check's id, up to where it is shown.
_CHECK = re.compile(r"(<p class='icl-check' id='(check-[^']+)'.*?</code>)", re.S)


def figure_id(spec: dict[str, Any]) -> str:
    """The id of a figure on its page, from its specification: whole words of what names it, 50 characters at most."""
    full = nodes.make_id(f"fig-{transclude.function(spec) or runs.heading(spec)}")
    return full if len(full) <= 50 else full[:51].rpartition("-")[0]


def figure_name(page: str, spec: dict[str, Any]) -> str:
    """The name by which `{numref}` knows a figure."""
    return f"{page.rpartition('/')[2]}/{figure_id(spec)}"


def equation_ids(tex: str) -> list[str]:
    """The ids that a displayed equation has by its tags: one for each number under them."""
    ids = list[str]()
    for tag in equations.TAG.findall(tex):
        ids += equations.numbers(tag) if tag[0].isdigit() else [nodes.make_id(tag)]
    return [f"eq-{one}" for one in ids]


def _home(node: nodes.Node) -> str:
    """The id of the section that a node is in; of an exercise's it is the exercise's own."""
    while node.parent and not isinstance(node, nodes.section):
        node = node.parent
    return str(node["ids"][-1]).removesuffix("-content") if isinstance(node, nodes.section) else "page"


class Addresses(SphinxTransform):
    """Give ids and links while a page is read."""

    default_priority = 400  # after exercises are put together, before Sphinx lists what can be referred to

    def apply(self, **how: Any) -> None:
        """All four kinds."""
        for raw in list(self.document.findall(nodes.raw)):
            if raw.astext().startswith(runs.FIGURE):
                self._figure(raw)
            elif "icl-check" in raw.astext():
                link = rf"\1<a class='headerlink' href='#\2' title='Link to this check'>{self._sign}</a>"
                raw.children[:] = [nodes.Text(_CHECK.sub(link, raw.astext()))]
        for node in self.document.findall(solution_node):
            node["ids"].insert(0, f"{node['target_label']}-solution")
        for section in self.document.findall(nodes.section):
            if section["ids"] in (["exercise-content"], ["solution-content"]):  # of every exercise alike
                section["ids"] = [f"{section.parent['ids'][0]}-content"]
        self._equations()

    @property
    def _sign(self) -> str:
        return self.config.html_permalinks_icon

    def _equations(self) -> None:
        """Put every equation into a box with its ids, but one whose number the page has shown before."""
        counts, document_ids = Counter[str](), self.document.ids
        for block in list(self.document.findall(nodes.math_block)):
            home, ids = _home(block), equation_ids(block.astext())
            counts[home] += 1
            if not ids:
                before = "eq-" + hashlib.sha256("".join(block.astext().split()).encode()).hexdigest()[:6]
                for one in block["ids"]:
                    del document_ids[one]  # it will be the box's
                ids = [*(block["ids"] or [f"eq-{home}-{counts[home]}"]), *[before] * (before not in document_ids)]
                block["ids"] = []
            if ids[0] not in document_ids and not block.get("label"):
                self._in_a_box(block, ids, "icl-equation", "Link to this equation")

    def _figure(self, raw: nodes.raw) -> None:
        """Make it a figure with a number, which needs a caption, or a box on a page without numbers."""
        spec = json.loads(runs.specifications(raw.astext())[0])
        if numbering.chapter(self.env.docname) is None:
            self._in_a_box(raw, [figure_id(spec)], "icl-figure", "Link to this figure")
            return
        figure = nodes.figure(
            ids=[figure_id(spec)], names=[figure_name(self.env.docname, spec)], classes=["icl-figure"]
        )
        raw.parent.replace(raw, figure)
        figure += [raw, nodes.caption("", runs.heading(spec))]
        self.document.note_explicit_target(figure)

    def _in_a_box(self, node: nodes.Node, ids: list[str], name: str, title: str) -> None:
        """Put a node into a box with these ids and a link to the first."""
        box = nodes.container(ids=ids, classes=[name])
        node.parent.replace(node, box)
        box += node
        link = f'<a class="headerlink" href="#{ids[0]}" title="{title}">{self._sign}</a>'
        box += nodes.raw("", link, format="html")
        self.document.note_implicit_target(box)


def _link_exercises(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Give an exercise's title a link, once the title is there."""
    for node in doctree.findall(exercise_enumerable_node):
        sign = app.config.html_permalinks_icon
        node[0] += nodes.reference(
            "", sign, refid=node["ids"][0], classes=["headerlink"], reftitle="Link to this exercise"
        )


def _bare_title(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Keep the chapter's number out of the title that heads, previews and citations show."""
    context["title"] = re.sub(r'<span class="section-number">.*?</span>', "", context.get("title") or "")


def setup(app: Sphinx) -> None:
    """Register them."""
    app.add_transform(Addresses)
    app.connect("doctree-resolved", _link_exercises)
    app.connect("html-page-context", _bare_title, priority=100)
