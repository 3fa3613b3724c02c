"""Notebooks run in kernels of their own; what cannot start is tried again, and all of it can be stopped at once."""

import asyncio
import atexit
import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import ipykernel.kernelspec  # noqa: F401 (starting a kernel loads both: here once, not in several threads at a time)
import IPython  # noqa: F401
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbclient.util import ensure_async

STARTS = 3  # two kernels that start at the same moment may choose the same port, and one of them dies of it


class _Client(NotebookClient):
    """A client that asks its kernel once more after the last cell, to notice one that has died, and then kills it.

    To shut it down would first interrupt it, and a kernel that is interrupted as it answers logs an error.
    """

    async def async_execute_cell(
        self, cell: nbformat.NotebookNode, cell_index: int, *args: Any, **more: Any
    ) -> nbformat.NotebookNode:
        """Execute a cell."""
        done = await super().async_execute_cell(cell, cell_index, *args, **more)
        if cell_index == len(self.nb.cells) - 1 and self.kc is not None and self.km is not None:
            await self.async_wait_for_reply(self.kc.kernel_info())
            with contextlib.suppress(ProcessLookupError):
                await ensure_async(self.km.signal_kernel(signal.SIGKILL))
        return done


_running: set[NotebookClient] = set()
_stopping = threading.Event()


def execute(
    notebook: nbformat.NotebookNode,
    folder: Path,
    environment: Mapping[str, str],
    timeout: int,
    after: Callable[[int], None] | None = None,
) -> tuple[float, str | None]:
    """Run a notebook's cells in a folder, in place; return the seconds it took and the error, if any.

    `environment` is the kernel's, whole. `timeout` is in seconds a cell. `after` is called with the index of each code
    cell that has run.
    """
    began = time.monotonic()
    error = None
    for _ in range(STARTS):
        started = threading.Event()
        client = _Client(
            notebook,
            timeout=timeout,
            shell_timeout_interval=1,  # seconds until it looks whether a kernel that says nothing has died
            resources={"metadata": {"path": str(folder)}},
            # The kernel's own start-up notices would land between the lines of progress.
            extra_arguments=["--IPKernelApp.log_level=40"],
            # Timings would go into the cells, and so into what is compared.
            record_timing=False,
            on_notebook_start=lambda notebook, started=started: started.set(),
            on_cell_executed=lambda cell, cell_index, execute_reply: after(cell_index) if after else None,
        )
        error = _run(client, environment, started)
        if started.is_set() or _stopping.is_set():
            break
    return time.monotonic() - began, error


def _run(client: NotebookClient, environment: Mapping[str, str], started: threading.Event) -> str | None:
    if _stopping.is_set():
        return "It was stopped."
    _running.add(client)
    try:
        asyncio.run(client.async_execute(env=dict(environment)))
    except DeadKernelError:
        return "The kernel died, most likely for want of memory."
    except (CellExecutionError, CellTimeoutError) as failure:
        return _plain(str(failure))
    except Exception as failure:
        # Whatever it is (a port that is taken, no memory for a process), it came before the first cell.
        if started.is_set():
            raise
        # It would be asked to clean up once more when this process ends, and there is nothing left.
        atexit.unregister(client._cleanup_kernel)
        return f"Its kernel did not start: {' '.join(str(failure).split())}"
    finally:
        _running.discard(client)
    return None


def _plain(trace: str) -> str:
    """A traceback without colours, from the failing cell on."""
    trace = re.sub(r"\x1b\[[0-9;]*m", "", trace)
    return trace[max(trace.find("An error occurred while executing"), 0) :].strip()


def stop() -> None:
    """Kill every kernel, with the processes it has started, and start no other; return when none runs any more."""
    _stopping.set()
    while _running:
        for client in list(_running):
            provisioner = getattr(client.km, "provisioner", None)
            if group := getattr(provisioner, "pgid", None):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
        time.sleep(0.05)


def each(
    one: Callable[[str], tuple[float, str | None]],
    pages: list[str],
    *,
    workers: int,
    meanwhile: Callable[[], None] = lambda: None,
) -> list[str]:
    """Run chapters side by side, begun in this order, with a line each; return those that had no error.

    `one` runs a chapter and returns the seconds it took and the error, if any. Whatever stops this stops the kernels.
    `meanwhile` is called once they have begun, in this thread.
    """
    whole = []
    with ThreadPoolExecutor(workers) as pool:
        jobs = {pool.submit(one, page): page for page in pages}
        try:
            meanwhile()
            for job in as_completed(jobs):
                seconds, error = job.result()
                print(f"{'   FAILED' if error else ' executed'}  {seconds:6.1f} s  {jobs[job]}", flush=True)
                if error:
                    print(error, flush=True)
                else:
                    whole.append(jobs[job])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop()
            raise
    return whole
