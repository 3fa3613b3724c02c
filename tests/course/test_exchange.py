"""What learning platforms are given: packages that follow the specifications, and judge as the key does."""

import io
import re
import xml.etree.ElementTree as ET
import zipfile
from itertools import combinations
from pathlib import Path

import pytest
from course import bank, exchange, questions

BANK = bank.load()
BY_ID = {question.id: question for question in BANK}
FILES = questions.exchanged(BANK)
CP, QTI12, QTI21 = (f"{{{space}}}" for space in (exchange._CP, exchange._QTI12, exchange._QTI21))


def test_no_address_and_no_picture():
    for name, content in FILES.items():
        texts = [content]
        if name.endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                texts = [archive.read(one) for one in archive.namelist()]
        for text in texts:
            found = set(re.findall(rb"https?://[^\s\"<]+", text))
            assert all(one.startswith((b"http://www.imsglobal.org/xsd/", b"http://www.w3.org/")) for one in found)
            assert b"<img" not in text
            assert b"&lt;img" not in text
            assert str(Path.home()).encode() not in text


def opened(name: str) -> tuple[ET.Element, dict[str, ET.Element]]:
    """A package's manifest, and its other files."""
    with zipfile.ZipFile(io.BytesIO(FILES[name])) as archive:
        files = {one.filename: archive.read(one) for one in archive.infolist()}
    assert next(iter(files)) == "imsmanifest.xml"
    manifest = ET.fromstring(files.pop("imsmanifest.xml"))
    listed = [file.get("href") for file in manifest.iter(f"{CP}file")]
    assert sorted(listed) == sorted(files)
    identifiers = [one.get("identifier") for one in manifest.iter(f"{CP}resource")]
    assert len(set(identifiers)) == len(identifiers)
    assert {one.get("identifierref") for one in manifest.iter(f"{CP}dependency")} <= set(identifiers)
    assert [child.tag.removeprefix(CP) for child in manifest] == ["metadata", "organizations", "resources"]
    return manifest, {file: ET.fromstring(text) for file, text in files.items()}


def test_qti_1_2_follows_the_specification():
    _, files = opened("questions-qti-1.2.zip")
    items = [item for root in files.values() for item in root.iter(f"{QTI12}item")]
    assert [item.get("ident") for item in items] == [q.id for q in BANK]
    for item in items:
        question = BY_ID[item.get("ident")]
        order = [child.tag.removeprefix(QTI12) for child in item]
        assert order[:3] == ["itemmetadata", "presentation", "resprocessing"]
        assert set(order[3:]) == {"itemfeedback"}
        asked = item.findall(f"{QTI12}presentation/*[@ident]")
        assert [one.get("ident") for one in asked] == ["response1"]
        labels = [one.get("ident") for one in item.iter(f"{QTI12}response_label")]
        given = {e.text for e in item.iter(f"{QTI12}varequal")}
        scored = [c for c in item.iter(f"{QTI12}respcondition") if c.find(f"{QTI12}setvar") is not None]
        assert len(scored) == 1
        assert {e.get("respident") for e in item.iter() if e.get("respident")} == {"response1"}
        feedback = {one.get("ident"): "".join(one.itertext()) for one in item.iter(f"{QTI12}itemfeedback")}
        linked = [one.get("linkrefid") for one in item.iter(f"{QTI12}displayfeedback")]
        assert sorted(linked) == sorted(feedback)
        if question.kind == "number":
            least, most = (float(scored[0].find(f".//{QTI12}{tag}").text) for tag in ("vargte", "varlte"))
            assert least <= float(question.options[0].text) <= most
        else:
            assert given <= set(labels)
            assert len(labels) == len(question.options)
            asked_for = scored[0].findall(f".//{QTI12}varequal")
            refused = {e.text for e in scored[0].findall(f".//{QTI12}not/{QTI12}varequal")}
            right = {bank.LETTERS[place] for place in question.right}
            assert {e.text for e in asked_for} - refused == right
        for letter, option in zip(bank.LETTERS, question.options, strict=False):
            if not option.right:
                assert bank.marked(option.believes) in feedback[f"{letter}_fb"]
                assert bank.marked(option.read.title) in feedback[f"{letter}_fb"]


def test_qti_2_1_follows_the_specification():
    _, files = opened("questions-qti-2.1.zip")
    tests = {name: root for name, root in files.items() if name.startswith("tests/")}
    items = {root.get("identifier"): root for name, root in files.items() if name.startswith("items/")}
    assert set(items) == set(BY_ID)
    listed = [ref for root in tests.values() for ref in root.iter(f"{QTI21}assessmentItemRef")]
    assert [ref.get("identifier") for ref in listed] == [q.id for q in BANK]
    assert all(ref.get("href").removeprefix("../") in files for ref in listed)
    order = ["responseDeclaration", "outcomeDeclaration", "outcomeDeclaration", "itemBody", "responseProcessing"]
    for name, item in items.items():
        question = BY_ID[name]
        assert item.get("adaptive") == item.get("timeDependent") == "false"
        assert item.get("title")
        tags = [child.tag.removeprefix(QTI21) for child in item]
        assert tags == order + ["modalFeedback"] * len(question.options)
        (declared,) = item.findall(f"{QTI21}responseDeclaration")
        correct = [value.text for value in declared.iter(f"{QTI21}value")]
        many, base = declared.get("cardinality"), declared.get("baseType")
        assert many == ("multiple" if question.kind == "several" else "single")
        known = {d.get("identifier") for d in item.iter() if d.tag.endswith("Declaration")}
        named = {e.get("identifier") for tag in ("variable", "setOutcomeValue") for e in item.iter(f"{QTI21}{tag}")}
        assert named <= known == {"RESPONSE", "SCORE", "FEEDBACK"}
        (asked,) = [e for e in item.iter() if e.tag.endswith("Interaction")]
        assert asked.get("responseIdentifier") == "RESPONSE"
        if question.kind == "number":
            assert base == "float"
            assert abs(float(correct[0]) - float(question.options[0].text)) <= question.margin + 1e-9
        else:
            offered = [choice.get("identifier") for choice in item.iter(f"{QTI21}simpleChoice")]
            assert base == "identifier"
            assert offered == list(bank.LETTERS[: len(question.options)])
            assert correct == [bank.LETTERS[place] for place in question.right]
            assert (asked.get("maxChoices") == "1") == (question.kind == "choice")
        told = {
            e.get("identifier"): " ".join("".join(e.itertext()).split()) for e in item.iter(f"{QTI21}modalFeedback")
        }
        for letter, option in zip(bank.LETTERS, question.options, strict=False):
            plain = "".join(ET.fromstring(f"<p>{bank.marked(question.feedback(option))}</p>").itertext())
            assert told[letter] == plain


def holds12(node: ET.Element, given: set[str]) -> bool:
    """Whether a condition of QTI 1.2 holds; a number is given as one string."""
    tag, inside = node.tag.removeprefix(QTI12), [holds12(child, given) for child in node]
    match tag:
        case "conditionvar" | "and":
            return all(inside)
        case "or":
            return any(inside)
        case "not":
            return not any(inside)
        case "other":
            return True
        case "varequal":
            return node.text in given
    (value,) = given
    return {"vargte": float(value) >= float(node.text), "varlte": float(value) <= float(node.text)}[tag]


def judged12(item: ET.Element, given: set[str]) -> tuple[float, set[str]]:
    """The score from 0 to 1 and what is told, of an answer to an item of QTI 1.2."""
    score, told = 0.0, set()
    for condition in item.iter(f"{QTI12}respcondition"):
        if holds12(condition[0], given):
            score = max([score, *(float(e.text) / 100 for e in condition.iter(f"{QTI12}setvar"))])
            told |= {e.get("linkrefid") for e in condition.iter(f"{QTI12}displayfeedback")}
            if condition.get("continue") == "No":
                break
    return score, told


def holds21(node: ET.Element, given: set[str], correct: set[str]) -> bool:
    """Whether a condition of QTI 2.1 holds."""
    match node.tag.removeprefix(QTI21):
        case "and":
            return all(holds21(child, given, correct) for child in node)
        case "match":
            return given == correct
    (value,), limit = given, float(node.findtext(f"{QTI21}baseValue"))
    return float(value) >= limit if node.tag.endswith("gte") else float(value) <= limit


def judged21(item: ET.Element, given: set[str]) -> tuple[float, set[str]]:
    """The same of QTI 2.1."""
    score, told = 0.0, set()
    correct = {value.text for value in item.find(f"{QTI21}responseDeclaration").iter(f"{QTI21}value")}
    condition, *always = item.find(f"{QTI21}responseProcessing")
    case = next((case for case in condition if holds21(case[0], given, correct)), [])
    for outcome in [*list(case)[1:], *always]:
        value = given if outcome[0].tag.endswith("variable") else {outcome[0].text}
        if outcome.get("identifier") == "SCORE":
            score = float(*value)
        else:
            told = value
    return score, told


def test_platforms_judge_each_answer_as_the_key_does():
    items12 = {
        i.get("ident"): i for root in opened("questions-qti-1.2.zip")[1].values() for i in root.iter(f"{QTI12}item")
    }
    items21 = {root.get("identifier"): root for root in opened("questions-qti-2.1.zip")[1].values()}
    judged = 0
    for question in BANK:
        named = list(zip(bank.LETTERS, question.options, strict=False))
        right = {letter for letter, option in named if option.right}
        if question.kind == "number":
            answers = [({f"{option.value:.12g}"}, {letter}) for letter, option in named]
            edge = question.options[0].value
            answers += [({f"{edge + 0.99 * question.margin:.12g}"}, right), ({question.options[0].text}, right)]
            answers += [({f"{edge + 1.01 * question.margin + 1e-6:.12g}"}, set())]
        elif question.kind == "choice":
            answers = [({letter}, {letter}) for letter, _ in named]
        else:
            every = [set(some) for size in range(1, len(named) + 1) for some in combinations(dict(named), size)]
            answers = [(some, some) for some in every]
        for given, told in answers:
            expected = float(told == right)
            assert judged21(items21[question.id], given) == (expected, told)
            score, shown = judged12(items12[question.id], given)
            assert (score, shown - {"general_fb"}) == (expected, {f"{letter}_fb" for letter in told - right})
            judged += 1
    assert judged > 400


def test_moodles_xml():
    root = ET.fromstring(FILES["questions-moodle.xml"])
    asked = [node for node in root if node.get("type") != "category"]
    assert [node.findtext("idnumber") for node in asked] == [q.id for q in BANK]
    assert len(root) - len(asked) == 4
    for node in asked:
        question = BY_ID[node.findtext("idnumber")]
        shares = [float(answer.get("fraction")) for answer in node.iter("answer")]
        assert sum(share for share in shares if share > 0) == pytest.approx(100, abs=0.001)
        assert [share > 0 for share in shares] == [option.right for option in question.options]
        assert all(answer.findtext("feedback/text") for answer in node.iter("answer"))
        assert (node.get("type") == "numerical") == (question.kind == "number")
