"""The process that kernels are copies of: a script that loads what every chapter imports, then forks when it is asked.

Its arguments name what it loads. It says "loaded", or else what it could not or should not load, and why. Each line of
its input is an order, in JSON: the arguments of a kernel and its folder. It answers with the process number of the copy
that became the kernel. It ends with its input, and its copies with it. `copies` gives the orders.
"""

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import NoReturn

#: What looks, when it is imported, whether it is in a notebook. Loaded here, pandas broke the lines of wide tables on
#: pages as in a terminal.
ASK_WHERE = {"pandas", "tqdm.auto"}


def serve(names: list[str]) -> None:
    """Load, then fork for each order."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the build, which then ends this process
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # kernels end when it is no longer their parent; read on loading
    with _ending_with_the_build():
        for name in names:
            try:
                importlib.import_module(name)
            except Exception as fault:
                print(f"{name} cannot be loaded: {type(fault).__name__}: {' '.join(str(fault).split())}", flush=True)
                return
    if asking := ASK_WHERE & set(sys.modules):
        print(f"{', '.join(sorted(asking))} would be loaded outside a notebook, where it looks whether it is in one")
        return
    print("loaded", flush=True)
    gc.freeze()  # a collection in a copy need not walk, and so copy, what is loaded
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a copy, and none stays as a zombie
    for line in sys.stdin:
        copy = os.fork()
        if not copy:
            become_kernel(**json.loads(line))
        print(copy, flush=True)


@contextlib.contextmanager
def _ending_with_the_build() -> Iterator[None]:
    """End this process if the build is killed meanwhile: until it reads its input, it would not notice.

    The thread is gone before anything is forked.
    """
    build, over = os.getppid(), threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            if os.getppid() != build:
                os._exit(1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def become_kernel(arguments: list[str], folder: str) -> NoReturn:
    """Keep of the copied process its modules and nothing else; be what `python -m ipykernel_launcher` starts."""
    from ipykernel.kernelapp import launch_new_instance

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.chdir(folder)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # its output was for answers
    sys.argv = ["ipykernel_launcher", *arguments]
    launch_new_instance()
    sys.exit()


if __name__ == "__main__":
    serve(sys.argv[1:])
