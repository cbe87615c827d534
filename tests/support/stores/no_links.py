"""A file system without hard links, for a process: a library that makes `link` and `linkat` fail, put before libc's.

FAT and exFAT answer EPERM, a bucket mounted by s3fs EOPNOTSUPP, other FUSE file systems ENOSYS. None of them can be
mounted without rights that tests do not have.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCE = """\
#include <errno.h>
int link(const char *from, const char *to) { (void)from; (void)to; errno = NUMBER; return -1; }
int linkat(int d, const char *from, int e, const char *to, int flags) {
    (void)d; (void)e; (void)flags;
    return link(from, to);
}
"""


def without_links(folder: Path, number: int) -> dict[str, str]:
    """Return the environment of processes whose file systems refuse hard links with this errno."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc)")
    source, library = folder / "no_links.c", folder / "no_links.so"
    source.write_text(_SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", f"-DNUMBER={number}", "-o", library, source], check=True, timeout=60)
    return {"LD_PRELOAD": str(library)}
