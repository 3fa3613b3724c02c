"""The benchmark as a tool: any sequence layer on drifting tasks, against exact lower bounds (`icl-bench`).

- `adapters`: models of other packages
- `budgets`: sizes, training steps and learning rates, equal for every model
- `catalogue`: built-in models, by name
- `command`: the command line, `icl-bench`
- `comparison`: paired comparison with oracle, tuned or trained hyperparameters (*One benchmark*)
- `costs`: parameters, FLOPs, state size and time per token
- `custom_task`: user-defined tasks
- `entries`: model specifications resolved: a name, a module or a file
- `floors`: exact lower bounds on the error, and oracle filters
- `imports`: user code imported from a file or module, and its source hashed
- `leaderboard`: rows, one per model, and their validation
- `report`: one self-contained page
- `results`: the results table: input and output, aggregation, paired comparison
- `runner`: parallel, resumable runs
- `sequence`: an in-context model built around any sequence layer
- `tasks`: the tasks, by name
- `training_jobs`: one training with its tests, cached under a hash of its inputs
- `validation`: checks before training: causality, batch independence, statelessness, finite outputs
"""
