"""The original files of a data set: download them into a cache, or find them in DATA_DIR, and check them.

python download.py INDEX FILE ...      writes INDEX: one line per file, its name and its path

A FILE is "URL sha256:SUM", "URL md5:SUM" or "URL -". The last means that no checksum is published for the file. Its
first download records one, and later downloads are checked against it.
Variables: CACHE_DIR, DATA_DIR, MIRROR, CHECKSUMS (see prepare.sh).
"""

import os
import subprocess
import sys
from typing import List, NamedTuple, Optional

import original_checks as checks
import recipe


class Original(NamedTuple):
    """A file as its publisher offers it, and where it is here."""

    url: str
    checksum: Optional[str]  # "sha256:…", "md5:…", or None if none is known
    path: str

    @property
    def name(self) -> str:
        return os.path.basename(self.url)


def originals(rows: List[str]) -> List[Original]:
    """The files that the data set names."""
    listed = checks.listed_checksums(os.environ.get("CHECKSUMS", ""))
    files = []
    for row in rows:
        url, _, published = row.partition(" ")
        checksum = published if ":" in published else None
        if listed is not None:
            checksum = listed.get(os.path.basename(url))
        files.append(Original(url, checksum, local_path(url)))
    return files


def local_path(url: str) -> str:
    """CACHE_DIR/host/path; with DATA_DIR, DATA_DIR/host/path or DATA_DIR/name."""
    path = url.partition("://")[2] or url
    directory = os.environ.get("DATA_DIR")
    if not directory:
        return os.path.join(os.environ["CACHE_DIR"], path)
    nested = os.path.join(directory, path)
    return nested if os.path.exists(nested) else os.path.join(directory, os.path.basename(url))


def curl(url: str, part: str, *flags: str) -> List[str]:
    command = ["curl", "--fail", "--location", "--retry", "3", "--continue-at", "-", "--create-dirs", "--output", part]
    return [*command, *flags, url]


def fetch(url: str, part: str) -> None:
    """Download into `part`, from where it ends."""
    os.makedirs(os.path.dirname(part), exist_ok=True)
    terminal = sys.stderr.isatty()
    flags = ["--progress-bar"] if terminal else ["--silent", "--show-error"]
    done = subprocess.run(
        curl(url, part, *flags, "--write-out", "%{http_code}"),
        stdout=subprocess.PIPE,
        stderr=None if terminal else subprocess.PIPE,
        text=True,
    )
    status, code = done.returncode, done.stdout[-3:]
    if status == 0:
        return
    if (status in (33, 36) or code == "416") and os.path.exists(part) and os.path.getsize(part) > 0:
        # The server cannot continue in the middle, or nothing is left to send: start again.
        os.unlink(part)
        fetch(url, part)
        return
    said = (done.stderr or "").strip().splitlines()
    reason = said[-1].replace("curl: ", "", 1) if said else f"curl ended with status {status}"
    if status in (18, 28, 56):
        raise recipe.RecipeError(f"{url}: interrupted ({reason}); run this again to continue where it stopped")
    raise recipe.RecipeError(f"{url}: {reason}")


def download(file: Original) -> None:
    """Fetch the file if it is not in the cache, and check it."""
    mirror = os.environ.get("MIRROR")
    url = f"{mirror}/{file.url.partition('://')[2]}" if mirror else file.url
    part, record = file.path + ".part", file.path + ".sha256"
    if recipe.dry_run():
        print(recipe.typed(curl(url, part)))
        print(recipe.typed(["mv", part, file.path]))
        return
    if not os.path.exists(file.path):
        if not os.path.exists(part) or os.path.getsize(part) == 0 or checks.fault(part, file.checksum):
            fetch(url, part)
        fault = checks.fault(part, file.checksum)
        if fault:
            os.unlink(part)
            raise recipe.RecipeError(f"{url}: {fault}; the download was removed, run this again to repeat it")
        recipe.write_atomically(record, checks.digest(part, "sha256") + "\n")
        os.replace(part, file.path)
    if not os.path.exists(record):
        recipe.write_atomically(record, checks.digest(file.path, "sha256") + "\n")
    with open(record, encoding="utf-8") as recorded:
        fault = checks.fault(file.path, file.checksum or f"sha256:{recorded.read().strip()}")
    if fault:
        raise recipe.RecipeError(f"{file.path}: {fault}; remove it to download it again")


def find(file: Original) -> None:
    """Check the file of DATA_DIR."""
    if recipe.dry_run():
        return
    if not os.path.exists(file.path):
        raise recipe.RecipeError(f"{file.path} is missing; DATA_DIR must have it as it comes from {file.url}")
    fault = checks.fault(file.path, file.checksum)
    if fault:
        raise recipe.RecipeError(f"{file.path}: {fault}; replace it, or give CHECKSUMS=none to use it as it is")


def main(index: str, rows: List[str]) -> None:
    files = originals(rows)
    for file in files:
        find(file) if os.environ.get("DATA_DIR") else download(file)
    if not recipe.dry_run():
        recipe.write_atomically(index, "".join(f"{file.name}\t{os.path.abspath(file.path)}\n" for file in files))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        main(sys.argv[1], sys.argv[2:])
    except recipe.RecipeError as error:
        recipe.fail(error)
    except KeyboardInterrupt:
        sys.exit(130)
