"""Write the sealed answers of chapters' exercises anew: python tools/seal.py adaptation/depth ...

Each chapter's cells run as they are, with the repository's own library; `seal` writes `book/answers/<label>.json`.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))

import environments
import kernels
import runs


def main() -> int:
    """Run the chapters named; return an exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="+", metavar="page", help="such as adaptation/depth")
    around = environments.sealing()
    status = 0
    for name in parser.parse_args().pages:
        page = f"book/{name.removeprefix('book/').removesuffix('.md')}"
        with tempfile.TemporaryDirectory() as empty:
            seconds, error = kernels.execute(runs.download(page), Path(empty), around, 600)
        print(f"{'FAILED' if error else 'sealed'} {seconds:6.1f} s  {page}", *filter(None, [error]), flush=True)
        status |= bool(error)
    return status


if __name__ == "__main__":
    sys.exit(main())
