"""What the recipes run: the commands that --dry-run prints, and what they say when something is wrong."""

import re
from pathlib import Path

import original_archives
import pytest
import torch
from original_archives import LAYOUTS
from recipe_runs import SMALL

ROOT = Path(__file__).resolve().parent.parent

# --- training, translating, scoring


PAPER = (
    "--optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-8 --weight-decay 0.0 --clip-norm 0.0 "
    "--lr 0.0007 --lr-scheduler inverse_sqrt --warmup-updates 4000 "
    "--criterion label_smoothed_cross_entropy --label-smoothing 0.1 --dropout 0.1 --attention-dropout 0.1"
)
SAVING = (
    "--required-batch-size-multiple 1 --seed 1 --max-update 300000 "
    "--save-dir {out}/transformer_rela_g_base.seed1/checkpoints "
    "--save-interval-updates 5000 --keep-interval-updates 5 --no-epoch-checkpoints --log-format json --log-interval 25"
)
UNSET = {name: "" for name in SMALL if name not in ("DEVICES", "OMP_NUM_THREADS")}


@pytest.mark.parametrize(
    "devices, launch, flags, tokens",
    [
        ("cpu", "env OMP_NUM_THREADS=1 ", "--cpu", (6250, 4)),
        ("1", "", "--distributed-world-size 1", (6250, 4)),
        ("4", "", "--distributed-world-size 4", (6250, 1)),
        ("8", "", "--distributed-world-size 8", (3125, 1)),
        (
            "torchrun:2x8",
            "torchrun --nnodes 2 --nproc_per_node 8 --node_rank 1 --master_addr node0 --master_port 29500 --no_python ",
            "--distributed-world-size 16",
            (1562, 1),
        ),
        (
            "slurm:2x1",
            "srun --nodes 2 --ntasks-per-node 1 --gpus-per-node 1 ",
            "--distributed-world-size 2 --distributed-port 29500",
            (6250, 2),
        ),
    ],
)
def test_one_variable_chooses_the_devices(recipe, tmp_path, devices, launch, flags, tokens):
    variables = {**UNSET, "OUT": tmp_path, "DEVICES": devices, "NODE_RANK": "1", "MASTER_ADDR": "node0"}
    printed = recipe("train.sh", "wmt14_en_de", "rela_g", "--dry-run", "--fp16", **variables)
    assert printed == (
        f"{launch}fairseq-train {tmp_path}/data-bin --user-dir {ROOT}/fairseq_rela --arch transformer_rela_g_base "
        f"--share-decoder-input-output-embed {flags} {PAPER} --max-tokens {tokens[0]} --update-freq {tokens[1]} "
        f"{SAVING.format(out=tmp_path)} --fp16\n"
    )


def test_library_of_matrix_products(recipe, tmp_path):
    variables = {**UNSET, "OUT": tmp_path, "DEVICES": "cpu"}
    printed = recipe("train.sh", "wmt14_en_de", "rela_g", "--dry-run", PRODUCTS="onednn", **variables)
    assert printed.startswith(
        f"env OMP_NUM_THREADS=1 python {ROOT}/examples/onednn.py fairseq-train {tmp_path}/data-bin "
    )
    assert recipe("train.sh", "wmt14_en_de", "rela_g", "--dry-run", fails=True, PRODUCTS="mkl", **variables) == (
        "train.sh: PRODUCTS=mkl is not known; give onednn, or leave it out for torch's own choice\n"
    )


def test_what_translates_and_scores(recipe, tmp_path):
    run = f"{tmp_path}/transformer_rela_i_base.seed2"
    printed = recipe("generate.sh", "wmt14_en_fr", "rela_i", "--dry-run", **{**UNSET, "OUT": tmp_path, "SEED": "2"})
    assert [line for line in printed.splitlines() if not line.startswith("#")] == [
        f"fairseq-rela average {run}/checkpoints/checkpoint_*_{{280000,285000,290000,295000,300000}}.pt "
        f"--output {run}/average.pt",
        f"env OMP_NUM_THREADS=1 fairseq-generate {tmp_path}/data-bin --user-dir {ROOT}/fairseq_rela "
        f"--task translation_attention --path {run}/average.pt --cpu --beam 4 --lenpen 0.6 --max-tokens 6250 "
        "--required-batch-size-multiple 1 "
        f"--remove-bpe sentencepiece > {run}/generate.log.part 2>&1",
        f"mv {run}/generate.log.part {run}/generate.log",
        f"python {ROOT}/examples/translation.py {run}/generate.log {tmp_path}/text/test.fr > {run}/translation.fr",
        f"env SACREBLEU={tmp_path}/sacrebleu sacrebleu -t wmt14/full -l en-fr -i {run}/translation.fr "
        f"--format json --width 2 > {run}/bleu.json",
        f"sacremoses -q -l fr -j 1 tokenize -x < {run}/translation.fr > {run}/translation.fr.tok",
        f"sacremoses -q -l fr -j 1 tokenize -x < {tmp_path}/text/test.fr > {tmp_path}/text/test.fr.tok",
        f"sacrebleu {tmp_path}/text/test.fr.tok -i {run}/translation.fr.tok --tokenize none --force "
        f"--format json --width 2 > {run}/tokenized.json",
        f"python {ROOT}/examples/table.py score {run}",
    ]


def test_published_setting_of_the_text_in_pieces(recipe, tmp_path):
    """The flags of its README, two GPUs with 4,096 tokens each; scored in words."""
    variables = {**UNSET, "OUT": tmp_path, "DEVICES": "2", "RESULTS": tmp_path / "R.md", "ATTENTIONS": "softmax"}
    printed = recipe("results.sh", "multi30k_bpe_en_de", "--dry-run", "trials", "runs", **variables)
    (train,) = (line for line in printed.splitlines() if line.startswith("fairseq-train "))
    for flags in (
        "--arch transformer_softmax_tiny --share-all-embeddings --distributed-world-size 2 --optimizer adam ",
        "--lr 0.005 --lr-scheduler inverse_sqrt --warmup-updates 2000 ",
        "--dropout 0.3 --attention-dropout 0.0 --max-tokens 4096 --update-freq 1 ",
        "--max-update 8000 ",
        "--keep-interval-updates 10 ",
    ):
        assert flags in train
    assert "--beam 5 --lenpen 1 " in printed and "--remove-bpe subword_nmt " in printed
    assert f"\nsacrebleu {tmp_path}/text/test.words.de -i " in printed


@pytest.mark.parametrize("dataset", sorted(LAYOUTS))
def test_a_dry_run_does_nothing(recipe, tmp_path, dataset):
    out, cache = tmp_path / "out", tmp_path / "cache"
    variables = {**UNSET, "OUT": out, "CACHE_DIR": cache, "MIRROR": "http://127.0.0.1:9"}
    printed = recipe("prepare.sh", dataset, "--dry-run", **variables)
    fetched = re.findall(r"^curl .* --output (\S+?)'? '?http://127.0.0.1:9/(\S+?)'?$", printed, re.MULTILINE)
    text = original_archives.Text(tmp_path / "toy", dataset)
    assert sorted(path for _, path in fetched) == sorted(LAYOUTS[dataset](text))
    pieces = {"multi30k_en_de": 4000, "hansards_en_fr": 8000, "iwslt14_de_en": 10000}.get(dataset, 32000)
    assert (f"/pieces/spm {pieces} " in printed) == (dataset != "multi30k_bpe_en_de")  # which comes in pieces
    assert not out.exists() and not cache.exists()


def test_mistakes_are_told_in_one_line(recipe, tmp_path):
    known = " ".join(sorted([*LAYOUTS, "toy"]))
    said = [
        recipe("train.sh", fails=True),
        recipe("train.sh", "wmt14_ende", "rela_g", fails=True),
        recipe("train.sh", "wmt14_en_de", fails=True, OUT=tmp_path),
        recipe("train.sh", "wmt14_en_de", "rela_g", fails=True, OUT=tmp_path),
        recipe("train.sh", "wmt14_en_de", "rela_g", fails=True, OUT=tmp_path, DEVICES="slurm:two"),
        recipe("train.sh", "wmt14_en_de", "rela_g", fails=True, OUT=tmp_path, UPDATES="1e5"),
        recipe("generate.sh", "wmt14_en_de", "rela_g", fails=True, OUT=tmp_path),
        recipe("prepare.sh", "wmt14_en_de", fails=True, OUT=tmp_path, DATA_DIR="nowhere"),
    ]
    assert said == [
        f"train.sh: no DATASET; known are {known}\n",
        f"train.sh: unknown data set 'wmt14_ende'; known are {known}\n",
        "train.sh: no ARCH; give an architecture as transformer_rela_g_tiny, or an attention as rela_g\n",
        f"train.sh: {tmp_path}/data-bin is missing; run 'bash examples/prepare.sh wmt14_en_de' first\n",
        "train.sh: DEVICES=slurm:two is not known; give cpu, a number of GPUs, "
        "torchrun:MACHINESxGPUS or slurm:MACHINESxGPUS\n",
        "train.sh: UPDATES=1e5 is not a whole number\n",
        f"generate.sh: {tmp_path}/transformer_rela_g_tiny.seed1 has 0 of 3 updates; "
        "run 'bash examples/train.sh wmt14_en_de transformer_rela_g_tiny' first, or give UPDATES\n",
        "prepare.sh: DATA_DIR=nowhere is not a directory\n",
    ]


# --- the paper's tables


@pytest.mark.slow
def test_table_1_has_13_rows(recipe, tmp_path):
    printed = recipe("paper/table1.sh", "wmt14_en_de", "--dry-run", OUT=tmp_path, SIZE="", SEEDS="2")
    actual = re.findall(r"fairseq-train \S+ --user-dir \S+ --arch transformer_(\w+)_base .* --seed (\d)", printed)
    names = """softmax sparsemax entmax15 relu relu_rmsnorm rela_i rela_g rela_g_layernorm rela_g_gelu rela_g_leaky_relu
        rela_g_encoder_only rela_g_decoder_only rela_g_cross_only""".split()
    assert actual == [(name, "2") for name in names]
    assert printed.splitlines()[-1].endswith(f"> {tmp_path}/paper/table1.seeds2.tsv")
    assert list(tmp_path.iterdir()) == []
    said = recipe("paper/table1.sh", "wmt14_en_de", "--dry-run", fails=True, OUT=tmp_path, ROWS="7 14")
    assert said == "table1.sh: ROWS: there is no row 14; give numbers from 1 to 13\n"


@pytest.mark.slow
def test_speed(recipe, tmp_path):
    variables = {"OUT": tmp_path, "PIECES": "4000", "ATTENTIONS": "rela_g", "REPEATS": "1"}
    lengths = {"LENGTHS": "8", "FIGURE_LENGTHS": "4 8"}
    printed = recipe("paper/speed.sh", "multi30k_en_de", "--dry-run", **variables, **lengths).splitlines()
    model = "--attention rela_g --size tiny --vocabulary 4000"
    bench, paper = "env OMP_NUM_THREADS=1 fairseq-rela bench", tmp_path / "paper"

    def end(name):
        return f"--repeats 1 --device cpu --json {paper}/{name}.json > {paper}/{name}.txt"

    assert [line for line in printed if not line.startswith("#")] == [
        f"{bench} train {model} --lengths 8 --entmax-lengths 8 {end('table2-train-rela_g')}",
        f"{bench} decode {model} --lengths 8 --entmax {end('table2-decode-rela_g')}",
        f"{bench} decode {model} --lengths 4 8 --entmax --plot {paper}/figure2-rela_g.png {end('figure2-rela_g')}",
        f"{bench} op --lengths 8 --entmax-lengths 8 {end('table4-op')}",
    ]
    if not hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        pytest.skip("bench op needs torch 2: only --dry-run was tested")
    printed = recipe("paper/speed.sh", "multi30k_en_de", **{**variables, **lengths, "PIECES": "100"})
    assert printed.count("geometric mean of the ratios to softmax") == 4
    assert (paper / "figure2-rela_g.png").exists() and (paper / "table4-op.json").exists()
