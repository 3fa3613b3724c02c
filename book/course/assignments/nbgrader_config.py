"""Settings of nbgrader for these problem sets; commands are run in this folder."""

import os
import textwrap
from pathlib import Path

from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor
from nbgrader.preprocessors import ClearHiddenTests, GetGrades, NbGraderPreprocessor
from nbgrader.utils import is_grade


class OnlyMessages(NbGraderPreprocessor):
    """Of a test that failed the message: a traceback would print the test."""

    def preprocess_cell(self, cell, resources, cell_index):
        """Cut the tracebacks of one cell, if it is a test."""
        for output in cell.get("outputs", []) if is_grade(cell) else []:
            if output.output_type == "error":
                output.traceback = textwrap.wrap(f"{output.ename}: {output.evalue}", 90)
        return cell, resources


c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "learning-to-adapt"
c.ClearSolutions.code_stub = {"python": 'raise NotImplementedError("not written yet")'}
# Seconds a cell may take. Tests limit themselves; this stops an answer's cell that never ends by itself.
c.Execute.timeout = 60
# What students get back tells what went wrong, and not the tests.
c.GenerateFeedback.preprocessors = [GetGrades, ClearHiddenTests, OnlyMessages, CSSHTMLHeaderPreprocessor]
# Files collected from a learning platform: <student>_<set>.ipynb, as anna_ps1.ipynb.
c.FileNameCollectorPlugin.named_regexp = r".*?(?P<student_id>[A-Za-z0-9.@-]+)_(?P<file_id>ps[0-9]+)[.]ipynb$"

# Hidden cases are drawn from this. Put a sentence of your own into the file secret.txt, and keep it out of sight:
# cases then differ from those of everybody who has this kit.
secret = Path(__file__).with_name("secret.txt")
if secret.is_file():
    os.environ["ICL_GRADING_SECRET"] = secret.read_text(encoding="utf-8").strip()
