"""The artefact: a whole translation as JSON and tensors in one file of safetensors."""
