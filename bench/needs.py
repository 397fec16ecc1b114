"""What the bench needs beside Python: nginx and wrk from Debian, found or installed."""

import os
import shutil
import subprocess
from pathlib import Path

PACKAGES = {"nginx": "nginx-light", "wrk": "wrk"}
NCHAN = Path("/usr/lib/nginx/modules/ngx_nchan_module.so")
"""nginx's part that serves streams, and a package of its own."""
PLACES = "/usr/sbin:/sbin:/usr/local/sbin"


def find(program: str) -> str:
    """Where a program lies; SystemExit says what to install when it is missing and we may not."""
    found = shutil.which(program) or shutil.which(program, path=PLACES)
    if found is None:
        raise SystemExit(f"the bench needs {program}: apt-get install {PACKAGES[program]}")
    return found


def ensure() -> None:
    """Install what is missing, where we are root; otherwise say exactly what to do."""
    missing = [
        package
        for program, package in PACKAGES.items()
        if not shutil.which(program) and not shutil.which(program, path=PLACES)
    ]
    missing += [] if NCHAN.exists() else ["libnginx-mod-nchan"]
    if not missing:
        return
    if os.geteuid() != 0:
        raise SystemExit(f"the bench needs more: sudo apt-get install --no-install-recommends {' '.join(missing)}")
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], check=True)
