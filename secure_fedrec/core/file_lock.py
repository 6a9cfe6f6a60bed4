"""Locks of the operating system on open files, which it takes back however a process ends."""


def lock_file(descriptor: int, *, shared: bool = False, wait: bool = False) -> None:
    """Lock an open file against other processes, until it is closed.

    Args:
        descriptor: of the file; network file systems grant an exclusive lock only where it is open
            for writing.
        shared: whether the lock excludes exclusive locks only.
        wait: whether to wait for the holder.

    Raises:
        ImportError: the system does not support such locks.
        BlockingIOError: another process holds it, and is not waited for.
        OSError: the file system does not support such locks.
    """
    import fcntl  # noqa: PLC0415 - POSIX alone has it

    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(descriptor, how if wait else how | fcntl.LOCK_NB)
