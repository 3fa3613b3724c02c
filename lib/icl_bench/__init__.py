"""The benchmark as a tool: any sequence layer on drifting tasks, against exact lower bounds (`icl-bench`).

- `adapters`: models of other packages
- `budgets`: how much is spent on a model
- `catalogue`: models that the tool knows by name
- `command`: the command line, `icl-bench`
- `comparison`: paired comparison with oracle, tuned or trained hyperparameters (*One benchmark*)
- `costs`: parameters, state, operations and time of a model
- `custom_task`: tasks of one's own
- `entries`: model specifications resolved: a name, a module or a file
- `floors`: exact lower bounds on the error, and oracle filters
- `imports`: user code imported from a file or module, and its source hashed
- `leaderboard`: rows, one per model, and their validation
- `report`: one self-contained page
- `results`: the table of a run: stored, aggregated, compared
- `runner`: a run in many processes
- `sequence`: a model of prompts around any layer
- `tasks`: the tasks, by name
- `training_jobs`: one training with its tests, identified by all that determines it
- `validation`: checks before training: causality, batch independence, statelessness, finite outputs
"""
