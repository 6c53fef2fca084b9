"""Plan, run, store and track a study."""
