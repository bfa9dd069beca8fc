"""Plays one program in children of a process, each time to another instant: text for `python -c`."""

FORKED = """
import mmap, os, sys, tempfile

reached = mmap.mmap(-1, 1)  # shared with the children

def play(wanted, *arguments):
    '''Fork, and return what became of the child; the child gets None, and these words as its command line.'''
    reached[0] = 0
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            for descriptor in (1, 2):
                os.dup2(output.fileno(), descriptor)
            sys.argv[1:] = arguments
            return None
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        return wanted, status, output.read().decode()
"""
"""Defines `play`, and `reached`, whose first byte a child sets when it has come to the instant that is wanted."""
