"""The artefact: a whole translation as JSON and tensors in one zip file."""
