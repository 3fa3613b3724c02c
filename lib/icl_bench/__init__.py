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
