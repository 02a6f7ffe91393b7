"""Modules that hold tensors and see no estimator; each is in ``base.MODULES`` under its name.

Files with modules do not postpone annotations: ``torch.jit.script`` reads those of a class and takes no strings.
"""
