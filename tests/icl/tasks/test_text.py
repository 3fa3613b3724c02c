"""Prompts of text, from invented sentences: what stands where, the law of words and classes, reading, bad input."""

import dataclasses
import itertools
import json

import chance
import pytest
import torch

from icl.profile import make_generator
from icl.tasks import text
from icl.tasks.text import InContextText, LabelledTexts, encoded, labelled_texts

CUE, END, WORDS = (1000, 1001), (1002,), (2000, 2001, 2002)


def table(lengths=range(2, 7), classes=3, each=12):
    """Texts whose tokens say their row, their length and their class."""
    kinds = list(itertools.product(lengths, range(classes), range(each)))
    return (
        tuple((100 + row,) + (10 + length,) * (length - 1) for row, (length, _, _) in enumerate(kinds)),
        tuple(c for _, c, _ in kinds),
    )


def design(n=7, **changes):
    rows, labels = table()
    given = {"shortest": 3, "longest": 6, "cue": CUE, "end": END} | changes
    return InContextText(rows, labels, WORDS, n, **given)


@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("changes", [{}, {"balanced": False, "random_words": True}, {"flip": 0.4, "end": ()}])
def test_a_prompt_is_read_back_piece_by_piece(n, changes):
    """Text, cue, word, end at each place, the query's word left out; positions, classes, words and rows as they say.

    Every prompt has the same tokens, none is padding, no row comes twice, and lengths are shared out evenly.
    Planted: positions one token late, the end counted for the query, a row drawn twice are seen.
    """
    task = design(n, **changes)
    for seed in range(5):
        prompt = task.sample(6, generator=make_generator("text", seed=seed))
        assert prompt.tokens.shape == (6, task.time)
        assert prompt.tokens.dtype == torch.int64
        for b in range(6):
            tokens, place, lengths = prompt.tokens[b].tolist(), 0, []
            for k in range(n + 1):
                row = prompt.rows[b, k].item()
                assert prompt.labels[b, k] == task.labels[row]
                assert tokens[place : place + len(task.table[row])] == list(task.table[row])
                place += len(task.table[row])
                assert tokens[place : place + 2] == list(CUE)
                place += 2
                assert prompt.at[b, k] == place - 1
                assert prompt.targets[b, k] == prompt.words[b, k, prompt.labels[b, k]]
                assert sorted(prompt.words[b, k].tolist()) == list(WORDS)
                if k < n:
                    assert tokens[place : place + 1 + len(task.end)] == [prompt.targets[b, k].item(), *task.end]
                    place += 1 + len(task.end)
                lengths.append(len(task.table[row]))
            assert place == task.time
            assert tuple(sorted(lengths)) == task.lengths
            assert len(set(prompt.rows[b].tolist())) == n + 1
        assert (prompt.at == prompt.at[0]).all()
    counts = [task.lengths.count(length) for length in range(3, 7)]
    assert max(counts) - min(counts) <= 1


def test_a_prompt_alone_is_the_start_of_the_longer_one():
    """With K demonstrations a prompt ends behind the cue of place K, and keeps what it says of places 0 .. K."""
    prompt = design().sample(2, generator=make_generator("text"))
    for K in range(8):
        alone = prompt.alone(K)
        assert alone.tokens.shape[1] == prompt.at[0, K] + 1
        assert torch.equal(alone.tokens, prompt.tokens[:, : alone.tokens.shape[1]])
        for name in ("at", "labels", "words", "rows"):
            assert torch.equal(getattr(alone, name), getattr(prompt, name)[:, : K + 1])


@pytest.mark.statistical(18)
def test_classes_words_and_flips_have_their_law():
    """5,600 places each: classes alike where balanced and as the rows have them where not, words fixed or alike, ways
    changed at the rate of `flip`, to each other way alike. A probability off by .05 is seen.

    Planted: flips at place 0, a way kept among those that a flip leads to, and classes of the rows are seen.
    """
    rows, labels = table()
    # Class 0 has one of its twelve texts of a length beside others' twelve, and each length as many.
    kept = [i for i, c in enumerate(labels) if c or i % 12 < 3]
    uneven = {"table": tuple(rows[i] for i in kept), "labels": tuple(labels[i] for i in kept), "longest": 6}

    def close(hits, probability):
        # A prompt's places are not independent of each other: prompts count as one each.
        if hits.dim() > 1:
            chance.assert_mean(hits.double().flatten(1).mean(1), probability)
        else:
            chance.assert_counts(hits.sum(), len(hits), probability)

    def draw(**changes):
        return dataclasses.replace(design(), **changes).sample(700, generator=make_generator("law"))

    fixed = draw(**uneven)
    for c in range(3):
        close(fixed.labels == c, 1 / 3)
    assert (fixed.words == torch.tensor(WORDS)).all()
    natural = draw(**uneven, balanced=False)
    # Of eight texts two have one length, which are never the same: shares of the first places are those of the rows.
    close(natural.labels[:, 0] == 0, 3 / 27)
    close(natural.labels[:, 0] == 1, 12 / 27)
    prompt = draw(random_words=True)
    assert (prompt.words == prompt.words[:, :1]).all()
    for way in itertools.permutations(WORDS):
        close((prompt.words[:, 0] == torch.tensor(way)).all(-1), 1 / 6)
    prompt = draw(flip=0.3)
    assert (prompt.words[:, 0] == torch.tensor(WORDS)).all()
    close((prompt.words[:, 1:] != prompt.words[:, :-1]).any(-1), 0.3)
    for way in itertools.permutations(WORDS):
        close((prompt.words[:, 1] == torch.tensor(way)).all(-1), 0.7 if way == WORDS else 0.06)
    two = dataclasses.replace(design(), table=rows, labels=tuple(c % 2 for c in labels), words=(5, 6), flip=1.0)
    prompt = two.sample(3, generator=make_generator("law"))
    assert prompt.words[0].tolist() == [[5, 6], [6, 5]] * 4


def test_the_same_stream_gives_the_same_prompts():
    first, again = (design().sample(3, generator=make_generator("again")) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(vars(first).values(), vars(again).values(), strict=True))
    other = design().sample(3, generator=make_generator("another"))
    assert not torch.equal(first.tokens, other.tokens)


def test_corpora_are_read_from_a_folder(tmp_path, monkeypatch):
    """Tabs and both forms of JSON, in the order of the rows; quotation marks are no quotes; rows of no class are left
    out. Without the folder, and without the datasets library, one sentence names both ways.
    """
    monkeypatch.setenv("ICL_DATA", str(tmp_path))
    (tmp_path / "sst2").mkdir()
    (tmp_path / "mnli").mkdir()
    (tmp_path / "sst2/train.tsv").write_text('label\tsentence\n1\tthe "plum is ripe \n0\tno plums\n')
    found = labelled_texts("sst2", "train")
    assert found == LabelledTexts((('the "plum is ripe',), ("no plums",)), (1, 0), ("negative", "positive"))
    rows = [
        {"premise": "it rains", "hypothesis": "it is wet ", "label": "entailment"},
        {"premise": "it rains", "hypothesis": "it is dry", "label": "contradiction"},
        {"premise": "it rains", "hypothesis": "it is late", "label": "-"},
    ]
    (tmp_path / "mnli/dev_matched.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = labelled_texts("mnli", "validation")
    assert found.labels == (0, 2)
    assert found.texts[0] == ("it rains", "it is wet")
    named = {"0": {"text_a": "a b", "text_b": "c", "label": "neutral"}}
    (tmp_path / "mnli/train_sample_9k.json").write_text(json.dumps(named))
    (tmp_path / "mnli/train_sample_1k.json").write_text(json.dumps(named))
    found = labelled_texts("mnli", "train")
    assert found.labels == (1, 1)
    assert encoded(found, lambda part: [ord(c) for c in part], separator="/") == (tuple(map(ord, "a b/c")),) * 2
    assert encoded(found, lambda part: [ord(c) for c in part], limit=1) == (tuple(map(ord, "a bc")),)
    (tmp_path / "sst2/dev.tsv").write_text("label\tsentence\nplum\n")
    with pytest.raises(ValueError, match=r"dev\.tsv must hold rows of sst2, label and text"):
        labelled_texts("sst2", "validation")
    monkeypatch.delenv("ICL_DATA")
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(FileNotFoundError, match=r"set ICL_DATA to a folder that holds sst2/dev\.tsv, or install the"):
        labelled_texts("sst2", "validation")
    with pytest.raises(ValueError, match="corpus and part must be one of"):
        labelled_texts("sst2", "test")


def test_designs_that_cannot_be_are_refused():
    _, labels = table()
    for changes, message in [
        ({"shortest": 7}, "longest must be at least shortest = 7, got 6"),
        ({"longest": 9}, "table must have 2 texts of 7 tokens and class 0 .*, got 0"),
        ({"cue": ()}, "cue must hold a token"),
        ({"words": (5, 5, 6)}, "words must be distinct"),
        ({"words": (5, 6)}, r"labels must lie in \[0, 2\)"),
        ({"labels": labels[1:]}, "labels must be one a text"),
        ({"n": 60}, "table must have 16 texts of 3 tokens"),
    ]:
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(design(), **({"n": 7} | changes))
    assert design().rows == (48, 48, 48)
    for texts, of, classes, message in [
        ((), (), ("a", "b"), "texts must be rows"),
        ((("a",), ("b", "c")), (0, 1), ("a", "b"), "texts must be rows"),
        ((("a",),), (0, 1), ("a", "b"), "labels must be one a row"),
        ((("a",),), (2,), ("a", "b"), "labels must lie in"),
    ]:
        with pytest.raises(ValueError, match=message):
            LabelledTexts(texts, of, classes)
    assert text.TEXT_CLASSES["mnli"][2] == "contradiction"
