r"""The question bank as learning platforms read it: QTI 1.2 and 2.1 packages, and Moodle's own XML.

Formulas stand as \(...\) in the text, which MathJax sets on a platform that has it and a reader can read elsewhere; no
picture and no address is asked for. Each wrong answer is told the belief behind it and the page that cures it.

QTI 1.2: Canvas's dialect of the specification, one assessment a part. QTI 2.1: an item a question, a test a part.
"""

import io
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Mapping, Sequence

import courses

from course import bank
from course.bank import LETTERS, Option, Question

#: Of a package's resource: its identifier, type and file, and the identifiers of what it needs.
Resource = tuple[str, str, str, Sequence[str]]

_CP = "http://www.imsglobal.org/xsd/imscp_v1p1"
_QTI21 = "http://www.imsglobal.org/xsd/imsqti_v2p1"
_QTI12 = "http://www.imsglobal.org/xsd/ims_qtiasiv1p2"
_XSI = "http://www.w3.org/2001/XMLSchema-instance"


def _title(part: str) -> str:
    return f"Learning to Adapt, Part {courses.PARTS[part]}"


def _parts(questions: Sequence[Question]) -> dict[str, list[Question]]:
    return {part: of_part for part in bank.PARTS if (of_part := [q for q in questions if q.part == part])}


def _to_xml(root: ET.Element) -> bytes:
    ET.indent(root)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _packed(files: Mapping[str, bytes]) -> bytes:
    """A zip of these files, the manifest first."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files, key=lambda name: (name != "imsmanifest.xml", name)):
            archive.writestr(name, files[name])
    return packed.getvalue()


def _manifest(schema: str, version: str, resources: Sequence[Resource]) -> bytes:
    """A content package's table of its resources."""
    root = ET.Element("manifest", {"xmlns": _CP, "identifier": "learning-to-adapt-questions"})
    about = ET.SubElement(root, "metadata")
    ET.SubElement(about, "schema").text = schema
    ET.SubElement(about, "schemaversion").text = version
    ET.SubElement(root, "organizations")
    listed = ET.SubElement(root, "resources")
    for identifier, kind, file, needs in resources:
        one = ET.SubElement(listed, "resource", {"identifier": identifier, "type": kind, "href": file})
        ET.SubElement(one, "file", {"href": file})
        for name in needs:
            ET.SubElement(one, "dependency", {"identifierref": name})
    return _to_xml(root)


def _limits(value: float, margin: float) -> tuple[str, str]:
    """The least and the largest number that count as this one."""
    margin = max(margin, 1e-9 * max(1.0, abs(value)))
    return f"{value - margin:.12g}", f"{value + margin:.12g}"


# QTI 1.2


def qti12(questions: Sequence[Question]) -> bytes:
    """The bank as a package of QTI 1.2, one assessment a part."""
    files, resources = dict[str, bytes](), list[Resource]()
    for part, inside in _parts(questions).items():
        root = ET.Element("questestinterop", {"xmlns": _QTI12})
        assessment = ET.SubElement(root, "assessment", {"ident": f"part-{part}", "title": _title(part)})
        section = ET.SubElement(assessment, "section", {"ident": "root_section"})
        section.extend([_item12(question) for question in inside])
        name = f"part-{part}/part-{part}.xml"
        files[name] = _to_xml(root)
        resources.append((f"part-{part}", "imsqti_xmlv1p2", name, ()))
    files["imsmanifest.xml"] = _manifest("IMS Content", "1.1.3", resources)
    return _packed(files)


def _material(parent: ET.Element, text: str) -> None:
    ET.SubElement(ET.SubElement(parent, "material"), "mattext", {"texttype": "text/html"}).text = bank.marked(text)


def _item12(question: Question) -> ET.Element:
    item = ET.Element("item", {"ident": question.id, "title": _name(question)})
    fields = ET.SubElement(ET.SubElement(item, "itemmetadata"), "qtimetadata")
    kinds = {
        "choice": "multiple_choice_question",
        "several": "multiple_answers_question",
        "number": "numerical_question",
    }
    for label, entry in (("question_type", kinds[question.kind]), ("points_possible", "1.0")):
        field = ET.SubElement(fields, "qtimetadatafield")
        ET.SubElement(field, "fieldlabel").text = label
        ET.SubElement(field, "fieldentry").text = entry
    shown = ET.SubElement(item, "presentation")
    _material(shown, question.ask)
    if question.kind == "number":
        given = ET.SubElement(shown, "response_str", {"ident": "response1", "rcardinality": "Single"})
        blank = ET.SubElement(given, "render_fib", {"fibtype": "Decimal"})
        ET.SubElement(blank, "response_label", {"ident": "answer1"})
    else:
        many = {"choice": "Single", "several": "Multiple"}[question.kind]
        given = ET.SubElement(shown, "response_lid", {"ident": "response1", "rcardinality": many})
        choices = ET.SubElement(given, "render_choice", {"shuffle": "No"})
        for letter, option in zip(LETTERS, question.options, strict=False):
            _material(ET.SubElement(choices, "response_label", {"ident": letter}), option.text)
    processing = ET.SubElement(item, "resprocessing")
    limits = {"maxvalue": "100", "minvalue": "0", "varname": "SCORE", "vartype": "Decimal"}
    ET.SubElement(ET.SubElement(processing, "outcomes"), "decvar", limits)
    feedback = [(letter, option) for letter, option in zip(LETTERS, question.options, strict=False) if not option.right]
    for letter, option in feedback:
        condition = ET.SubElement(processing, "respcondition", {"continue": "Yes"})
        _given12(ET.SubElement(condition, "conditionvar"), question, letter, option)
        ET.SubElement(condition, "displayfeedback", {"feedbacktype": "Response", "linkrefid": f"{letter}_fb"})
    condition = ET.SubElement(processing, "respcondition", {"continue": "Yes"})
    ET.SubElement(ET.SubElement(condition, "conditionvar"), "other")
    ET.SubElement(condition, "displayfeedback", {"feedbacktype": "Response", "linkrefid": "general_fb"})
    condition = ET.SubElement(processing, "respcondition", {"continue": "No"})
    when = ET.SubElement(condition, "conditionvar")
    if question.kind == "several":
        when = ET.SubElement(when, "and")
        for letter, option in zip(LETTERS, question.options, strict=False):
            _given12(when if option.right else ET.SubElement(when, "not"), question, letter, option)
    else:
        place = question.right[0]
        _given12(when, question, LETTERS[place], question.options[place])
    ET.SubElement(condition, "setvar", {"action": "Set", "varname": "SCORE"}).text = "100"
    for name, text in [
        *((f"{letter}_fb", question.feedback(o)) for letter, o in feedback),
        ("general_fb", question.because),
    ]:
        _material(ET.SubElement(ET.SubElement(item, "itemfeedback", {"ident": name}), "flow_mat"), text)
    return item


def _given12(when: ET.Element, question: Question, letter: str, option: Option) -> None:
    """The condition that this option was given."""
    if question.kind != "number":
        ET.SubElement(when, "varequal", {"respident": "response1"}).text = letter
        return
    least, most = _limits(option.value, question.margin)
    either = ET.SubElement(when, "or")
    ET.SubElement(either, "varequal", {"respident": "response1"}).text = option.text
    both = ET.SubElement(either, "and")
    ET.SubElement(both, "vargte", {"respident": "response1"}).text = least
    ET.SubElement(both, "varlte", {"respident": "response1"}).text = most


def _name(question: Question) -> str:
    """Display name of a question: chapter and id."""
    return f"{question.chapter.title.replace('$', '')}: {question.id}"


# QTI 2.1


def qti21(questions: Sequence[Question]) -> bytes:
    """The bank as a package of QTI 2.1: an item a question, a test a part."""
    files, resources = dict[str, bytes](), list[Resource]()
    for part, inside in _parts(questions).items():
        root = ET.Element("assessmentTest", {"xmlns": _QTI21, "identifier": f"part-{part}", "title": _title(part)})
        one = {"identifier": "all", "navigationMode": "nonlinear", "submissionMode": "individual"}
        section = {"identifier": "questions", "title": _title(part), "visible": "true"}
        listed = ET.SubElement(ET.SubElement(root, "testPart", one), "assessmentSection", section)
        for question in inside:
            name = f"items/{question.id}.xml"
            ET.SubElement(listed, "assessmentItemRef", {"identifier": question.id, "href": f"../{name}"})
            files[name] = _to_xml(_item21(question))
            resources.append((question.id, "imsqti_item_xmlv2p1", name, ()))
        name = f"tests/part-{part}.xml"
        files[name] = _to_xml(root)
        resources.append((f"part-{part}", "imsqti_test_xmlv2p1", name, tuple(q.id for q in inside)))
    files["imsmanifest.xml"] = _manifest("QTIv2.1 Package", "1.0.0", resources)
    return _packed(files)


def _words(parent: ET.Element, tag: str, text: str) -> ET.Element:
    """A child with this text as XHTML."""
    child = ET.fromstring(f"<{tag}>{bank.marked(text)}</{tag}>")
    parent.append(child)
    return child


def _item21(question: Question) -> ET.Element:
    place = ("title", _name(question)), ("adaptive", "false"), ("timeDependent", "false")
    schema = f"{_QTI21} http://www.imsglobal.org/xsd/qti/qtiv2p1/imsqti_v2p1.xsd"
    item = ET.Element("assessmentItem", {"xmlns": _QTI21, "identifier": question.id, **dict(place)})
    item.set("xmlns:xsi", _XSI)
    item.set("xsi:schemaLocation", schema)
    many = "multiple" if question.kind == "several" else "single"
    base = "float" if question.kind == "number" else "identifier"
    answer = {"identifier": "RESPONSE", "cardinality": many, "baseType": base}
    correct = ET.SubElement(ET.SubElement(item, "responseDeclaration", answer), "correctResponse")
    for right in question.right:
        text = f"{question.options[right].value:.12g}" if question.kind == "number" else LETTERS[right]
        ET.SubElement(correct, "value").text = text
    score = {"identifier": "SCORE", "cardinality": "single", "baseType": "float"}
    ET.SubElement(ET.SubElement(ET.SubElement(item, "outcomeDeclaration", score), "defaultValue"), "value").text = "0"
    declaration = {"identifier": "FEEDBACK", "cardinality": many, "baseType": "identifier"}
    ET.SubElement(item, "outcomeDeclaration", declaration)
    body = ET.SubElement(item, "itemBody")
    _words(body, "p", question.ask)
    if question.kind == "number":
        blank = {"responseIdentifier": "RESPONSE", "expectedLength": "12"}
        ET.SubElement(ET.SubElement(body, "p"), "textEntryInteraction", blank)
    else:
        most = "1" if question.kind == "choice" else "0"
        choices = {"responseIdentifier": "RESPONSE", "shuffle": "false", "maxChoices": most}
        offered = ET.SubElement(body, "choiceInteraction", choices)
        for letter, option in zip(LETTERS, question.options, strict=False):
            _words(offered, "simpleChoice", option.text).set("identifier", letter)
    processing = ET.SubElement(item, "responseProcessing")
    condition = ET.SubElement(processing, "responseCondition")
    if question.kind == "number":
        for letter, option in zip(LETTERS, question.options, strict=False):
            case = ET.SubElement(condition, "responseIf" if option.right else "responseElseIf")
            both = ET.SubElement(case, "and")
            for tag, limit in zip(("gte", "lte"), _limits(option.value, question.margin), strict=True):
                bound = ET.SubElement(both, tag)
                ET.SubElement(bound, "variable", {"identifier": "RESPONSE"})
                ET.SubElement(bound, "baseValue", {"baseType": "float"}).text = limit
            if option.right:
                _set(case, "SCORE", "float", "1")
            _set(case, "FEEDBACK", "identifier", letter)
    else:
        case = ET.SubElement(condition, "responseIf")
        match = ET.SubElement(case, "match")
        ET.SubElement(match, "variable", {"identifier": "RESPONSE"})
        ET.SubElement(match, "correct", {"identifier": "RESPONSE"})
        _set(case, "SCORE", "float", "1")
        shown = ET.SubElement(processing, "setOutcomeValue", {"identifier": "FEEDBACK"})
        ET.SubElement(shown, "variable", {"identifier": "RESPONSE"})
    for letter, option in zip(LETTERS, question.options, strict=False):
        attributes = {"outcomeIdentifier": "FEEDBACK", "identifier": letter, "showHide": "show"}
        _words(ET.SubElement(item, "modalFeedback", attributes), "p", question.feedback(option))
    return item


def _set(parent: ET.Element, name: str, base: str, value: str) -> None:
    ET.SubElement(
        ET.SubElement(parent, "setOutcomeValue", {"identifier": name}), "baseValue", {"baseType": base}
    ).text = value


# Moodle


def moodle(questions: Sequence[Question]) -> bytes:
    """The bank in Moodle's XML, a category a part."""
    root = ET.Element("quiz")
    for part, inside in _parts(questions).items():
        category = ET.SubElement(ET.SubElement(root, "question", {"type": "category"}), "category")
        ET.SubElement(category, "text").text = f"$course$/top/Learning to Adapt/{_title(part).partition(', ')[2]}"
        root.extend([_moodle(question) for question in inside])
    return _to_xml(root)


def _html(parent: ET.Element, tag: str, text: str) -> ET.Element:
    child = ET.SubElement(parent, tag, {"format": "html"})
    ET.SubElement(child, "text").text = f"<p>{bank.marked(text)}</p>"
    return child


def _moodle(question: Question) -> ET.Element:
    node = ET.Element("question", {"type": "numerical" if question.kind == "number" else "multichoice"})
    ET.SubElement(ET.SubElement(node, "name"), "text").text = _name(question)
    _html(node, "questiontext", question.ask)
    _html(node, "generalfeedback", question.because)
    ET.SubElement(node, "defaultgrade").text = "1"
    ET.SubElement(node, "penalty").text = "0"
    ET.SubElement(node, "idnumber").text = question.id
    if question.kind != "number":
        ET.SubElement(node, "single").text = "true" if question.kind == "choice" else "false"
        ET.SubElement(node, "shuffleanswers").text = "false"
        ET.SubElement(node, "answernumbering").text = "ABCD"
    wrong = len(question.options) - len(question.right)
    for option in question.options:
        share = 100 / len(question.right) if option.right else -100 / wrong if question.kind == "several" else 0.0
        attributes = {"fraction": f"{share:.5f}".rstrip("0").rstrip(".")}
        if question.kind == "number":
            answer = ET.SubElement(node, "answer", attributes)
            ET.SubElement(answer, "text").text = f"{option.value:.12g}"
            ET.SubElement(answer, "tolerance").text = f"{max(question.margin, 1e-9 * max(1.0, abs(option.value))):.12g}"
        else:
            answer = _html(node, "answer", option.text)
            answer.attrib = attributes | answer.attrib
        _html(answer, "feedback", question.feedback(option))
    tags = ET.SubElement(node, "tags")
    for tag in (question.level, question.chapter.page):
        ET.SubElement(ET.SubElement(tags, "tag"), "text").text = tag
    return node
