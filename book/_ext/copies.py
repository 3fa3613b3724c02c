"""Kernels that need not load what every chapter imports: each is a copy of one process that has done so.

To start Python and load PyTorch, Altair and SciPy takes a core five seconds and more, a third of what a short
chapter takes in all. The package is not among what is loaded (`LOADED`), nor is anything that a chapter has done: a
copy has modules of others, and no more. `make again` runs its chapters in processes of their own, and compares.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import chapters
from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

SUPPORTED = sys.platform == "linux"  # elsewhere it is not safe to fork with these libraries loaded
#: Modules of others only. The first optimiser of a process loads `torch._dynamo`. Not what `original` refuses.
LOADED = (
    "altair",
    "ipykernel.kernelapp",
    "scipy.integrate",
    "scipy.linalg",
    "scipy.optimize",
    "torch._dynamo",
    "vl_convert",
)
_NAME = "icl-copy"

_original: subprocess.Popen[bytes] | None = None
_one_order = threading.Lock()  # at a time: chapters run in threads


@contextlib.contextmanager
def made(environment: Mapping[str, str]) -> Iterator[None]:
    """Within it, every kernel that this process starts is a copy, with this environment, whole."""
    global _original
    factory = KernelProvisionerFactory.instance()
    before = factory.default_provisioner_name
    factory.provisioners[_NAME] = EntryPoint(_NAME, f"{__name__}:Provisioner", factory.GROUP_NAME)
    command = [sys.executable, "-P", str(Path(__file__).with_name("original.py")), *LOADED]
    pipe = subprocess.PIPE  # unbuffered: an order that nobody reads is not tried once more when the pipe is closed
    with subprocess.Popen(command, env=dict(environment), stdin=pipe, stdout=pipe, bufsize=0) as _original:
        try:
            if (said := _answer(_original)) != "loaded":
                raise chapters.Broken(f"book/_ext/copies.py: kernels cannot be copied: {said or 'the process ended'}")
            factory.default_provisioner_name = _NAME
            yield
        finally:
            factory.default_provisioner_name = before
            _original.terminate()
            _original = None


def _answer(original: subprocess.Popen[bytes]) -> str:
    assert original.stdout is not None
    return original.stdout.readline().decode().strip()


def _copy(arguments: list[str], folder: str) -> "_Copy":
    if _original is None or _original.stdin is None:
        raise RuntimeError("kernels are copied within `made` only")
    order = json.dumps({"arguments": arguments, "folder": folder}) + "\n"
    with _one_order:
        try:
            _original.stdin.write(order.encode())
            return _Copy(int(_answer(_original)))
        except (BrokenPipeError, ValueError):
            raise RuntimeError("the process that kernels are copies of has ended") from None


class _Copy:
    """A copy, as far as a provisioner asks about a process."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def poll(self) -> int | None:
        """None while it runs; how it ended its parent was told, and nobody else."""
        try:
            self.send_signal(0)
        except ProcessLookupError:
            return 0
        return None

    wait = poll


class Provisioner(LocalProvisioner):
    """Starts a kernel as a copy; all else is as for kernels that are processes of this one."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> dict[str, Any]:
        """Have the copy made; `cmd` is `python -m ipykernel_launcher` and its arguments."""
        self.process = _copy(cmd[3:], kwargs["cwd"])
        self.pid = self.pgid = self.process.pid
        self.cwd = kwargs["cwd"]
        return self.connection_info
