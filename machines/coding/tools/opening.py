"""How what lies in a workspace is opened: no link is followed, a FIFO does not hold us up, a terminal does not become ours.

Flags for `os.open`, which Python has only where the system does. Where one is missing nothing may be opened: `CAN_OPEN` says so.
"""

import os

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)
_FOLDER_ALONE = getattr(os, "O_DIRECTORY", 0)
_OURS = getattr(os, "O_CLOEXEC", 0)  # Python sees to it in its own calls, not in the kernel's that it does not know

#: A folder, by a name that is no link or that whoever runs us has given · a folder in it · one on the way, where that is enough
ROOT = os.O_RDONLY | _FOLDER_ALONE | _OURS
FOLDER = ROOT | NO_LINK
STEP = getattr(os, "O_PATH", os.O_RDONLY) | _FOLDER_ALONE | _OURS
#: A file to be read · a new file to be written
READ = os.O_RDONLY | NO_LINK | _AT_ONCE | getattr(os, "O_NOCTTY", 0) | _OURS
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK | _OURS

#: Whether this system opens files beneath a folder that is held open, and leaves links alone
CAN_OPEN = bool(NO_LINK and _AT_ONCE and _FOLDER_ALONE) and os.open in os.supports_dir_fd
