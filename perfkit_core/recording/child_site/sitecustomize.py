"""Python imports this file when a process starts whose environment ``perfkit record`` has set: a process of the
recorded script. It imports the file of this name that the process would have without perfkit, too."""

import os
import sys

_FOLDER = os.path.dirname(__file__)  # noqa: PTH120 (pathlib would be imported before the process's own modules)
sys.path[:] = [folder for folder in sys.path if folder != _FOLDER]
_this = sys.modules.pop("sitecustomize")
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
except ImportError as error:
    if error.name != "sitecustomize":
        raise
finally:
    sys.modules.setdefault("sitecustomize", _this)
try:
    from perfkit_core.recording.child_processes import begin
except ImportError:  # another Python, without perfkit
    pass
else:
    begin()
