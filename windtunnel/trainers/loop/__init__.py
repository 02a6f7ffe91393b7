"""The Lightning side of fine-tuning: module, callbacks, checkpoints."""
