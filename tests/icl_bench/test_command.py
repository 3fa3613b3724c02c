"""The command line: what users get wrong is a sentence and exit code 2, never a traceback; 80 columns, any letters."""

import io
import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from icl_bench import command, costs, runner
from icl_bench import results as tables
from icl_bench.budgets import BUDGETS
from icl_bench.command import main
from icl_bench.results import read_results, write_results

pytestmark = pytest.mark.usefixtures("undrawn")

EXAMPLE = re.compile(r"error, times the floor +trained on +shifted +longer")


@pytest.fixture
def say(capsys):
    """Run the command: exit code, what it said, and what it complained of."""

    def run(*words):
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        # A path is not broken.
        assert all(len(line) <= 80 or max(map(len, line.split())) > 60 for line in (out + err).splitlines())
        return code, out, err

    return run


@pytest.fixture
def runs(made_up, tmp_path):
    """Folders of two runs: one of two contestants, and a third made later."""
    for name, results in {"one": made_up(), "two": made_up(("mine",), draw=4)}.items():
        (tmp_path / name).mkdir()
        write_results(tmp_path / name / "results.parquet", results)
    return tmp_path


@pytest.fixture
def pretended(monkeypatch, made_up):
    """A run that takes no time: what it was asked for, and results as if it had been done."""
    asked = []

    def run(plan, **settings):
        asked.append((plan, settings))
        settings["folder"].mkdir(exist_ok=True)
        return made_up([c.name for c in plan.contestants], worse=(1.4,) * len(plan.contestants))

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(command, "_estimate_seconds", lambda plan, jobs: 100.0 / jobs)
    return asked


def test_a_run_says_its_plan_its_table_and_where_all_is(say, pretended, tmp_path):
    """What is asked for arrives, and the report is written."""
    folder = tmp_path / "out"
    code, out, err = say(
        *("run", "gla", "other=softmax", "--tasks", "ar1-0.9,switches", "--only-tested", "ar1-0.6", "--train", "each"),
        *("--seeds", 2, "--jobs", 3, "--out", folder, "--quiet"),
    )
    assert (code, err) == (0, "")
    ((plan, settings),) = pretended
    assert [c.name for c in plan.contestants] == ["gla", "other"]
    assert plan.training == ("ar1-0.9", "switches")
    assert plan.only_tested == ("ar1-0.6",)
    assert (plan.train, plan.budget) == ("each", BUDGETS["small"].with_seeds(2))
    assert settings == {"folder": folder, "jobs": 3, "dask": None, "quiet": True}
    flat = " ".join(out.split())
    for part in (
        "Contestants: gla, other",
        "16 in all, on each of 2 tasks by itself",
        "about 30 seconds on 3 processes",
    ):
        assert part in flat
    assert EXAMPLE.search(out)
    assert re.search(r"^gla +1\.\d\d ± 0\.0\d +1\.\d\d ± 0\.0\d +1\.\d\d ± 0\.0\d$", out, re.M)
    assert "gla" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_dry_run_does_nothing(say, pretended, tmp_path):
    """It says the plan."""
    code, out, _ = say("run", "gla", "--dry-run", "--out", tmp_path / "out")
    assert code == 0
    assert "nothing was done" in out
    assert pretended == []
    assert not (tmp_path / "out").exists()


def test_no_page_where_none_is_wanted(say, pretended, tmp_path):
    """--no-html, and --name."""
    assert say("run", "gla", "--no-html", "--name", "mine", "--out", tmp_path / "out")[0] == 0
    assert not (tmp_path / "out" / "report.html").exists()
    assert pretended[0][0].contestants[0].name == "mine"


@pytest.mark.parametrize(("answer", "begun"), [("n", False), ("", True), ("y", True)])
def test_a_long_run_asks_first(say, pretended, tmp_path, monkeypatch, answer, begun):
    """Where there is somebody to answer."""
    monkeypatch.setattr(command, "_estimate_seconds", lambda *_: 7200.0)
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda _: answer)
    code, out, _ = say("run", "gla", "--out", tmp_path / "out", "--no-html")
    assert code == 0
    assert "about 2.0 hours" in out
    assert bool(pretended) == begun


def test_time_is_told_from_what_a_token_takes(monkeypatch):
    """On this machine; where it cannot be measured, nothing is told, as the run itself says what is wrong."""
    plan = runner.plan(["gla", "answer-0"], tasks=["switches"])
    times, weighed = [], SimpleNamespace(us_per_token=10.0)
    monkeypatch.setattr(costs, "measure_cost", lambda c, shape, device: times.append((c.name, device)) or weighed)
    assert command._estimate_seconds(plan, 2) == plan.seconds({"gla": 10.0}, 2)
    assert times == [("gla", "cpu")]
    monkeypatch.setattr(costs, "measure_cost", lambda c, shape, device: 1 / 0)
    assert np.isnan(command._estimate_seconds(plan, 2))
    assert [command._duration(s) for s in (3, 84, 600, 7200)] == ["10 seconds", "80 seconds", "10 minutes", "2.0 hours"]


def test_memory_is_told_of_whom_it_takes_most(monkeypatch):
    """Of the largest of those that can be counted, with the batch that the tasks make; of none, nothing."""
    plan = runner.plan(["gla", "softmax", "answer-0"], tasks=["switches"])
    sizes = {"gla": 10 * 2**20, "softmax": 1_000 * 2**20, "answer-0": 0}
    monkeypatch.setattr(costs, "step_bytes", lambda c, shape, batch: batch == 32 and sizes[c.name])
    assert command._memory(plan) == "1,600 MiB for softmax"
    monkeypatch.setattr(costs, "step_bytes", lambda *_: 1 / 0)
    assert command._memory(plan) == ""


def test_runs_are_compared(say, runs, made_up):
    """One table of all, and a page; with two contestants or a name, one over the other."""
    page = runs / "all.html"
    code, out, err = say("compare", runs / "one", runs / "two" / "results.parquet", "--html", page, "--against", "gla")
    assert (code, err) == (0, "")
    table = [line.split()[0] for line in out.splitlines() if "±" in line]
    assert sorted(table[:4]) == ["answer", "gla", "mine", "softmax"]
    assert sorted(table[4:]) == ["mine", "softmax"]
    assert "error, times gla's" in out
    assert "Compared with gla" in page.read_text(encoding="utf-8")
    code, out, _ = say("compare", runs / "one")
    assert "error, times softmax's" in out


def test_two_layers_of_one_name_are_told_apart(say, runs, made_up):
    """Another version of a layer, run into another folder: both stand in the table; the same run twice is one."""
    again = made_up(draw=9)
    again.meta["contestants"]["gla"]["source"] = "cd" * 32
    (runs / "new").mkdir()
    write_results(runs / "new" / "results.parquet", again)
    code, out, _ = say("compare", runs / "one", runs / "new")
    assert code == 0
    assert re.search(r"^gla +1", out, re.M)
    assert re.search(r"^gla \(new\) +1", out, re.M)
    assert re.search(r"^softmax \(new\) +", out, re.M)
    code, out, _ = say("compare", runs / "one", runs / "one")
    assert "(" not in out
    # Folders of one name: the runs' places tell the third version from the second.
    for place, source in (("a", "ab"), ("b", "ef")):
        again.meta["contestants"]["gla"]["source"] = source * 32
        (runs / place / "one").mkdir(parents=True)
        write_results(runs / place / "one" / "results.parquet", again)
    code, out, _ = say("compare", runs / "one", runs / "a" / "one", runs / "b" / "one")
    assert code == 0
    assert all(re.search(rf"^gla{mark} +1", out, re.M) for mark in ("", r" \(one\)", r" \(one, 3\)"))


def test_tasks_and_layers_are_listed(say):
    """Each on its line; what needs a package that is not there says so."""
    code, out, _ = say("tasks")
    assert code == 0
    assert re.search(r"^  ar1-0\.95 +AR\(1\)", out, re.M)
    assert out.index("To test on only") < out.index("ar1-0.6 ")
    code, out, _ = say("layers")
    assert code == 0
    assert re.search(r"^  gla +Gated linear attention", out, re.M)


def test_a_task_is_shown_with_its_floors(say, monkeypatch):
    """The order that floors have: the genie's is the least, answering 0 the worst."""
    monkeypatch.setitem(BUDGETS, "small", replace(BUDGETS["small"], prompts=100))
    code, out, _ = say("show", "switches")
    assert code == 0
    numbers = {
        name: float(n) for name, n in re.findall(r"^  (genie|Bayes|best linear|answer 0) +([\d.]+) ±", out, re.M)
    }
    assert numbers["genie"] < numbers["Bayes"] < numbers["best linear"] < numbers["answer 0"]
    assert "Prompts of 128 examples" in out
    assert "Prompts of 128 examples" not in say("show", "ar1-0.6")[1]


def test_a_row_is_written(say, runs, monkeypatch):
    """By the leaderboard's own function, which refuses what cannot be compared."""
    asked = []
    monkeypatch.setattr(command.leaderboard, "submit", lambda *a, **k: asked.append((a, k)) or runs / "gla.json")
    code, out, _ = say("submit", runs / "one", "gla", "--commit", "0123456", "--by", "me", "--out", runs)
    assert code == 0
    assert "gla.json" in "".join(out.split())
    (((results, name), settings),) = asked
    assert name == "gla"
    assert results.meta == read_results(runs / "one" / "results.parquet").meta
    assert settings == {"commit": "0123456", "link": "", "by": "me", "folder": runs}
    monkeypatch.undo()
    assert say("submit", runs / "one", "rls", "--commit", "0123456")[0] == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "required: COMMAND"),
        (["runn"], "invalid choice: 'runn'"),
        (["run"], "required: SPEC"),
        (["run", "gla", "--jobs", "two"], "--jobs: invalid int value: 'two'"),
        (["run", "gla", "--jobs", "0"], "--jobs must be at least 1, got 0"),
        (["run", "gla", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["run", "gla", "--budget", "tiny"], "--budget must be one of small, medium, large, got 'tiny'"),
        (["run", "gla", "softmax", "--name", "x"], "--name is for one contestant, got 2"),
        (["run", "glaa"], "did you mean gla"),
        (["run", "nowhere.py:Layer"], "nowhere.py"),
        (["run", "gla", "--tasks", "swiches"], "did you mean switches"),
        (["run", "gla", "--tasks", "switches", "--train", "leaps"], "train must be all, each, or one of switches"),
        (["run", "gla", "--device", "tpu"], "device must be cpu or cuda, got 'tpu'"),
        (["run", "gla", "gla"], "two contestants are called gla"),
        (["compare", "nowhere"], "there is no nowhere; give the folder of a run"),
        (["show", "swiches"], "did you mean switches"),
        (["show", "all"], "show is of one task"),
        (["submit", "nowhere", "gla"], "required: --commit"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(say, tmp_path, monkeypatch, words, reason):
    """Exit code 2, nothing on stdout, a full stop at the end."""
    monkeypatch.chdir(tmp_path)
    code, out, err = say(*words)
    assert (code, out) == (2, "")
    assert reason in " ".join(err.split())
    assert err.startswith("icl-bench: ")
    assert err.rstrip().endswith((".", "?", "!"))
    assert len(err.splitlines()) <= 8
    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_used_are_named(say, runs, made_up):
    """A damaged table, runs of two budgets, a page that cannot be written, a contestant that is not there."""
    one, cut, three = (runs / name for name in ("one", "cut", "three"))
    other = made_up(("mine",))
    other.meta["budget"]["steps"] = 10
    cut.mkdir()
    (cut / "results.parquet").write_bytes((one / "results.parquet").read_bytes()[:-20])
    three.mkdir()
    write_results(three / "results.parquet", other)
    for words, reason in (
        ([cut], "damaged or cut short"),
        ([one, three], "the same budget, got steps 600 and 10"),
        ([one, "--against", "rls"], "--against must be one of answer 0, gla, softmax, got 'rls'"),
        ([one, "--html", runs / "no" / "where.html"], "No such file or directory"),
    ):
        code, _, err = say("compare", *words)
        assert code == 2
        assert reason in " ".join(err.split())


def test_an_interruption_says_how_to_go_on(say, pretended, monkeypatch, tmp_path):
    """Exit code 130 and the words that were given."""

    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run", stopped)
    code, _, err = say("run", "gla", "--out", tmp_path / "a folder")
    assert code == 130
    assert "The same command goes on where it was: icl-bench run gla --out" in " ".join(err.split())
    assert "a folder'" in " ".join(err.split())


def test_what_nobody_foresaw_is_one_sentence_too(capsys, pretended, monkeypatch, tmp_path):
    """Exit code 1; with --debug or ICL_DEBUG=1 its traceback."""

    def broken(*_, **__):
        raise RuntimeError("no such luck")

    monkeypatch.setattr(runner, "run", broken)
    words = ["run", "gla", "--out", str(tmp_path / "out")]
    assert main(words) == 1
    err = capsys.readouterr().err
    assert "RuntimeError: no such luck." in " ".join(err.split())
    assert "Traceback" not in err
    assert main([*words, "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("ICL_DEBUG", "1")
    assert main(["show", "swiches"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_help_and_version(say):
    """Exit code 0."""
    for words in (["--help"], ["run", "--help"], ["--version"]):
        code, out, err = say(*words)
        assert (code, err) == (0, "")
        assert "icl-bench" in out


def test_a_terminal_of_few_letters_gets_few_letters(runs, monkeypatch):
    """ASCII alone: nothing is left out, and nothing fails."""
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="ascii"))
    assert main(["compare", str(runs / "one")]) == 0
    assert main(["tasks"]) == 0
    sys.stdout.flush()
    out = shown.getvalue().decode("ascii")
    assert re.search(r"^gla +1\.\d\d \+- 0\.0\d", out, re.M)
    assert "AR(1), gamma = 0.95" in out
    assert "?" not in out


def test_output_that_nobody_reads_to_its_end_is_no_error(monkeypatch):
    """As with `icl-bench tasks | head -1`: exit code 0, and the stream is closed, so that Python has nothing to say."""

    class Closed(io.RawIOBase):
        def writable(self):
            return True

        def write(self, _):
            raise BrokenPipeError

    stream = io.TextIOWrapper(io.BufferedWriter(Closed(), 16), encoding="utf-8", write_through=True)
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["tasks"]) == 0
    assert stream.closed


def test_long_names_do_not_break_the_table(say, made_up, tmp_path):
    """They are cut; numbers are not."""
    write_results(tmp_path / "results.parquet", made_up(("a" * 70, "b")))
    code, out, _ = say("compare", tmp_path)
    assert code == 0
    assert re.search(r"^a{10,}\.\.\.  1\.\d\d ± 0\.0\d", out, re.M)
    assert tables.ZERO in out
