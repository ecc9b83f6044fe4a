"""Give sacrebleu its own copy of a test set, so that `sacrebleu -t SET` downloads nothing.

python sacrebleu_set.py DIRECTORY SET INDEX ARCHIVE:MEMBER ...     DIRECTORY is what SACREBLEU is set to later

The data set's archive is the one that sacrebleu itself would download.
"""

import os
import sys
import tarfile
from typing import List

import recipe
from text_formats import read_index


def offer(directory: str, name: str, index: str, members: List[str]) -> None:
    archive = members[0].partition(":")[0]
    raw = os.path.join(directory, name, "raw")
    os.makedirs(raw, exist_ok=True)
    wanted = {member.partition(":")[2] for member in members}
    with tarfile.open(read_index(index)[archive]) as tar:
        for entry in tar:
            if entry.isfile() and entry.name in wanted:
                path = os.path.join(raw, entry.name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(tar.extractfile(entry).read())
    # sacrebleu does not download the archive if this file exists and is not empty.
    recipe.write_atomically(os.path.join(raw, f"{name.replace('/', '_')}.{archive}"), f"{archive} was unpacked here\n")


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    offer(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
