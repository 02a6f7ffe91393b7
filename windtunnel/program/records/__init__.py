"""The records of a translation about itself, as plain data: origins, strategies, fidelity, hardening, history."""
