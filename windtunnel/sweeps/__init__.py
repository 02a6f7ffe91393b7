"""The parts of a sweep: its space, the trials' budget across processes, one trial, artefacts, results, plots."""
