"""A killed training goes on where it was, in every bit; and only from a checkpoint that is whole and its own."""

import dataclasses
import errno
import json
import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from shared import started
from torch import nn

from icl.experiments import checkpoint
from icl.experiments._training_state import TrainingState
from icl.experiments.training import AdamW, Config, Diverged, fit
from icl.models.one_layer import OneLayerGLA
from icl.profile import make_generator
from icl.tasks import DriftingRegression, SmoothDrift
from icl.tasks.core import UNIFORM

# Properties

TASK = DriftingRegression(d=3, n=6, gamma=0.9)
CONFIG = Config(20, 8, AdamW(lr=0.05), warm_up=5, anneal_to=0.1, clip=0.5)


def layer(d=3, dtype=torch.float64, lam=0.8, kind=OneLayerGLA):
    return kind(d, lam=lam, scale=0.3, generator=make_generator("start"), dtype=dtype)


def train(path, before=lambda step: None):
    """A model, its run and its two streams; `before` is called in each step's loss."""
    model, noise, generator = layer(), make_generator("noise"), make_generator("prompts")
    now = [0]

    def loss(model, prompt):
        before(now[0] + 1)
        drawn = torch.randn(prompt.batch, generator=noise, dtype=torch.float64)
        return (model(prompt) - prompt.y[:, -1] + 0.1 * drawn).square().mean() / 2

    def callback(step, model):
        now[0] = step
        torch.rand(1, generator=noise)

    options = {"extra_generators": {"noise": noise}, "checkpoint": path, "checkpoint_every": 4, "callback": callback}
    run = fit(model, loss, TASK, CONFIG, generator=generator, **options)
    return model, run, (generator, noise)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def in_a_loss(path):
    train(path, lambda step: kill() if step == 7 else None)


def in_a_step(path):
    """Of AdamW, with its parameters and slots moved and nothing else done."""
    now, step = [0], torch.optim.AdamW.step

    def halfway(self, *_):
        step(self)
        if now[0] == 11:
            kill()

    torch.optim.AdamW.step = halfway
    train(path, lambda step: now.__setitem__(0, step))


def in_a_writing(path):
    """The draft is on the disk in full and has not been given its name."""
    Path.replace = lambda *_: kill()
    train(path)


def killed(path, *ways):
    """Train in processes of their own, each killed on its way; after each, the step that the checkpoint stands at."""
    steps = []
    for way in ways:
        process = started(way, path)
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        steps.append(checkpoint.read(path)[1]["step"])
    return steps


def state(path):
    tensors, notes = checkpoint.read(path)
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}, notes


def test_a_killed_training_goes_on_bit_for_bit(tmp_path):
    """Killed in the middle of a loss, of a step of AdamW and of a writing, and called again each time, a training ends
    in every bit where one ends that nobody disturbed: parameters, AdamW's state, losses and random streams.

    Prompts, noise in the loss and the watcher draw from two streams; step size, clipping and weight decay all change
    from step to step. Killed with SIGKILL, in processes of their own. Planted: with a stream not restored, the slots of
    AdamW not restored, or a state written after its prompts were drawn, the end is another.
    """
    straight, path = tmp_path / "straight", tmp_path / "killed"
    model, run, generators = train(straight)
    assert killed(path, in_a_loss, in_a_step, in_a_writing) == [4, 8, 8]
    assert len(list(tmp_path.glob("killed.*.part"))) == 1
    again, rest, resumed = train(path)

    assert rest.resumed_from == 8
    assert run.resumed_from == 0
    assert np.array_equal(rest.losses, run.losses)
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    for one, other in zip(generators, resumed, strict=True):
        assert torch.equal(one.get_state(), other.get_state())
    assert state(path)[0] == state(straight)[0]
    assert {name.split("/")[0] for name in state(path)[0]} == {"model", "optimiser", "stream", "losses"}
    assert rest.seconds > 0


def test_a_finished_training_returns_at_once(tmp_path):
    """From the checkpoint of a finished training, no step is taken and nothing is written: the model, the losses and
    the streams are those of the end.
    """
    path = tmp_path / "done"
    model, run, generators = train(path)
    before = path.stat()

    def refuse(step):
        raise AssertionError("a step was taken")

    again, rest, resumed = train(path, refuse)
    assert rest.resumed_from == CONFIG.steps
    assert np.array_equal(rest.losses, run.losses)
    assert rest.seconds == pytest.approx(run.seconds, abs=0.1)
    assert torch.equal(again.W_V, model.W_V)
    assert torch.equal(again.W_KQ, model.W_KQ)
    assert all(torch.equal(a.get_state(), b.get_state()) for a, b in zip(generators, resumed, strict=True))
    assert path.stat() == before or path.stat().st_mtime_ns == before.st_mtime_ns


def interrupting(step):
    """What interrupts a training at a step."""

    def before(now):
        if now == step:
            raise KeyboardInterrupt

    return before


def test_an_interrupt_keeps_what_is_proven(tmp_path):
    """Interrupted by the keyboard, a training writes its newest proven state and passes the interrupt on; called again
    it ends where it would have ended. Before anything is proven nothing is written.
    """
    path = tmp_path / "interrupted"
    with pytest.raises(KeyboardInterrupt):
        train(path, interrupting(1))
    with pytest.raises(KeyboardInterrupt):
        train(path, interrupting(2))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(KeyboardInterrupt):
        train(path, interrupting(7))
    # Whether the state after six steps has a finite loss was not yet known.
    assert checkpoint.read(path)[1]["step"] == 5
    _, rest, _ = train(path)
    assert rest.resumed_from == 5
    train(tmp_path / "straight")
    assert state(path)[0] == state(tmp_path / "straight")[0]


def plain(model, prompt):
    return (model(prompt) - prompt.y[:, -1]).square().mean() / 2


def test_a_diverged_training_leaves_a_proven_checkpoint(tmp_path):
    """When a training diverges, the checkpoint is a state whose loss and gradient were finite, not the one that failed;
    the model is set back to it; going on from it fails at the same step in the same words.
    """
    path = tmp_path / "diverging"

    def attempt():
        model, seen = layer(dtype=torch.float32), []

        def loss(model, prompt):
            value = plain(model, prompt)
            return value * float("inf") if seen[-1] == 5 else value

        options = {"callback": lambda step, _: seen.append(step), "checkpoint": path, "checkpoint_every": 1}
        with pytest.raises(Diverged) as stop:
            fit(model, loss, TASK, CONFIG, generator=make_generator("prompts"), **options)
        return model, str(stop.value)

    model, said = attempt()
    tensors, notes = checkpoint.read(path)
    assert notes["step"] == 4
    assert said.startswith("training diverged at step 6: losses inf, before it ")
    untroubled = fit(layer(dtype=torch.float32), plain, TASK, CONFIG, generator=make_generator("prompts"))
    assert said.endswith(f"before it {untroubled.losses[4]}")
    assert torch.equal(model.W_V, tensors["model/W_V"])
    assert torch.equal(model.W_KQ, tensors["model/W_KQ"])
    again, words = attempt()
    assert words == said
    assert torch.equal(again.W_V, model.W_V)


@pytest.fixture(scope="module")
def halfway(tmp_path_factory):
    """The checkpoint of a training that was interrupted."""
    path = tmp_path_factory.mktemp("halfway") / "checkpoint"
    with pytest.raises(KeyboardInterrupt):
        train(path, interrupting(10))
    return path.read_bytes()


def go_on(path, *, config=CONFIG, task=TASK, model=None, extra=("noise",)):
    given = {"generator": make_generator("prompts"), "extra_generators": {name: make_generator(name) for name in extra}}
    return fit(model or layer(), plain, task, config, **given, checkpoint=path)


class Twin(OneLayerGLA):
    """The same parameters under another name."""


def other(**changes):
    return {"task": dataclasses.replace(TASK, **changes)}


def configured(**changes):
    return {"config": dataclasses.replace(CONFIG, **changes)}


def optimised(**changes):
    return configured(optimiser=dataclasses.replace(CONFIG.optimiser, **changes))


with_more, with_less, frozen = layer(), layer(), layer()
with_more.bias = nn.Parameter(torch.zeros(2, dtype=torch.float64))
del with_less.W_V
frozen.W_V.requires_grad_(False)

REFUSALS = {
    "steps": (configured(steps=30), r"config\.steps is 20 in the file and 30 here"),
    "batch": (configured(batch=9), r"config\.batch is 8 in the file and 9 here"),
    "warm-up": (configured(warm_up=0), r"config\.warm_up is 5 in the file and 0 here"),
    "annealing": (configured(anneal_to=1.0), r"config\.anneal_to is 0\.1 in the file and 1\.0 here"),
    "clipping": (configured(clip=float("inf")), r"config\.clip is 0\.5 in the file and 'inf' here"),
    "step size": (optimised(lr=0.06), r"config\.optimiser\.lr is 0\.05 in the file and 0\.06 here"),
    "decay": (optimised(weight_decay=0.0), r"config\.optimiser\.weight_decay is 0\.05 in the file and 0\.0 here"),
    "momentum": (optimised(momentum=0.8), r"config\.optimiser\.momentum is 0\.9 in the file and 0\.8 here"),
    "beta2": (optimised(beta2=0.9), r"config\.optimiser\.beta2 is 0\.999 in the file and 0\.9 here"),
    "first of two": (configured(steps=30, clip=1.0), r"config\.steps is 20 in the file and 30 here"),
    "another task": (
        {"task": SmoothDrift(d=3, n=6)},
        r"task\.class is 'icl\.tasks\.core\.DriftingRegression' in the file and 'icl\.tasks\.core\.SmoothDrift' here",
    ),
    "another drift": (other(gamma=0.8), r"task\.gamma is 0\.9 in the file and 0\.8 here"),
    "another covariance": (other(Lambda=np.diag([1.0, 1.0, 2.0])), r"task\.Lambda is \[\[1\.0, .* in the file and"),
    "other inputs": (other(inputs=UNIFORM), r"task\.inputs\.name is '.*' in the file and '.*' here"),
    "another model": ({"model": layer(kind=Twin)}, r"model\.class is '.*OneLayerGLA' in .*Twin' "),
    "another dtype": (
        {"model": layer(dtype=torch.float32)},
        r"model\.tensors\.W_V is 'torch\.float64 \(4, 4\) trained' in the file and 'torch\.float32 \(4, 4\) trained'",
    ),
    "another shape": (
        {"model": layer(d=4)},
        r"model\.tensors\.W_V is '.*\(4, 4\) trained' in the file and '.*\(5, 5\) trained' here",
    ),
    "a parameter more": ({"model": with_more}, r"model\.tensors\.bias is '.*' here and not in"),
    "a parameter less": ({"model": with_less}, r"model\.tensors\.W_V is '.*' in .* not here"),
    "a frozen one": ({"model": frozen}, r"model\.tensors\.W_V is '.* trained' in the file and"),
    "another lam": ({"model": layer(lam=0.9)}, r"model\.settings\.\.lam is 0\.8 in the file and"),
    "a stream less": ({"extra": ()}, r"streams\.noise is 'cpu' in the file and not here"),
    "a stream more": ({"extra": ("noise", "b")}, r"streams\.b is 'cpu' here and not in the file"),
    "another torch": ({}, rf"torch is '1\.0\.0' in the file and '{re.escape(torch.__version__)}' here"),
    "another device": ({}, r"device is 'cuda' in the file and 'cpu' here"),
    "a stream elsewhere": ({}, r"streams\.generator is 'cuda' in the file and 'cpu' here"),
}
#: What a checkpoint says that another program or machine would have written.
NOTED = {
    "another torch": {"torch": "1.0.0"},
    "another device": {"device": "cuda"},
    "a stream elsewhere": {"streams": {"generator": "cuda", "noise": "cpu"}},
}


@pytest.mark.parametrize("name", REFUSALS)
def test_another_trainings_checkpoint_is_refused(name, halfway, tmp_path):
    """A checkpoint of another config, task, model, set of streams, version of PyTorch or device is refused with its
    path and the first field that differs, both values; the file stays as it was.
    """
    given, message = REFUSALS[name]
    path = tmp_path / "other.safetensors"
    path.write_bytes(halfway)
    tensors, notes = checkpoint.read(path)
    checkpoint.write(path, tensors, notes | NOTED.get(name, {}))
    before = path.read_bytes()
    with pytest.raises(ValueError, match=rf"^cannot go on from the checkpoint {path}: .*{message}"):
        go_on(path, **given)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def foreign(path, notes=None):
    safetensors.torch.save_file({"a": torch.zeros(3)}, path, notes)


def of_another_format(path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "_FORMAT", "icl checkpoint 0")
        checkpoint.write(path, {"losses": torch.zeros(3)}, {"step": 3})


OF_ANOTHER = "it is a safetensors file of another program"
FOREIGN = {
    "another format": (of_another_format, OF_ANOTHER),
    "nothing": (lambda path: path.write_bytes(b""), "it is no safetensors file, or cut short"),
    "text": (lambda path: path.write_text("a checkpoint, honestly"), "it is no safetensors file"),
    "a pickle": (lambda path: torch.save({"a": torch.zeros(3)}, path), "it is no safetensors file"),
    "JSON": (lambda path: path.write_text(json.dumps({"step": 3})), "it is no safetensors file"),
    "another program's": (foreign, OF_ANOTHER),
    "another's with notes": (
        lambda path: foreign(path, {"format": "pt"}),
        OF_ANOTHER,
    ),
    "a folder": (lambda path: path.mkdir(), "it cannot be read: Is a directory"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_refused(name, tmp_path):
    """What is no checkpoint is refused with its path and what is wrong with it, and stays as it was."""
    make, message = FOREIGN[name]
    path = tmp_path / "foreign"
    make(path)
    before = path.is_dir() or path.read_bytes()
    with pytest.raises(ValueError, match=rf"^cannot go on from the checkpoint {path}: {message}"):
        go_on(path)
    assert (path.is_dir() or path.read_bytes()) == before
    assert list(tmp_path.iterdir()) == [path]


def test_every_flipped_bit_and_every_cut_is_seen(tmp_path):
    """With a bit flipped in any byte, cut short anywhere or with a byte more, a checkpoint is refused, and never raises
    anything but ValueError.

    Length, header, notes, digest, padding and tensors alike: all 8 bits of the length, then one a byte, each in turn.
    """
    path = tmp_path / "small"
    checkpoint.write(path, {"b": torch.arange(3.0), "a": torch.tensor(True)}, {"step": 1, "name": "ä"})
    whole = path.read_bytes()
    tensors, notes = checkpoint.read(path)
    assert notes == {"step": 1, "name": "ä"}
    assert torch.equal(tensors["b"], torch.arange(3.0))
    assert tensors["a"].item() is True
    flips = [(i, bit) for i in range(8) for bit in range(8)] + [(i, i * 3 % 8) for i in range(8, len(whole))]
    damaged = [whole[:i] + bytes([whole[i] ^ 1 << bit]) + whole[i + 1 :] for i, bit in flips]
    damaged += [whole[:i] for i in range(len(whole))] + [whole + b"\0"]
    for wrong in damaged:
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match=r"^cannot go on from the checkpoint .* \(remove it, or name another"):
            checkpoint.read(path)
    path.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=rf"it is cut short: {len(whole) - 1} of {len(whole)} bytes"):
        checkpoint.read(path)
    path.write_bytes(whole[:-1] + b"\0")
    with pytest.raises(ValueError, match="it is damaged"):
        checkpoint.read(path)


def test_a_damaged_checkpoint_is_refused_by_the_training(halfway, tmp_path):
    """The loop itself refuses a damaged checkpoint, before it changes the model or draws anything."""
    path = tmp_path / "damaged"
    path.write_bytes(halfway[:-5] + bytes([halfway[-5] ^ 1]) + halfway[-4:])
    model = layer()
    with pytest.raises(ValueError, match="it is damaged"):
        go_on(path, model=model)
    assert torch.equal(model.W_V, layer().W_V)


def test_the_old_checkpoint_survives_a_failed_writing(tmp_path, monkeypatch):
    """When the disk is full, the error reaches the caller and the checkpoint is the one from before, whole."""
    path = tmp_path / "kept"
    checkpoint.write(path, {"a": torch.zeros(3)}, {"step": 1})
    before = path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            checkpoint.write(path, {"a": torch.ones(3)}, {"step": 2})
    assert path.read_bytes() == before
    checkpoint.write(path, {"a": torch.ones(3)}, {"step": 2})
    assert checkpoint.read(path)[1] == {"step": 2}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of open files in /proc")
def test_it_is_on_the_disk_before_it_is_renamed(tmp_path, monkeypatch):
    """The draft is synchronised before it takes the checkpoint's name."""
    done = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append(os.readlink(f"/proc/self/fd/{file}")), fsync(file)))
    monkeypatch.setattr(Path, "replace", lambda self, to: (done.append((self.name, to.name)), replace(self, to)))
    checkpoint.write(tmp_path / "a", {}, {})
    (draft, renamed) = done
    assert renamed == (Path(draft).name, "a")
    assert Path(draft).parent == tmp_path


def test_a_draft_is_no_checkpoint(tmp_path):
    """What a killed writing has left is not read: the training begins anew."""
    path = tmp_path / "new"
    (tmp_path / "new.0123abcd.part").write_bytes(b"half a checkpoint")
    _, run, _ = train(path)
    assert run.resumed_from == 0


def test_layout_and_unused_parameters_survive(tmp_path):
    """A model with a parameter laid out by columns, one that is never used and one number goes on bit for bit."""

    def model():
        net = nn.Module()
        net.columns = nn.Parameter(torch.randn(3, 40, generator=make_generator("columns")).T)
        net.idle, net.number = nn.Parameter(torch.ones(2)), nn.Parameter(torch.tensor(0.5))
        return net

    def run(path, stop=None):
        net, calls = model(), []

        def loss(net, prompt):
            calls.append(1)
            if len(calls) == stop:
                raise KeyboardInterrupt
            return (torch.tanh(prompt.x[:, -1] @ net.columns.T).sum(1) * net.number - prompt.y[:, -1]).square().mean(0)

        fit(net, loss, TASK, CONFIG, generator=make_generator("prompts"), checkpoint=path)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "a", stop=9)
    run(tmp_path / "a")
    run(tmp_path / "b")
    assert state(tmp_path / "a")[0] == state(tmp_path / "b")[0]


def test_a_captured_state_does_not_change_with_the_training():
    """Steps taken after `capture`, and after `restore` from it, leave the captured tensors as they were.

    Planted: a model's or AdamW's tensors captured or restored without a copy are seen.
    """
    model, noise = layer(), make_generator("noise")
    optimiser = torch.optim.AdamW(model.parameters())
    state = TrainingState(model, optimiser, {"noise": noise})

    def step():
        optimiser.zero_grad()
        plain(model, TASK.sample(8, generator=noise, dtype=torch.float64)).backward()
        optimiser.step()

    step()
    captured = state.capture()
    expected = {name: tensor.clone() for name, tensor in captured.items()}
    step()
    state.restore(captured)
    step()
    assert captured.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(captured[name], tensor), name
        assert not torch.equal(state.capture()[name], tensor), name


def test_what_a_checkpoint_says_of_itself(halfway, tmp_path):
    """Any safetensors reader can read its header, which says what made it: versions, device, config, task, model."""
    path = tmp_path / "told"
    path.write_bytes(halfway)
    with safetensors.safe_open(path, "pt") as file:
        notes = json.loads(file.metadata()["notes"])
        assert file.get_tensor("losses").shape == (notes["step"],)
    assert notes["torch"] == torch.__version__
    assert notes["python"] == sys.version.split()[0]
    assert notes["device"] == "cpu"
    assert notes["config"]["optimiser"]["lr"] == 0.05
    assert notes["task"]["gamma"] == 0.9
    assert list(notes["streams"]) == ["generator", "noise"]
    assert notes["seconds"] > 0


def test_a_description_tells_settings_apart():
    """Equal settings have equal descriptions that survive JSON; a change at any depth shows."""
    same = checkpoint.to_jsonable(DriftingRegression(d=3, n=6, gamma=0.9))
    assert json.loads(json.dumps(same, allow_nan=False)) == checkpoint.to_jsonable(TASK) == same
    assert checkpoint.to_jsonable(Config(1, 1)) != checkpoint.to_jsonable(Config(1, 1, AdamW(beta2=0.9)))
    values = [np.float32(0.5), np.arange(2), torch.ones(1), (1, "a"), {"a": None}, float("nan"), torch.float64, fit]
    expected = [0.5, [0, 1], [1.0], [1, "a"], {"a": None}, "nan", "torch.float64", "icl.experiments.training.fit"]
    assert checkpoint.to_jsonable(values) == expected
    assert checkpoint.to_jsonable(np.array([[np.inf, 1.0]])) == [["inf", 1.0]]


# Bad input


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("value", [float("nan"), torch.zeros(2)])
def test_a_checkpoint_takes_notes_that_json_can_hold(tmp_path, value):
    """Others are refused before anything is written."""
    with pytest.raises(ValueError, match=r"^notes must be what JSON can hold"):
        checkpoint.write(tmp_path / "x", {}, {"a": value})
    assert not list(tmp_path.iterdir())
