"""`make image`: builds deploy/Dockerfile with buildah, from its real base or from a Debian that is made here.

A machine that reaches no registry has no base image. `--from-debian` makes one with debootstrap, under the name that
the Dockerfile asks for: such an image proves the Dockerfile and runs, but its Python is Debian's. Everything is kept
below one folder, `build/image` unless `--folder` says otherwise, and nothing in the machine's own storage.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from carillon.version import __version__

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
NEEDED = ("buildah", "debootstrap")
SUITE = "bookworm"
PACKAGES = "python3,python3-venv,ca-certificates"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
NAME = f"localhost/carillon:{__version__}"


def storage(folder: Path) -> list[str]:
    """Options of buildah and podman that keep images in this folder."""
    return ["--root", str(folder / "storage"), "--runroot", str(folder / "run"), "--storage-driver", "overlay"]


def missing(*names: str) -> list[str]:
    """The programs that this machine does not have."""
    return [name for name in names if shutil.which(name) is None]


def base_name() -> str:
    """The image that the Dockerfile begins with; every stage begins with the same."""
    (name,) = set(re.findall(r"^FROM (\S+)", DOCKERFILE.read_text(), re.MULTILINE))
    return f"docker.io/library/{name}"


def debian(folder: Path) -> Path:
    """A Debian with Python as an archive; made once and kept."""
    archive, tree = folder / f"{SUITE}.tar", folder / SUITE
    if not archive.exists():
        print(f"making a {SUITE} with {PACKAGES}, which takes some minutes")
        shutil.rmtree(tree, ignore_errors=True)
        _run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(tree), quiet=True)
        # debootstrap may leave it behind, and then the archive would hold this machine's processes.
        left = ["umount", str(tree / "proc")]
        subprocess.run(left, check=False, capture_output=True)  # noqa: S603 - root's own
        whole = archive.with_suffix(".part")
        _run("tar", "--create", "--file", str(whole), "--exclude=./dev/*", "--exclude=./proc/*", "-C", str(tree), ".")
        shutil.rmtree(tree)
        whole.rename(archive)
    return archive


def make_base(folder: Path) -> None:
    """Give the Debian the name that the Dockerfile asks for."""
    kept = storage(folder)
    if _run("buildah", *kept, "images", "--quiet", "--filter", f"reference={base_name()}", quiet=True).strip():
        return
    made = _run("buildah", *kept, "from", "scratch", quiet=True).strip()
    _run("buildah", *kept, "add", "--quiet", made, str(debian(folder)), "/", quiet=True)
    linked = ("ln", "--symbolic", "--force", "/usr/bin/python3", "/usr/local/bin/python")
    _run("buildah", *kept, "run", "--isolation", "chroot", made, "--", *linked)
    path = "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    _run("buildah", *kept, "config", "--env", path, "--cmd", "python", made)
    _run("buildah", *kept, "commit", "--quiet", "--rm", made, base_name(), quiet=True)


def build(folder: Path, name: str, *, pull: bool) -> None:
    """Build the image; its layers hold nothing of this machine's network."""
    options = ["--isolation", "chroot", "--format", "docker", "--pull=ifmissing" if pull else "--pull=never"]
    if CERTIFICATES.exists():
        # The certificates of a company's own network are lent to the build, not copied.
        lent = folder / "pip.conf"
        lent.write_text(f"[global]\ncert = {CERTIFICATES}\n")
        options += ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro", "--volume", f"{lent}:/etc/pip.conf:ro"]
    ignore = DOCKERFILE.with_name(f"{DOCKERFILE.name}.dockerignore")
    place = ["--ignorefile", str(ignore), "--file", str(DOCKERFILE), "--tag", name, str(ROOT)]
    _run("buildah", *storage(folder), "build", *options, *place)


def _run(*command: str, quiet: bool = False) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE if quiet else None, text=True, check=True)  # noqa: S603
    return done.stdout or ""


def main(arguments: list[str]) -> int:
    """Exit code 0, or 1 if a program is missing."""
    reader = argparse.ArgumentParser(prog="make image", description="Build the container image.")
    reader.add_argument("--from-debian", action="store_true", help="make the base image here, with debootstrap")
    reader.add_argument("--folder", type=Path, default=ROOT / "build" / "image", help="where everything is kept")
    reader.add_argument("--name", default=NAME, help="the image's name")
    asked = reader.parse_args(arguments)
    lacking = missing(*(NEEDED if asked.from_debian else NEEDED[:1]))
    if lacking:
        print(f"{' and '.join(lacking)} cannot be found; on Debian: apt-get install {' '.join(lacking)}")
        return 1
    if asked.from_debian and os.geteuid() != 0:
        print("debootstrap needs root; without --from-debian the base image comes from a registry")
        return 1
    asked.folder.mkdir(parents=True, exist_ok=True)
    if asked.from_debian:
        make_base(asked.folder)
    build(asked.folder, asked.name, pull=not asked.from_debian)
    print(f"{asked.name} is built: podman {' '.join(storage(asked.folder))} images")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
