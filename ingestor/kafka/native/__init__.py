"""Takes records in without a Python object for each, in C, where a compiler was there to build it.

`intake` takes records in, `library` loads what is in C, `build` compiles it.
"""
