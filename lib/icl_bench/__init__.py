"""The benchmark as a tool: any sequence layer on drifting tasks, against the best possible error (`icl-bench`).

- `bounds`: the least possible errors, and what a filter that is told more has
- `budgets`: how much is spent on a contestant
- `catalogue`: who the tool has names for
- `cells`: one training and its tests, named by all that decides it
- `command`: the command line, `icl-bench`
- `contest`: the comparison of *One benchmark*, who is told, tuned or taught what
- `contestants`: any layer, model, operator or filter, by name, by module or by file
- `foreign`: models of other packages
- `leaderboard`: rows, one a contestant, and what is checked of them
- `own`: tasks of one's own
- `report`: one self-contained page
- `results`: the table of a run: kept, summed up, compared
- `running`: a run in as many processes as there are
- `sequence`: a model of prompts around any layer
- `sound`: what is refused before anything is trained
- `specs`: what is brought along, by file or module
- `tasks`: the tasks, by name
- `weighing`: what a contestant costs
"""

from icl_bench import (
    bounds,
    budgets,
    catalogue,
    cells,
    command,
    contest,
    contestants,
    foreign,
    leaderboard,
    own,
    report,
    results,
    running,
    sequence,
    sound,
    specs,
    tasks,
    weighing,
)
from icl_bench.bounds import RevealedPrompt, known_floors, telling
from icl_bench.budgets import BUDGETS, Budget
from icl_bench.catalogue import CONTESTANTS, Alibi, Known, Lstm, Rotary, Softmax, delta, linear
from icl_bench.cells import VARIANTS, Cell, Outcome, Sought, prompts_for, squared_errors, work
from icl_bench.command import main
from icl_bench.contest import (
    FOR_ALL,
    LONG,
    SHORT,
    compare,
    makers,
    taught_numbers,
    teach,
    tuned_for,
    tuned_settings,
    untaught,
)
from icl_bench.contestants import KINDS, Contestant, Shape, in_the_middle, resolve, torch_seeded
from icl_bench.foreign import (
    Body,
    MambaPy,
    body_of,
    configured,
    dataclass_config,
    here,
    hugging_face,
    is_config,
    is_config_class,
    is_model,
    is_model_class,
)
from icl_bench.leaderboard import MEANS, board, by_task, read_rows, row, submit, write_row
from icl_bench.own import OwnTask
from icl_bench.report import answer, page, plain, ranked, warned, write_report
from icl_bench.results import (
    COLUMNS,
    FORMAT,
    GROUPS,
    ZERO,
    BenchResults,
    least,
    overall,
    paired,
    per_task,
    read_results,
    renamed,
    summary,
    together,
    write_results,
)
from icl_bench.running import Plan, plan, run
from icl_bench.sequence import HEAD, Block, BlockStack, InContext, Projected, heads_for, operator_gates, tokens
from icl_bench.sound import Unsound, audit, examine
from icl_bench.specs import home_of, load, nearest, source_hash
from icl_bench.tasks import (
    BENCH_TASKS,
    BenchTask,
    SeveralTasks,
    best_possible,
    drifting_tasks,
    find_tasks,
    mixture,
    told_kalman,
)
from icl_bench.weighing import Weight, count, step_bytes, weigh

__all__ = [
    "BENCH_TASKS",
    "BUDGETS",
    "COLUMNS",
    "CONTESTANTS",
    "FORMAT",
    "FOR_ALL",
    "GROUPS",
    "HEAD",
    "KINDS",
    "LONG",
    "MEANS",
    "SHORT",
    "VARIANTS",
    "ZERO",
    "Alibi",
    "BenchResults",
    "BenchTask",
    "Block",
    "BlockStack",
    "Body",
    "Budget",
    "Cell",
    "Contestant",
    "InContext",
    "Known",
    "Lstm",
    "MambaPy",
    "Outcome",
    "OwnTask",
    "Plan",
    "Projected",
    "RevealedPrompt",
    "Rotary",
    "SeveralTasks",
    "Shape",
    "Softmax",
    "Sought",
    "Unsound",
    "Weight",
    "answer",
    "audit",
    "best_possible",
    "board",
    "body_of",
    "bounds",
    "budgets",
    "by_task",
    "catalogue",
    "cells",
    "command",
    "compare",
    "configured",
    "contest",
    "contestants",
    "count",
    "dataclass_config",
    "delta",
    "drifting_tasks",
    "examine",
    "find_tasks",
    "foreign",
    "heads_for",
    "here",
    "home_of",
    "hugging_face",
    "in_the_middle",
    "is_config",
    "is_config_class",
    "is_model",
    "is_model_class",
    "known_floors",
    "leaderboard",
    "least",
    "linear",
    "load",
    "main",
    "makers",
    "mixture",
    "nearest",
    "operator_gates",
    "overall",
    "own",
    "page",
    "paired",
    "per_task",
    "plain",
    "plan",
    "prompts_for",
    "ranked",
    "read_results",
    "read_rows",
    "renamed",
    "report",
    "resolve",
    "results",
    "row",
    "run",
    "running",
    "sequence",
    "sound",
    "source_hash",
    "specs",
    "squared_errors",
    "step_bytes",
    "submit",
    "summary",
    "tasks",
    "taught_numbers",
    "teach",
    "telling",
    "together",
    "tokens",
    "told_kalman",
    "torch_seeded",
    "tuned_for",
    "tuned_settings",
    "untaught",
    "warned",
    "weigh",
    "weighing",
    "work",
    "write_report",
    "write_results",
    "write_row",
]
