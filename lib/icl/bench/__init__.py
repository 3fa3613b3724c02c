"""The benchmark as a tool: any sequence layer on drifting tasks, against the best possible error."""
