"""What a sweep is made of: its space, the trials' budget across processes, one trial, artefacts, results, plots."""
