"""Build a wheel of fairseq from its unpacked source, with only the extensions that text needs.

fairseq compiles C++ for BLEU, batching, edit distances and clustering. Text needs only the first two. Without the
others the build takes seconds instead of minutes.

    python build_fairseq.py SOURCE_DIR WHEEL_DIR
"""

import os
import runpy
import sys

import setuptools

TEXT_EXTENSIONS = {
    "fairseq.libbleu",
    "fairseq.data.data_utils_fast",
    "fairseq.data.token_block_utils_fast",
}


def main(source_dir: str, wheel_dir: str) -> None:
    setup = setuptools.setup

    def setup_for_text(**options):
        text_modules = [e for e in options["ext_modules"] if e.name in TEXT_EXTENSIONS]
        missing = TEXT_EXTENSIONS - {e.name for e in text_modules}
        if missing:
            sys.exit(f"{source_dir}: no extension {', '.join(sorted(missing))}; is this fairseq 0.12?")
        options.update(ext_modules=text_modules, setup_requires=[])
        # torch's build_ext requires ninja and a matching compiler. Plain C++ needs neither.
        options.get("cmdclass", {}).pop("build_ext", None)
        return setup(**options)

    wheel_dir = os.path.abspath(wheel_dir)
    os.chdir(source_dir)
    sys.path.insert(0, os.getcwd())
    sys.argv = ["setup.py", "-q", "bdist_wheel", "--dist-dir", wheel_dir]
    setuptools.setup = setup_for_text
    runpy.run_path("setup.py", run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: build_fairseq.py SOURCE_DIR WHEEL_DIR")
    main(sys.argv[1], sys.argv[2])
