"""The question bank: what it holds, that its answers are right and its cures there, and what stands on paper."""

import copy
import math
import re
import xml.etree.ElementTree as ET
from collections import Counter
from itertools import pairwise

import chapters
import numpy as np
import pytest
import yaml
from course import bank, sheets

from icl import solvers, tasks, theory

BANK = bank.load()
BY_ID = {question.id: question for question in BANK}
CHAPTERS = [page.removeprefix("book/") for page in chapters.with_cells() if page.split("/")[1] in bank.PARTS]
PARTS = {part: [question for question in BANK if question.part == part] for part in bank.PARTS}
#: With two questions at least: what the two lectures and the week are made of.
CORE = [
    *("adaptation/why-stationarity-fails", "adaptation/time-varying-regression", "adaptation/gated-linear-attention"),
    *("adaptation/how-much-to-forget", "adaptation/adaptive-filters", "adaptation/when-the-test-differs"),
    *("memory/linear-transformers", "memory/first-order-methods", "selection/s6-layer"),
    *("synthesis/every-model-a-fast-weight", "synthesis/one-benchmark"),
]


def written(question: bank.Question) -> list[str]:
    """All texts of a question."""
    return [question.ask, question.because, *(t for o in question.options for t in (o.text, o.believes))]


def letters(text: str) -> int:
    """About how long a text is once its formulas are set."""
    return len(re.sub(r"\\(mathbf|[a-z]+)|[${}\\]", lambda m: "x" if m[1] not in (None, "mathbf") else "", text))


# What the bank holds


def test_the_questions_cover_every_chapter():
    assert len(BANK) == len(BY_ID)
    count = Counter(question.chapter.page for question in BANK)
    assert set(count) == set(CHAPTERS)
    assert [page for page in CORE if count[page] < 2] == []


@pytest.mark.parametrize("question", BANK, ids=lambda question: question.id)
def test_every_wrong_answer_has_a_belief_and_a_cure(question):
    for option in question.options:
        assert bool(option.believes and option.read and option.read.heading) != option.right
    beliefs = [option.believes for option in question.options if not option.right]
    assert all(belief.endswith(".") for belief in beliefs)
    assert len(set(beliefs)) == len(beliefs)
    assert question.because.endswith(".")


@pytest.mark.parametrize("question", BANK, ids=lambda question: question.id)
def test_options_are_distinct(question):
    assert len({option.text for option in question.options}) == len(question.options)
    assert len(question.right) == 1 or question.kind == "several"


def test_neither_length_nor_place_tells_the_right_answer():
    choices = [question for question in BANK if question.kind == "choice"]
    rank = Counter()
    for question in choices:
        sizes = [letters(option.text) for option in question.options]
        rank[sorted(sizes).index(sizes[question.right[0]])] += 1
    assert max(rank[0], rank[3]) <= 0.4 * len(choices)
    for inside in PARTS.values():
        places = [question.right[0] for question in inside if question.kind == "choice"]
        count = [places.count(place) for place in range(4)]
        assert max(count) - min(count) <= 1
        runs = [a == b == c for (a, b), (_, c) in pairwise(pairwise(places))]
        assert not any(runs)


def test_formulas_are_closed_and_no_markup_is_left():
    for question in BANK:
        for text in written(question):
            shown = bank.marked(text)
            assert shown.count(r"\(") == shown.count(r"\)") == text.count("$") // 2
            assert not re.search(r"[$*`]|\{=", shown)
            ET.fromstring(f"<p>{shown}</p>")


#: Each number once more, by hand: what the library is not asked for.
BY_HAND = {
    "stationarity-share": 11 / 31,
    "drift-share-new": 0.19,
    "gate-memory": 0.96,
    "forget-pole": (lambda b: b / 2 - math.sqrt(b * b / 4 - 1))((1.81 + 0.019) / 0.9),
    "test-scale": math.sqrt(2),
    "filter-delta-error": 0.1 / (1 - 0.81 * 11 / 12),
    "depth-degree": 27,
    "language-unit": math.exp(math.log(0.9) / 13),
    "text-turns": 0.9,
    "tokens-by-hand": (6 - 1 + 3) / 4,
    "methods-descent-left": 0.9**10,
    "floor-high-dimension": 1 / 4,
    "registers-momentum-sum": 1 + 1 / 2 + 1 / 4,
    "gdpp-degree": 1 + 3 + 9 + 27,
    "batches-capacity": 36,
    "figure-paired": 3,
    "precond-prompts": 1 / 2,
    "heads-convex-gate": 2,
    "s6-half-life": math.log(2) * 10,
    "exponential-saddle": math.log(10) / math.log(1.025),
    "tokens-halved": 5,
    "real-long-direction": 4,
    "fast-weight-s": 20 * 0.0975,
    "unknown-speed-price": math.log(2) * 2 + math.log(5),
    "cheaper-covariance-numbers": 200 + 5 + 1,
    "future-price": 20.0855,
    "board-tie": 6 / 5,
}


def test_numbers_by_hand():
    numbers = {question.id: question for question in BANK if question.kind == "number"}
    assert set(numbers) == set(BY_HAND)
    for name, value in BY_HAND.items():
        right, *wrong = numbers[name].options
        assert abs(right.value - value) <= numbers[name].margin / 2 + 1e-12
        assert abs(float(right.text) - value) <= numbers[name].margin + 1e-12
        assert all(abs(option.value - value) > numbers[name].margin for option in wrong)


#: Each other question answered a second time, from a sheet without the key: words of the right options alone.
SECOND_KEY = {
    "stationarity-curve": ("climbs back",),
    "stationarity-training": ("smaller number",),
    "drift-direction": ("signal grows",),
    "drift-floor": ("gains a little that is new",),
    "gate-no-feedback": ("label itself is written",),
    "gate-three-forms": ("as much work for the last", "square of the prompt"),
    "flow-trap": ("gate forgets",),
    "flow-safe-start": ("= \\mathbf 0$, with random $v$ and",),
    "forget-innovations": ("Nothing",),
    "forget-dimensions": ("stays below it",),
    "test-gain": ("The gain",),
    "test-longer": ("memory is short",),
    "filter-feedback": ("error of its own answer",),
    "filter-fast-drift": ("estimate that fades",),
    "depth-inputs": ("shortens inputs",),
    "depth-ablation": ("mainly by new directions",),
    "language-no-demonstrations": ("learnt in training",),
    "text-random-order": ("Nothing",),
    "kernel-switch": ("(1-p)",),
    "kernel-below-linear": ("looks at the layer's error", "posterior mean"),
    "tokens-carry": ("residual",),
    "tokens-mask": ("final slot",),
    "methods-one-at-zero": ("no example sees",),
    "methods-short-run": ("larger than",),
    "floor-last-layer": ("Not at all",),
    "floor-below": ("GD++", "find their numbers"),
    "register-condition": ("from each prompt",),
    "register-other-variance": ("The deepest",),
    "registers-shared": ("without friction",),
    "gdpp-rare": ("Very rare",),
    "batches-one-prompt": ("stored a label",),
    "layers-fair-rival": ("Tune momentum",),
    "figure-one-point": ("run by run",),
    "precond-dist": ("their sign",),
    "heads-merge": ("trained at the rate $5",),
    "moves-blind-gate": ("one head trained on the mixture",),
    "moves-told-or-reading": ("own curvature counts",),
    "method-worst-batch": ("as many as the numbers",),
    "squares-map": ("fixed function",),
    "squares-twins": ("at any depth",),
    "s6-scale": ("enter as a product",),
    "s6-write": ("label times input is written",),
    "online-whose-gradient": ("distance from label times input",),
    "online-start-right": ("LMS stays",),
    "exponential-rate": ("smallest eigenvalues",),
    "selection-static-c": ("than that of the zero predictor",),
    "selection-dispensable": ("biases that are held", "stays as it was drawn"),
    "tokens-longer": ("twice as much",),
    "past-even-target": ("0 on average",),
    "real-classes": ("a class is a sign",),
    "fast-weight-crosstalk": ("still misses",),
    "fast-weight-no-gain": ("three heads", "each chunk", "momentum"),
    "benchmark-false-law": ("keep their sign",),
    "benchmark-slow-clean": ("the Kalman filter",),
    "benchmark-noise": ("gated attention",),
    "bring-what-is-missing": ("least possible error",),
    "cheaper-covariance-directions": ("spread evenly",),
    "real-drift-cross-check": ("resemble their neighbours",),
    "real-drift-long-inputs": ("squared length",),
    "gating-bound-state": ("uncorrelated with its state",),
    "gating-bound-escape": ("state of the first", "earlier keys", "multiplied into the gain"),
    "unknown-speed-keys": ("what is made of them alone",),
    "unknown-speed-noise": ("takes the rest",),
    "future-two-counts": ("later labels",),
}


def test_a_second_reader_gave_the_same_answers():
    """So a right option exchanged with a wrong one, text for text, is seen."""
    asked = [question for question in BANK if question.kind != "number"]
    assert {question.id for question in asked} == set(SECOND_KEY)
    for question in asked:
        for words in SECOND_KEY[question.id]:
            assert [option.right for option in question.options if words in option.text] == [True], question.id
        assert len(question.right) == len(SECOND_KEY[question.id]), question.id


def settled(d: int, gamma: float, n: int = 100, sigma_e: float = 0.1) -> tasks.DriftingRegression:
    return tasks.DriftingRegression(d, n, gamma, sigma_w=sigma_e / math.sqrt(1 - gamma**2), sigma_e=sigma_e)


def test_what_right_choices_say_is_so():
    # stationarity-curve, test-longer
    errors = [theory.training_error(settled(10, 0.95, n), lam=1.0) for n in (1, 13, 300)]
    zero = theory.zero_predictor(settled(10, 0.95))
    assert errors[1] < 0.75 * zero < errors[0] < errors[2] < zero
    longer = settled(10, 0.95, 1000)
    held = [theory.testing_error(settled(10, 0.95), longer, lam=lam, test_lam=lam) for lam in (0.9, 1.0)]
    assert held[0] < 0.7 * zero < zero < held[1]
    # forget-innovations, forget-dimensions
    assert theory.optimal_forgetting(settled(10, 0.95, 500)) == theory.optimal_forgetting(settled(10, 0.95, 500, 0.2))
    poles = [theory.kalman_pole(0.95, crosstalk=d + 1) for d in (2, 10, 50, 10_000)]
    assert poles == sorted(poles)
    assert 0.94 < poles[-1] < 0.95
    # filter-feedback, filter-fast-drift
    slow, fast = theory.steady.DriftLaw(10, 0.99, 0.1), theory.steady.DriftLaw(10, 0.8, 0.1)
    best = [
        f(slow).error for f in (theory.steady.best_delta, theory.steady.best_normalised_gla, theory.steady.best_gla)
    ]
    assert best == sorted(best)
    lms = min(theory.steady.lms_family.steady_error(settled(10, 0.8), mu) for mu in np.linspace(0, 0.15, 16))
    assert theory.steady.best_delta(fast).error < theory.steady.best_gla(fast).error < lms
    # kernel-switch
    kernel = tasks.RegimeSwitching(1, 50, 0.9, 0.1 / math.sqrt(1 - 0.81), 0.1, switch=0.05).weight_kernel()
    assert kernel[20, 23] / kernel[20, 20] == pytest.approx((0.95 * 0.9) ** 3)
    # methods-short-run, floor-last-layer, register-other-variance
    eta, beta = map(float, solvers.tuned_momentum(0.01, 1.0))
    rows = theory.lfom.polynomials(theory.lfom.momentum_table(eta, beta, 5))[1:]
    left = [abs(np.polynomial.polynomial.polyval(np.linspace(0.01, 1, 200), row)).max() for row in rows]
    assert min(left) > 2
    steps = theory.lfom.table_risks(np.diag(theory.lfom.polynomial_floor.optimal_steps(5, 20, 3)), 5, 20)
    assert steps[-1] == pytest.approx(theory.lfom.polynomial_floor.optimal_risks(5, 20, 3)[-1])
    spoilt = [float(theory.lfom.gated_floor.rescaled_risk(1.5, 5, 20, layers)) for layers in range(1, 5)]
    assert spoilt == sorted(spoilt)
    assert spoilt[0] < 5 < spoilt[-1]
    # tokens-longer, online-start-right
    alpha = 2 ** (-1 / 20)
    gain, least = theory.s6.optimal_beta(4, 20, alpha)
    assert theory.s6.shifted_loss(4, 320, alpha, gain) > 2 * least > 4 * theory.s6.least_loss(4, 320, alpha)
    assert theory.s6.lms_loss(4, 50) < 0.01 < theory.s6.least_loss(4, 50, 2 ** (-1 / 50))
    # benchmark-noise, benchmark-slow-clean
    assert all(
        theory.steady.large_d.eps_gla(s, 10.0) < 1.1 * theory.steady.large_d.kalman_large_d(s, 10.0)
        for s in (0.1, 0.3, 1.0)
    )
    assert (
        theory.steady.large_d.kalman_large_d(0.05, 0.0)
        < 0.75 * theory.steady.large_d.eps_delta(0.05, 0.0)
        < theory.steady.large_d.eps_gla(0.05, 0.0) / 4
    )


# Faults are found


LISTED = yaml.safe_load((bank.SOURCES / "adaptation.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("forget-innovations", lambda q: q["wrong"][0].update(read="adaptation/no-page#why"), "no such page"),
        ("forget-innovations", lambda q: q["wrong"][0].update(read="no-heading"), "no heading"),
        ("forget-innovations", lambda q: q["wrong"][0].update(read="adaptation/depth"), "no heading"),
        ("forget-innovations", lambda q: q["wrong"].pop(), "three wrong"),
        ("forget-innovations", lambda q: q["wrong"][0].pop("believes"), "believes"),
        ("forget-innovations", lambda q: q.update(because="It errs 0.27 more."), "neither computed"),
        ("forget-innovations", lambda q: q.update(because="It errs 27% more."), "neither computed"),
        ("forget-innovations", lambda q: q.update(ask="What is $\\gamma?"), "not closed"),
        ("forget-innovations", lambda q: q.update(ask="What is $\\frac{1}{2$?"), "not closed"),
        ("forget-innovations", lambda q: q.update(hint="none"), "unknown"),
        ("forget-innovations", lambda q: q.update(chapter="adaptation/no-page"), "no such page"),
        ("forget-innovations", lambda q: q.update(level="hard"), "level"),
        ("forget-pole", lambda q: q["answer"].update(compute="theory.no_such(gamma, d)"), "cannot be computed"),
        ("forget-pole", lambda q: q["answer"].update(show=".0f"), "as it is shown"),
        ("forget-pole", lambda q: q["wrong"][1].update(compute="gamma * 0.93"), "too near"),
        ("stationarity-share", lambda q: q.update(ask=q["ask"].replace("{=d}", "20")), "typed in the text"),
        ("stationarity-share", lambda q: q.update(ask=q["ask"] + " It has twenty layers."), "typed in the text"),
        (
            "stationarity-share",
            lambda q: q["answer"].update(compute="11 / 31"),
            "that the text does not say, or the answer",
        ),
        ("stationarity-share", lambda q: q["answer"].update(compute="(d + 1) / (n + 10 + 1)"), "a setting already"),
        ("stationarity-share", lambda q: q.update(formula="d / (n + d + 1)"), "its formula is"),
        ("stationarity-share", lambda q: q.update(formula="(d + 1) / (n + k + 1)"), "k is no setting"),
        ("stationarity-share", lambda q: q.update(because="It is $(d+1)/n$."), "does not show it"),
        ("drift-floor", lambda q: q.update(right="A weight that keeps some of itself."), "that no text says"),
        ("drift-floor", lambda q: q.update(right=q["right"].replace("{=kept}", "0.98")), "that no text says"),
        ("gate-three-forms", lambda q: q.update(right=q["right"][:1]), "at least two right"),
    ],
)
def test_a_fault_is_named(name, change, told):
    question = copy.deepcopy(next(one for one in LISTED if one["id"] == name))
    change(question)
    with pytest.raises((chapters.Broken, ValueError, KeyError), match=told):
        bank._question(question, "adaptation", 0)


def test_a_bank_with_a_fault_names_the_question(tmp_path):
    for part in bank.PARTS:
        text = (bank.SOURCES / f"{part}.yml").read_text(encoding="utf-8")
        text = text.replace("read: why-do-more-examples-hurt", "read: why-do-fewer-examples-hurt", 1)
        (tmp_path / f"{part}.yml").write_text(text, encoding="utf-8")
    with pytest.raises(chapters.Broken, match=r"adaptation.yml: stationarity-curve: why-do-fewer-examples-hurt"):
        bank.load(tmp_path)


def test_headings_are_those_of_the_site():
    found = bank.headings("adaptation/how-much-to-forget")
    assert found["why-not-simply-lambda-gamma"].heading == r"Why not simply $\lambda = \gamma$?"
    assert found[""].text == "How much to forget"


# On paper


def test_another_setting_changes_text_and_key_alike():
    """Of d = 20 in the place of 10: what is asked, the answer and a wrong one."""
    question = copy.deepcopy(next(one for one in LISTED if one["id"] == "stationarity-share"))
    question["settings"]["d"] = 20
    other = bank._question(question, "adaptation", 0)
    assert "$d = 20$" in other.ask
    assert other.options[0].value == pytest.approx(21 / 41, rel=1e-12)
    assert other.options[1].value == pytest.approx(21 / 20, rel=1e-12)


@pytest.mark.parametrize("part", bank.PARTS)
def test_a_sheet_shows_no_answer_and_a_key_all_of_them(part):
    sheet, key = (sheets.sheet(PARTS[part], key=key) for key in (False, True))
    assert sheet.count("<section>") == key.count("<section>") == len(PARTS[part])
    assert 'class="right"' not in sheet
    assert "Belief" not in sheet
    assert key.count('class="right"') == sum(len(question.right) for question in PARTS[part])
    for question in PARTS[part]:
        assert sheets._set(question.because) in key
        assert sheets._set(question.because) not in sheet
        assert question.kind == "number" or all(f"<div>{sheets._set(o.text)}" in sheet for o in question.options)


def test_a_formula_keeps_what_follows_it_and_is_described():
    shown = sheets._set("$d$ or $n < 2$, and $k$")
    assert r'aria-label="n &lt; 2">\(n &lt; 2\)<span' in shown
    assert "</span>,</span> and <span" in shown
    assert shown.count('role="img"') == 3
