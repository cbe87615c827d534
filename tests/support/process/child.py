"""Processes that end with the one that started them, even with one that is killed."""

import signal

# How the Python of such a process begins; what it is replaced by (exec) ends so too. The signal goes when the *thread*
# ends that started the process: whoever starts one that is to stay does so from the main thread.
# The tests may run under nohup; what they start hears SIGHUP all the same.
ENDS_WITH_PARENT = f"""\
import ctypes, os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, {int(signal.SIGKILL)})  # PR_SET_PDEATHSIG
"""
