"""The page for teachers: syllabi that obey the chapters' cards, minutes that are sums, a graph that is the cards'."""

import re
from pathlib import Path
from xml.etree import ElementTree

import chapters
import courses
import measurements
import pytest
import teaching

ROOT = Path(__file__).resolve().parents[2]

SYLLABI = courses.syllabi()
TEXTS = {name: teaching.of_syllabus(syllabus) for name, syllabus in SYLLABI.items()}
GRAPH = courses.graph()
PAGE = "book/course/teach"
KIT = ROOT / "book" / "course"


def test_cards_link_what_they_ask_for():
    """No cycle, no link to a later chapter, and each chapter but the first asks for another; a fault is named."""
    assert courses.faults(GRAPH) == []
    first, second, *_, last = GRAPH
    assert courses.faults(GRAPH | {second: ()}) == [f"{second}: asks for no chapter"]
    assert f"{second}: asks for {last}, which comes later" in courses.faults(GRAPH | {second: (last,)})
    assert any("asks for itself" in fault for fault in courses.faults(GRAPH | {first: (second,)}))
    assert f"{last}: asks for book/gone, which is no chapter" in courses.faults(GRAPH | {last: ("book/gone",)})


def test_a_card_is_read_whole():
    """Every link of the prerequisites, and none of the objectives; a card that says none is refused."""
    text = "```{page-card}\n**You will be able to** do [a](x.md).\n\n**You should know** [b](b.md#c), [c](../r/c.md)."
    text += "\n```\n"
    assert courses.card("book/p/q", text).asks == ("book/r/c",)
    assert courses.card("book/p/q", text.replace("b.md#c", "b.md")).asks == ("book/p/b", "book/r/c")
    with pytest.raises(chapters.Broken, match=r"book/p/q\.md: no card"):
        courses.card("book/p/q", text.replace("You should know", "You know"))
    cards = [chapters.source(page).count("```{page-card}") for page in GRAPH]
    assert set(cards) == {1}


@pytest.mark.parametrize("name", SYLLABI)
def test_a_syllabus_obeys_the_cards(name):
    """Each chapter after all that it rests on, as far as they are taught; what is left out has a bridge."""
    syllabus, seen = SYLLABI[name], []
    taught = syllabus.chapters
    for page in taught:
        rests = [one for one in GRAPH[page] if one not in seen]
        assert set(rests) <= set(syllabus.bridges), page
        seen.append(page)
    assert len(set(taught)) == len(taught)
    assert not set(syllabus.bridges) & set(taught)


SMALL = """problem_sets: {ps1: [adaptation/depth]}
syllabi:
  mine:
    title: Mine
    whom: me
    sessions:
      - title: one
        time: an hour
        chapters: [adaptation/why-stationarity-fails, adaptation/time-varying-regression]
        exercises: [ex-crosstalk]
      - {title: two, time: an hour, chapters: [adaptation/gated-linear-attention], exercises: [ex-mask]}
"""


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("gated-linear-attention", "gated-linear", "the book has no chapter book/adaptation/gated-linear"),
        ("ex-mask", "ex-mass", "the book has no exercise ex-mass"),
        ("[ex-crosstalk]", "[ex-half-life]", "ex-half-life is set before book/adaptation/gated-linear-attention"),
        ("ex-mask", "ex-crosstalk", "ex-crosstalk is set twice"),
        (
            "why-stationarity-fails, adaptation/time-varying-regression",
            "time-varying-regression, adaptation/why-stationarity-fails",
            "book/adaptation/time-varying-regression comes before book/adaptation/why-stationarity-fails",
        ),
        ("adaptation/why-stationarity-fails, ", "", "is asked for and left out, without a bridge"),
        ("    whom: me", "    whom: me\n    bridges: {adaptation/depth: Word.}", "a bridge for book/adaptation/depth"),
        ("linear-attention]", "linear-attention, adaptation/why-stationarity-fails]", "stands twice"),
        ("title: two,", "title: two, problem_set: ps1,", "ps1 is handed out before book/adaptation/depth"),
        ("title: two,", "title: two, problem_set: ps9,", "there is no problem set ps9"),
        ("title: two,", "title: two, decks: [lecture-9],", "there are no slides lecture-9"),
        (
            "title: two,",
            "title: two, decks: [lecture-2],",
            "slides lecture-2 come before book/memory/linear-transformers",
        ),
        ("title: two,", "titel: two,", "not a list of syllabi"),
    ],
)
def test_a_syllabus_that_is_not_sound_is_refused(monkeypatch, old, new, says):
    """Names, order, bridges and problem sets: each fault is named, and the same file without it is taken."""
    texts = {"now": SMALL}
    own = chapters.words
    monkeypatch.setattr(chapters, "words", lambda path: texts["now"] if path.name == "syllabi.yml" else own(path))
    assert courses.syllabi()["mine"].chapters[2] == "book/adaptation/gated-linear-attention"
    assert old in SMALL
    texts["now"] = SMALL.replace(old, new, 1)
    with pytest.raises(chapters.Broken, match=re.escape(says)):
        courses.syllabi()


def minutes(words):
    """Minutes of the times that a syllabus prints, such as 1 h 20 min."""
    hours, rest = re.fullmatch(r"(?:(\d+)\sh)?\s?(?:(\d+)\smin)?", words).groups()
    return 60 * int(hours or 0) + int(rest or 0)


def sums_are_right(text):
    """Whether what is printed of each session, and of all, is the sum of what is printed of its parts."""
    span = r"((?:\d+\sh)?\s?(?:\d+\smin)?)"
    total_read, total_work = re.search(rf"reading {span}(?: · \d+ exercises {span})?$", text, re.M).groups()
    sessions, right = text.split(":::{container} icl-session")[1:], []
    read = work = 0
    for session in sessions:
        head, _, body = session.split("Left out")[0].split("Objectives")[0].strip().partition("\n")
        found = {
            kind: minutes(m[1]) if (m := re.search(rf"· {kind} {span}", head)) else 0
            for kind in ("reading", "exercises")
        }
        chapters_, exercises = (re.search(rf"^{kind}: (.*)$", body, re.M) for kind in ("Read", "Exercises"))
        listed = [int(n) for n in re.findall(r"\((\d+)\smin\)", chapters_[1])] if chapters_ else []
        set_ = [int(n) for n in re.findall(r", (\d+)\smin\)", exercises[1])] if exercises else []
        right += [found["reading"] == sum(listed), found["exercises"] == sum(set_)]
        read, work = read + sum(listed), work + sum(set_)
    return all(right) and minutes(total_read) == read and minutes(total_work or "0 min") == work


@pytest.mark.parametrize("name", SYLLABI)
def test_minutes_are_sums(name):
    """What is printed of sessions and of the whole are the sums of what is printed of chapters and exercises, and a
    chapter's minutes are its card's; a minute more anywhere is seen.
    """
    text = TEXTS[name]
    assert sums_are_right(text)
    numbers = [
        n for n in re.finditer(r"\d+(?=\smin)", text.partition("Left out")[0]) if n.start() > text.index("**In all**")
    ]
    for number in numbers[:: 1 if len(numbers) < 20 else 15]:
        # Times in class and of problem sets are no part of the sums.
        beside = text[number.end() : number.end() + 15] + text[number.start() - 40 : number.start()]
        if "in class" not in beside and "problem set" not in beside:
            planted = f"{text[: number.start()]}{int(number[0]) + 1}{text[number.end() :]}"
            assert not sums_are_right(planted)
    for page in SYLLABI[name].chapters:
        card = max(1, round(measurements.minutes(measurements.reading(chapters.source(page)))))
        assert f"[{chapters.title(page)}](/{page}.md) ({card}\u00a0min)" in text


def test_objectives_are_the_cards():
    """Below a syllabus stands what each of its chapters' cards promises, in the same words."""
    for syllabus in SYLLABI.values():
        assert all(f"- {courses.card(page).able}" in TEXTS[syllabus.name] for page in syllabus.chapters)


def test_exercises_have_minutes_by_the_rule():
    """All exercises of the book, each of a kind; the page states the rule's numbers as the code has them."""
    found = courses.every_exercise()
    text = "".join(chapters.source(page) for page in courses.taught_chapters())
    assert sorted(found) == sorted(re.findall(r"\{exercise-start\}.*\n:label: (\S+)", text))
    assert {each.kind for each in found.values()} == set(teaching.KINDS)
    assert all(each.minutes % courses.STEP == 0 for each in found.values())
    assert (courses.PAPER, courses.A_SOLUTION, courses.CODE, courses.A_LINE, courses.OPEN) == (10, 5, 10, 2, 60)
    rule = "ten minutes plus five times what its solution takes to read; one in code, ten minutes plus two for each"
    assert rule in chapters.source(PAGE)
    mask = found["ex-mask"]
    assert (mask.kind, mask.title, mask.page) == ("code", "The mask", "book/adaptation/gated-linear-attention")
    assert mask.minutes == 15  # 10, three lines, and a minute to read the task


def test_problem_sets_have_minutes_by_the_rule(monkeypatch):
    """Ten minutes an exercise, two a line of its solution, and the text's; a session that hands it out says them."""
    solved = "".join(f"    {number}\n" for number in range(5))
    cell = f"```{{code-cell}}\n:answer: f\n\n    ### BEGIN SOLUTION\n{solved}    ### END SOLUTION\n```\n"
    text = "---\nhead\n---\n" + 2 * cell
    with monkeypatch.context() as patched:
        patched.setattr(chapters, "words", lambda path: text)
        assert courses.problem_set("ps9") == 40  # 2 (10 + 2 * 5) and no text
        patched.setattr(chapters, "words", lambda path: text + "word " * 2_000)
        assert courses.problem_set("ps9") >= 50
    sets = sorted(path.stem for path in (KIT / "assignments").glob("ps*.md"))
    said = "\n".join(TEXTS.values())
    assert all(f"problem set `{name}`, {teaching.span(courses.problem_set(name))}" in said for name in sets)


def test_questions_have_the_numbers_of_their_sheets():
    """A session names the questions on its chapters as the printed sheets number them, and each has at least one."""
    from course import bank, sheets

    questions = bank.load()
    for name, part in courses.PARTS.items():
        mine = [question for question in questions if question.part == name]
        assert f"<h1>Part {part}: " in sheets.sheet(mine, key=True)
        for page in {question.chapter.page for question in mine}:
            numbers = [number for number, question in enumerate(mine, 1) if question.chapter.page == page]
            assert courses.questions_about((f"book/{page}",)) == {part: numbers}
    for syllabus in SYLLABI.values():
        for session in syllabus.sessions:
            told = re.search(r"^Questions: (.*)$", teaching.of_session(session, courses.every_exercise()), re.M)
            assert (told is not None) == bool(session.chapters)
            if told:
                found = {(p, int(n)) for p, ns in re.findall(r"(I+V?) ([\d, ]+)", told[1]) for n in ns.split(",")}
                assert found == {(p, n) for p, ns in courses.questions_about(session.chapters).items() for n in ns}


def test_the_picture_is_the_graph():
    """Each chapter's title is a link in it, in the reader's order; its lines are the links that no others imply; no
    line runs through another chapter's dot; the list beside it has all links.
    """
    bare = courses.bare(GRAPH)
    rests = {page: courses.behind(GRAPH, page) for page in GRAPH}
    assert all(courses.behind(bare, page) == rests[page] for page in GRAPH)
    svg = ElementTree.fromstring(teaching.picture(GRAPH, teaching.captions(), lambda page: f"../../{page}.html"))
    links = [(a.get("href"), a[0].text) for a in svg.iter("a")]
    assert links == [(f"../../{page}.html", chapters.title(page)) for page in GRAPH]
    dots = [(float(c.get("cx")), float(c.get("cy"))) for c in svg.iter("circle")]
    assert len(dots) == len(set(dots)) == len(GRAPH)
    trunks = [m for p in svg.iter("path") if (m := re.fullmatch(r"M(\S+) (\S+)V(\S+)", p.get("d")))]
    assert len(trunks) == sum(map(len, bare.values()))
    for x, top, end in (map(float, m.groups()) for m in trunks):
        assert (x, top) in dots
        assert not [dot for dot in dots if dot[0] == x and top < dot[1] <= end]
    listed = teaching.as_list(GRAPH)
    assert len(re.findall(r"\]\(/book/", listed)) == len(GRAPH) + sum(map(len, GRAPH.values()))
    assert svg.get("aria-label")


def test_the_picture_is_as_wide_as_a_phone():
    """Its letters have 12 of its units, and it is at most 390 of them wide: a phone shows them no smaller than 11."""
    svg = ElementTree.fromstring(teaching.picture(GRAPH, teaching.captions(), str))
    assert float(svg.get("viewBox").split()[2]) <= 390


def test_the_page_shows_what_there_is():
    """All syllabi, decks and problem sets that are there, and no others."""
    text = chapters.source(PAGE)
    assert re.findall(r"^```\{syllabus\} (\S+)$", text, re.M) == list(SYLLABI)
    sessions = [session for syllabus in SYLLABI.values() for session in syllabus.sessions]
    sets = {path.stem for path in (KIT / "assignments").glob("ps*.md")}
    assert {session.problem_set for session in sessions} - {""} <= sets
    decks = {path.stem for path in (KIT / "slides").glob("*.md")}
    assert {deck for session in sessions for deck in session.decks} == decks


def test_binder_opens_a_tag():
    """On a public host the link names repository and version; elsewhere there is none."""
    assert "https://mybinder.org/v2/gh/us/book/v1.2.3?" in teaching.in_binder("https://github.com/us/book", "1.2.3")
    for repository in ("", "https://gitlab.com/us/book"):
        assert "](" not in teaching.in_binder(repository, "1.2.3")
