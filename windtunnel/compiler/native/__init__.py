"""The native engine: programs in C, without code generation.

From a program to C, in the order in which to read the files:

- ``part.py`` splits a program into parts: neighbouring steps that have a native form, and steps that run in torch.
- ``lowering/`` gives the steps in C of a module. ``traced.py`` runs the ``forward`` of a module on a tensor whose
  elements stand for columns, and records what it does; ``recorded.py`` has a function for each operation of torch.
  Trees, tables and hashes are not recorded: a function per class of module gives their steps.
- ``image.py`` collects the steps and their tensors, and writes them as one block of bytes: the image.
- ``c/runtime.h`` explains the image; ``c/runtime.c`` runs it block by block of rows; ``c/operations.h`` lists the
  operations, which the other files compute.
- ``build.py`` compiles the C files to a library, once per user.

From rows of Python to C:

- ``engine.py`` runs batches, for all callers that encode rows and check them.
- ``scorer.py`` and ``c/scorer.c`` score few ordinary rows without torch or pandas; ``head.py`` adds links and labels.
- ``text_columns.py`` and ``c/vocabulary.c`` find the ids of whole columns of texts.
"""
