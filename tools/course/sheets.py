"""The question bank on paper: a sheet for students and a key for teachers, a part each, as PDF.

A question stands on one page. Formulas are set by the MathJax that the book brings, so nothing is asked of any network.
"""

import importlib.metadata
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import chapters
import courses

from course import Missing, bank
from course.bank import Question


def _set(text: str) -> str:
    """Markdown as HTML for paper: no line begins with what follows a formula.

    Its source describes it. Its letters belong to style sheets, which a tag of the PDF cannot hold: too small to be
    seen, the source stands for them.
    """

    def formula(match: re.Match[str]) -> str:
        source = match[1].replace('"', "&quot;")
        small = f'<span class="tex mathjax_ignore">{match[1]}</span>'
        span = f'<span class="formula" role="img" aria-label="{source}">\\({match[1]}\\){small}</span>'
        return f'<span class="whole">{span}{match[2]}</span>'

    return re.sub(r"\\\(((?:(?!\\\)).)*)\\\)([,.;:?)]*)", formula, bank.marked(text))


WIDTH = 657  # pixels between the margins: 174 mm
#: What is set beyond the right margin, or cut off in its box.
_CUT = """width => [...document.querySelectorAll("p, li > div, h1, h2, mjx-container")]
  .filter(e => e.getBoundingClientRect().right > width + 1)
  .map(e => `too wide: ${e.textContent.trim().slice(0, 60)}`)"""
_TITLES = {"adaptation": "Adaptation", "memory": "Memory", "selection": "Selection", "synthesis": "Synthesis"}
_STYLE = """
@page { size: A4; margin: 18mm 18mm 20mm;
  @bottom-right { content: counter(page) " / " counter(pages); font: 9pt serif; color: #444 }
  @bottom-left { content: "Learning to Adapt · text under CC BY 4.0"; font: 9pt serif; color: #444 } }
body { font: 10.5pt/1.4 "DejaVu Serif", Georgia, serif; color: #111; margin: 0 }
h1 { font-size: 17pt; margin: 0 0 2mm } .about { margin: 0 0 6mm; color: #333 }
.name { margin: 0 0 7mm; display: flex; gap: 8mm }
.name span { flex: 1; border-bottom: 0.3mm solid #555; padding-top: 7mm }
section { break-inside: avoid; margin: 0 0 7mm } h2 { font-size: 11pt; margin: 0 0 1mm }
h2 small { font-weight: normal; color: #444; font-size: 9.5pt } p { margin: 0 0 1.5mm }
ol { list-style: none; margin: 0; padding: 0 } li { display: flex; gap: 3mm; margin: 0 0 1.2mm; break-inside: avoid }
li > b { flex: 0 0 5mm } li > div { flex: 1 }
.box { flex: 0 0 3.4mm; height: 3.4mm; border: 0.3mm solid #333; margin-top: 1mm }
.round { border-radius: 50% }
.line { display: inline-block; width: 45mm; border-bottom: 0.3mm solid #555; margin-left: 2mm }
.right { background: #e4f1e4; outline: 0.8mm solid #e4f1e4 } .cure { font-size: 9.5pt; color: #333; margin: 0.3mm 0 0 }
.whole { white-space: nowrap } .formula { position: relative }
.tex { position: absolute; left: 0; top: 50%; font: 0.1px sans-serif; color: #fff }
.because { border-left: 0.8mm solid #4a8a4a; padding-left: 2.5mm; margin-top: 1.5mm }
"""


def sheet(questions: Sequence[Question], *, key: bool) -> str:
    """The page of HTML that prints one part's questions for students, or with the answers for teachers."""
    part = questions[0].part
    minutes = sum(question.minutes for question in questions)
    title = f"Part {courses.PARTS[part]}: {_TITLES[part]}"
    about = f"{len(questions)} questions, about {minutes} minutes."
    if key:
        note = (
            "Key for teachers. Right answers are shaded; below a wrong one stands the belief behind it, and its cure."
        )
        lead = f'<p class="about">{note} {about}</p>'
    else:
        note = "○ one answer is right; □ more than one is right; — a number is asked for."
        lead = f'<p class="about">{about} {note}</p><div class="name"><span>Name</span><span>Date</span></div>'
    body = "".join(_printed(place + 1, question, key) for place, question in enumerate(questions))
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}{": key" if key else ""}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>{lead}{body}</body></html>"
    )


def _printed(number: int, question: Question, key: bool) -> str:
    small = f"{question.minutes} min"
    if key:
        small = f"{_set(question.chapter.title)} · {question.level} · {small} · {question.id}"
    parts = [f"<section><h2>{number} <small>{small}</small></h2><p>{_set(question.ask)}</p>"]
    if question.kind == "number" and not key:
        parts.append('<p>—<span class="line"></span></p>')
    else:
        parts.append("<ol>")
        for letter, option in zip(bank.LETTERS, question.options, strict=False):
            mark = {"choice": '<span class="box round"></span>', "several": '<span class="box"></span>', "number": ""}
            text = _set(option.text)
            if key and question.kind == "number" and option.right and question.margin:
                text += f" (accept {option.value - question.margin:.5g} to {option.value + question.margin:.5g})"
            if key and not option.right:
                text += f'<p class="cure">{_set(question.feedback(option))}</p>'
            name = "" if question.kind == "number" else f"<b>{letter}</b>"
            shade = ' class="right"' if key and option.right else ""
            parts.append(f"<li{shade}>{mark[question.kind]}{name}<div>{text}</div></li>")
        parts.append("</ol>")
    if key:
        parts.append(f'<p class="because">{_set(question.because)}</p>')
    return "".join([*parts, "</section>"])


def printed(pages: Mapping[str, str]) -> dict[str, bytes]:
    """The same pages as PDF, by name; Missing if there is no Chromium, Broken if a formula cannot be set or is cut."""
    import chromium
    import pdf

    packed = importlib.metadata.files("sphinx-mathjax-offline") or []
    script = next(str(file.locate()) for file in packed if file.name == "tex-chtml.js")
    quiet = "{enableMenu: false, enableAssistiveMml: false, menuOptions: {settings: {assistiveMml: false}}}"
    setting = f"<script>window.MathJax = {{options: {quiet}}}</script>"
    setting += f'<script src="{Path(script).as_uri()}"></script>'
    documents = dict[str, bytes]()
    try:
        with tempfile.TemporaryDirectory() as folder, chromium.launched() as browser:
            for name, page in pages.items():
                (Path(folder) / "page.html").write_text(page.replace("</head>", f"{setting}</head>"), encoding="utf-8")
                tab = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
                tab.emulate_media(media="print")
                tab.goto((Path(folder) / "page.html").as_uri())
                tab.evaluate("MathJax.startup.promise.then(() => document.fonts.ready)")
                if faults := tab.locator("mjx-merror").all_inner_texts() + tab.evaluate(_CUT, WIDTH):
                    raise chapters.Broken(f"{name}: {'; '.join(faults[:5])}")
                document = tab.pdf(prefer_css_page_size=True, print_background=True, tagged=True, outline=True)
                documents[name] = pdf.outlined(document)
                tab.close()
    except RuntimeError as fault:
        raise Missing(str(fault)) from fault
    return documents
