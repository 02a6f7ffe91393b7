"""What a translation records about itself, as plain data: origins, strategies, fidelity, hardening, history."""
