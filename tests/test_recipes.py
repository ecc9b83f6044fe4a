"""The recipes, from archives laid out like the originals to analyses, and what they say when something is wrong."""

import contextlib
import gzip
import http.server
import re
import subprocess
import sys
import threading
from pathlib import Path

import original_archives
import pytest
import torch
from original_archives import GOLD, LAYOUTS, TEST
from recipe_runs import SMALL

ROOT = Path(__file__).resolve().parent.parent
TINY = "--encoder-layers 1 --decoder-layers 1 --num-workers 0".split()
SHORT = "--max-len-a 0 --max-len-b 8 --num-workers 0".split()


def lines(file):
    return Path(file).read_text(encoding="utf-8").splitlines()


def pairs(prefix, langs):
    return list(zip(*(lines(f"{prefix}.{lang}") for lang in langs)))


# --- from archives to analyses


@pytest.fixture(scope="module")
def done(recipe, tmp_path_factory):
    """done(dataset): the directory of a recipe that ran from end to end, and the text that was in the archives."""
    made = {}

    def run(dataset):
        if dataset not in made:
            directory = tmp_path_factory.mktemp(dataset)
            text = original_archives.make(dataset, directory / "data", directory / "toy")
            variables = {"DATA_DIR": directory / "data", "OUT": directory / "out"}
            if dataset == "wmt14_en_de":  # the very files that are expected, so that `sacrebleu -t` is asked
                (directory / "SHA256").write_text(original_archives.checksums(directory / "data"))
                variables.update(CHECKSUMS=directory / "SHA256", GOLD_DIR=rwth(text, directory / "DeEn"))
            if dataset == "hansards_en_fr":
                variables["SAMPLE"] = f"60 8 {TEST}"
            recipe("prepare.sh", dataset, **variables)
            recipe("train.sh", dataset, "rela_g", *TINY, **variables)
            printed = recipe("generate.sh", dataset, "rela_g", *SHORT, **variables)
            printed += recipe("analyze.sh", dataset, "rela_g", "--no-figures", **variables)
            made[dataset] = directory / "out", text, variables, printed
        return made[dataset]

    return run


def rwth(text, directory):
    """Gold alignments as RWTH gives them out: in Latin-1, the German word first, from 1."""
    directory.mkdir()
    first = text.next
    for lang, found in text.take("gold", GOLD).items():
        (directory / lang).write_bytes(original_archives.plain(found, "latin-1"))
    rows = []
    for line in text.links[first : first + GOLD]:
        links = (link.split("-") for link in line.split())
        rows.append(" ".join(f"{int(target) + 1}-{int(source) + 1}" for source, target in links))
    (directory / "alignmentDeEn.talp").write_bytes(original_archives.plain(rows))
    return directory


@pytest.mark.parametrize("dataset", sorted(LAYOUTS))
def test_from_archives_to_analyses(done, dataset):
    out, text, _, printed = done(dataset)
    for split in ("train", "valid", "test"):
        found = pairs(out / "text" / split, text.langs)
        if dataset == "hansards_en_fr":
            assert len(found) == {"train": 60, "valid": 8, "test": TEST}[split]
            assert set(found) < set(text.splits["all"])
        else:
            assert found == text.splits[split]
    run = out / "transformer_rela_g_tiny.seed1"
    assert len(lines(run / f"translation.{text.langs[1]}")) == TEST
    scores = {row.split("\t")[0]: row.split("\t")[2] for row in lines(run / "score.txt")}
    assert "tok:none" in scores.get("tokenised BLEU", "tok:none")
    if dataset == "hansards_en_fr":
        assert list(scores) == ["tokenised BLEU"]
    else:
        assert "tok:13a" in scores["BLEU"]
    analyses = dict(row.split("\t") for row in lines(run / "analysis.txt"))
    assert {"cross sparsity %", "cross null %", "shuffled null %", "cross diversity", "AUROC"} <= set(analyses)
    assert all(f"{name}\t{value}" in printed for name, value in analyses.items())
    assert (run / "analysis" / "report.html").exists()
    assert ("AoL shifted" in analyses) == (dataset in ("hansards_en_fr", "wmt14_en_de"))
    assert not list(out.rglob("*.part"))


def test_sacrebleu_has_its_own_test_set_without_a_download(done):
    """It was asked for wmt14/full by name, and wrote its text from the archive that was unpacked for it."""
    out, text, _, _ = done("wmt14_en_de")
    assert lines(out / "sacrebleu/wmt14/full/wmt14_full.en-de.ref") == [pair[1] for pair in text.splits["test"]]


def test_gold_alignments(done):
    out, text, _, _ = done("hansards_en_fr")
    assert pairs(out / "text/gold", text.langs) == text.splits["gold"]
    assert lines(out / "text/gold.links") == text.gold_links
    rela = done("wmt14_en_de")[0] / "transformer_rela_g_tiny.seed1/analysis/metrics.json"
    assert "gold-base:1|gold-order:tgt-src" in rela.read_text()


def test_what_is_done_is_not_done_again(done, recipe):
    out, _, variables, _ = done("multi30k_en_de")
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*") if file.is_file()}
    recipe("prepare.sh", "multi30k_en_de", **variables)
    said = recipe("train.sh", "multi30k_en_de", "rela_g", *TINY, **variables)
    assert said == "[multi30k_en_de] transformer_rela_g_tiny, seed 1: trained before, 3 updates\n"
    recipe("generate.sh", "multi30k_en_de", "rela_g", *SHORT, **variables)
    recipe("analyze.sh", "multi30k_en_de", "rela_g", "--no-figures", **variables)
    changed = {file.name for file, time in before.items() if file.stat().st_mtime_ns != time}
    assert changed <= {"score.txt", "analysis.txt"}


def test_more_updates_go_on_where_training_stopped(done, recipe):
    out, _, variables, _ = done("multi30k_en_de")
    variables = {**variables, "TAG": "more"}
    recipe("train.sh", "multi30k_en_de", "softmax", *TINY, **variables)
    recipe("generate.sh", "multi30k_en_de", "softmax", *SHORT, **variables)
    run = out / "transformer_softmax_tiny.more.seed1"
    first = (run / "average.pt").read_bytes()
    recipe("train.sh", "multi30k_en_de", "softmax", *TINY, **{**variables, "UPDATES": "5"})
    log = (run / "train.log").read_text()
    assert re.search(r"Loaded checkpoint .*checkpoint_last.pt \(epoch \d+ @ 3 updates\)", log)
    assert (run / "trained").read_text() == "5\n"
    recipe("generate.sh", "multi30k_en_de", "softmax", *SHORT, **{**variables, "UPDATES": "5"})
    assert (run / "average.pt").read_bytes() != first


def test_other_settings_are_kept_apart(done, recipe):
    _, _, variables, _ = done("multi30k_en_de")
    out = variables["OUT"]
    said = recipe("train.sh", "multi30k_en_de", "rela_g", *TINY, fails=True, **{**variables, "LR": "1", "UPDATES": "4"})
    assert said == (
        f"train.sh: {out}/transformer_rela_g_tiny.seed1 was made with LR=0.005; "
        "remove it, or set TAG or OUT to keep both\n"
    )
    said = recipe("prepare.sh", "multi30k_en_de", fails=True, **{**variables, "PIECES": "99"})
    assert said == f"prepare.sh: {out} was made with PIECES=120; remove it, or set OUT to keep both\n"


# --- the paper's tables


def test_a_table_says_which_row_failed(done, recipe, path):
    out, _, variables, _ = done("multi30k_en_de")
    printed = recipe("paper/table3.sh", "multi30k_en_de", *TINY, **{**variables, "ATTENTIONS": "nonsense rela_g"})
    table = [row.split("\t") for row in lines(out / "paper/table3.tsv")]
    assert [row[0] for row in table] == ["", "nonsense", "rela_g"]
    assert table[0][1] == "BLEU" and set(table[1][1:]) == {"-"} and re.fullmatch(r"\d+\.\d", table[2][1])
    assert "\t".join(table[2]) in printed


def test_models_side_by_side(done, recipe):
    out, _, variables, _ = done("hansards_en_fr")
    recipe("paper/analysis.sh", "hansards_en_fr", *TINY, **{**variables, "ATTENTIONS": "rela_g", "SEEDS": "1"})
    assert (out / "paper/analysis/report.html").exists()
    heading, row = (row.split("\t") for row in lines(out / "paper/analysis.tsv"))
    assert row[0] == "rela_g" and {"tokenised BLEU", "AoL shifted", "AUROC"} < set(heading)


def test_table_1_has_13_rows(recipe, tmp_path):
    printed = recipe("paper/table1.sh", "wmt14_en_de", "--dry-run", OUT=tmp_path, SIZE="", SEEDS="1 2")
    found = re.findall(r"fairseq-train \S+ --user-dir \S+ --arch transformer_(\w+)_base .* --seed (\d)", printed)
    names = """softmax sparsemax entmax15 relu relu_rmsnorm rela_i rela_g rela_g_layernorm rela_g_gelu rela_g_leaky_relu
        rela_g_encoder_only rela_g_decoder_only rela_g_cross_only""".split()
    assert found == [(name, seed) for name in names for seed in "12"]
    assert printed.splitlines()[-1].endswith(f"> {tmp_path}/paper/table1.tsv")
    assert list(tmp_path.iterdir()) == []
    said = recipe("paper/table1.sh", "wmt14_en_de", "--dry-run", fails=True, OUT=tmp_path, ROWS="7 14")
    assert said == "table1.sh: ROWS: there is no row 14; give numbers from 1 to 13\n"


def test_speed(recipe, tmp_path):
    variables = {"OUT": tmp_path, "PIECES": "4000", "ATTENTIONS": "rela_g", "REPEATS": "1"}
    lengths = {"LENGTHS": "8", "FIGURE_LENGTHS": "4 8"}
    printed = recipe("paper/speed.sh", "multi30k_en_de", "--dry-run", **variables, **lengths).splitlines()
    model = "--attention rela_g --size tiny --vocabulary 4000"
    bench, paper = "env OMP_NUM_THREADS=1 fairseq-rela bench", tmp_path / "paper"

    def end(name):
        return f"--repeats 1 --device cpu --json {paper}/{name}.json > {paper}/{name}.txt"

    assert [line for line in printed if not line.startswith("#")] == [
        f"mkdir -p {paper}",
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


# --- what is run, and on what


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
        f"grep ^D- {run}/generate.log | sort -t- -k2 -n | cut -f3 > {run}/translation.fr",
        f"env SACREBLEU={tmp_path}/sacrebleu sacrebleu -t wmt14/full -l en-fr -i {run}/translation.fr "
        f"--format json --width 2 > {run}/bleu.json",
        f"sacremoses -q -l fr -j 1 tokenize -x < {run}/translation.fr > {run}/translation.fr.tok",
        f"sacremoses -q -l fr -j 1 tokenize -x < {tmp_path}/text/test.fr > {tmp_path}/text/test.fr.tok",
        f"sacrebleu {tmp_path}/text/test.fr.tok -i {run}/translation.fr.tok --tokenize none --force "
        f"--format json --width 2 > {run}/tokenized.json",
        f"python {ROOT}/examples/table.py score {run}",
    ]


@pytest.mark.parametrize("dataset", sorted(LAYOUTS))
def test_a_dry_run_does_nothing(recipe, tmp_path, dataset):
    out, cache = tmp_path / "out", tmp_path / "cache"
    variables = {**UNSET, "OUT": out, "CACHE_DIR": cache, "MIRROR": "http://127.0.0.1:9"}
    printed = recipe("prepare.sh", dataset, "--dry-run", **variables)
    fetched = re.findall(r"^curl .* --output (\S+?)'? '?http://127.0.0.1:9/(\S+?)'?$", printed, re.MULTILINE)
    text = original_archives.Text(tmp_path / "toy", dataset.split("_")[1:])
    assert sorted(path for _, path in fetched) == sorted(LAYOUTS[dataset](text))
    pieces = {"multi30k_en_de": 4000, "hansards_en_fr": 8000, "iwslt14_de_en": 10000}.get(dataset, 32000)
    assert f"/pieces/new {pieces} " in printed
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
        "train.sh: UPDATES=1e5 is no whole number\n",
        f"generate.sh: {tmp_path}/transformer_rela_g_tiny.seed1 has 0 of 3 updates; "
        "run 'bash examples/train.sh wmt14_en_de transformer_rela_g_tiny' first, or give UPDATES\n",
        "prepare.sh: DATA_DIR=nowhere is no directory\n",
    ]


# --- downloads


class Server(http.server.ThreadingHTTPServer):
    """Serves a directory, with ranges; `cut` ends an answer early, `ranges` are those that were asked for."""

    def __init__(self, directory):
        super().__init__(("127.0.0.1", 0), Handler)
        self.directory, self.cut, self.ranges, self.asked = directory, {}, [], []
        self.knows_ranges = True

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        file = self.server.directory / self.path[1:]
        if not file.is_file():
            return self.send_error(404)
        content, start = file.read_bytes(), 0
        if "Range" in self.headers and self.server.knows_ranges:
            self.server.ranges.append(self.headers["Range"])
            start = int(re.fullmatch(r"bytes=(\d+)-", self.headers["Range"])[1])
            if start >= len(content):
                return self.send_error(416)
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : self.server.cut.pop(file.name, None)])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path):
    with Server(tmp_path / "served") as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def test_an_interrupted_download_goes_on(recipe, server, tmp_path):
    original_archives.make("multi30k_en_de", server.directory, tmp_path / "toy")
    (tmp_path / "SHA256").write_text(original_archives.checksums(server.directory))
    variables = {"MIRROR": server.address, "CACHE_DIR": tmp_path / "cache", "OUT": tmp_path / "out"}
    variables["CHECKSUMS"] = tmp_path / "SHA256"
    url = f"{server.address}/raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"

    server.cut["train.de.gz"] = 100
    said = recipe("prepare.sh", "multi30k_en_de", fails=True, **variables)
    assert said.startswith(f"prepare.sh: {url}/train.de.gz: interrupted (") and "run this again to go on" in said
    cached = tmp_path / "cache" / url.split("/", 3)[3]
    assert (cached / "train.de.gz.part").stat().st_size == 100 and not (cached / "train.de.gz").exists()

    # what is there is not fetched again; the rest is; and what comes wrong is thrown away
    (server.directory / "raw.githubusercontent.com").rename(tmp_path / "aside")
    said = recipe("prepare.sh", "multi30k_en_de", fails=True, **variables)
    assert said.startswith(f"prepare.sh: {url}/train.de.gz: ") and "404" in said
    (tmp_path / "aside").rename(server.directory / "raw.githubusercontent.com")
    val = next(server.directory.rglob("val.en.gz"))
    right = val.read_bytes()
    val.write_bytes(gzip.compress(b"another text\n"))
    server.asked.clear()
    said = recipe("prepare.sh", "multi30k_en_de", fails=True, **variables)
    assert re.fullmatch(
        rf"prepare.sh: {url}/val.en.gz: its sha256 is \w{{64}}, the original's is \w{{64}}; "
        r"it was thrown away, run this again to fetch it anew\n",
        said,
    )
    assert server.ranges == ["bytes=100-"]
    assert [name.rpartition("/")[2] for name in server.asked] == ["train.de.gz", "val.en.gz"]
    assert not (cached / "val.en.gz").exists() and not (cached / "val.en.gz.part").exists()

    val.write_bytes(right)
    recipe("prepare.sh", "multi30k_en_de", **variables)
    assert (tmp_path / "out/data-bin/train.en-de.de.bin").exists()


def test_a_file_without_known_checksum_is_recorded_and_compared(recipe, server, tmp_path):
    original_archives.make("iwslt14_de_en", server.directory, tmp_path / "toy")
    archive = next(server.directory.rglob("de-en.tgz"))
    whole = archive.read_bytes()
    archive.write_bytes(whole[:-50])
    variables = {"MIRROR": server.address, "CACHE_DIR": tmp_path / "cache", "OUT": tmp_path / "out", "CHECKSUMS": ""}
    said = recipe("prepare.sh", "iwslt14_de_en", fails=True, **variables)
    assert said.endswith(
        "/de-en.tgz: gzip finds it truncated or corrupted; it was thrown away, run this again to fetch it anew\n"
    )

    archive.write_bytes(whole)
    part = tmp_path / "cache/dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz.part"
    part.write_bytes(b"x" * len(whole))  # as long as the whole, and wrong
    first = {**variables, "OUT": tmp_path / "first"}
    # some curls take "nothing is left to send" for done; then it is thrown away, and the next call fetches it
    with contextlib.suppress(AssertionError):
        recipe("prepare.sh", "iwslt14_de_en", **first)
    recipe("prepare.sh", "iwslt14_de_en", **first)
    cached = part.with_suffix("")
    assert cached.read_bytes() == whole

    cached.unlink()
    server.knows_ranges = False  # and the part that was left over cannot be gone on with
    part.write_bytes(whole[:10])
    recipe("prepare.sh", "iwslt14_de_en", **variables)
    assert cached.read_bytes() == whole and len(cached.with_suffix(".tgz.sha256").read_text()) == 65
    cached.write_bytes(gzip.compress(b"something else"))
    said = recipe("prepare.sh", "iwslt14_de_en", fails=True, **{**variables, "OUT": tmp_path / "another"})
    assert said.startswith(f"prepare.sh: {cached}: its sha256 is ") and said.endswith("; remove it to fetch it anew\n")


def test_files_of_data_dir_are_checked(recipe, tmp_path):
    original_archives.make("multi30k_en_de", tmp_path / "data", tmp_path / "toy")
    flat = tmp_path / "flat"  # without host and path, as one downloads them by hand
    flat.mkdir()
    for file in (tmp_path / "data").rglob("*.gz"):
        file.rename(flat / file.name)
    variables = {"DATA_DIR": flat, "OUT": tmp_path / "out"}
    said = recipe("prepare.sh", "multi30k_en_de", fails=True, **{**variables, "CHECKSUMS": ""})
    assert said.startswith(f"prepare.sh: {flat}/train.en.gz: its sha256 is ")
    assert said.endswith("; replace it, or give CHECKSUMS=none to use it as it is\n")
    (flat / "val.de.gz").write_bytes((flat / "val.de.gz").read_bytes()[:-9])
    said = recipe("prepare.sh", "multi30k_en_de", fails=True, **variables)
    assert said.startswith(f"prepare.sh: {flat}/val.de.gz: gzip finds it truncated or corrupted; ")
    (flat / "val.de.gz").unlink()
    said = recipe("prepare.sh", "multi30k_en_de", fails=True, **variables)
    assert said == (
        f"prepare.sh: {flat}/val.de.gz is missing; DATA_DIR must have it as it comes from "
        "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/val.de.gz\n"
    )


def test_lines_are_counted_where_no_checksum_is_known(recipe, tmp_path):
    original_archives.make("hansards_en_fr", tmp_path / "data", tmp_path / "toy")
    variables = {"DATA_DIR": tmp_path / "data", "OUT": tmp_path / "out", "CHECKSUMS": ""}
    said = recipe("prepare.sh", "hansards_en_fr", fails=True, **variables)
    assert said == (
        f"prepare.sh: {tmp_path}/out/text/gold.en has {GOLD} lines, the original has 447: "
        "fetch it anew, or give CHECKSUMS=none\n"
    )


# --- parallel_text.py


def parallel_text(*words):
    command = [sys.executable, str(ROOT / "examples/parallel_text.py"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(
    "source, said",
    [
        (b"a\n", "{target} does not: they are no translations"),
        (b"", "{target} does not"),
        (b"a\n\xe9\n", "{source}, line 2, is not utf-8"),
    ],
)
def test_text_that_is_not_parallel_is_named(tmp_path, source, said):
    files = {"source": tmp_path / "x.en", "target": tmp_path / "x.fr"}
    files["source"].write_bytes(source)
    files["target"].write_bytes(b"b\nc\n")
    done = parallel_text("extract", "--langs", "en", "fr", "--out", tmp_path / "out", *files.values())
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert said.format(**files) in done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.en", "x.fr"]


def test_pairs_that_are_left_out(tmp_path):
    (tmp_path / "x.en").write_text("a b\n\na b c d\nseen\nkept  too\n")
    (tmp_path / "x.fr").write_text("A\nB\nA\nvu\nà\u2028 part\n", encoding="utf-8")
    (tmp_path / "y.en").write_text("seen\n")
    (tmp_path / "y.fr").write_text("vu\n")
    flags = f"--langs en fr --min-words 1 --max-ratio 2 --unlike {tmp_path}/y --out {tmp_path}/out".split()
    done = parallel_text("extract", *flags, tmp_path / "x.en", tmp_path / "x.fr")
    assert done.stdout == f"{tmp_path}/out: 2 of 5 pairs\n"
    assert pairs(tmp_path / "out", ("en", "fr")) == [("a b", "A"), ("kept too", "à part")]


# --- results on real text


def test_results_from_trials_to_figures(done, recipe, tmp_path):
    """All steps on a few sentences: rows for each run, and nothing is trained twice."""
    _, _, variables, _ = done("hansards_en_fr")
    rule = re.compile(r"[|-]+")
    filled = lines(ROOT / "examples/RESULTS.md")
    headings = {place - 1 for place, line in enumerate(filled) if rule.fullmatch(line)}
    empty = [line for i, line in enumerate(filled) if i in headings or rule.fullmatch(line) or line[:1] != "|"]
    results = tmp_path / "RESULTS.md"
    results.write_text("\n".join(empty) + "\n", encoding="utf-8")
    variables = {**variables, "RESULTS": results, "TRIAL_UPDATES": "1", "UPDATES": "2", "ATTENTIONS": "softmax rela_g"}
    variables["BEAM"] = "1"  # a model that has learnt nothing goes on to the longest length
    settings = ["lr0.005-drop0.1", "lr0.005-prenorm"]
    variables["SETTINGS"] = " ".join(settings)
    printed = recipe("results.sh", "hansards_en_fr", "trials", "runs", "scores", "figures", **variables)
    assert re.search(r"rela_g, best first: lr0\.005-\S+ lr0\.005-\S+\n", printed)

    by_width = {}
    for line in lines(results):
        if line.startswith("| hansards"):
            row = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            by_width.setdefault(len(row), []).append(row)
    trials, runs, scores, attention = (by_width[width] for width in (6, 9, 10, 15))
    assert [row[1:3] for row in trials] == [[a, s] for a in ("softmax", "rela_g") for s in settings]
    assert "NORM=post DROPOUT=0.1 ATTENTION_DROPOUT=0.1" in trials[0][3]
    assert "NORM=pre DROPOUT=0.1 ATTENTION_DROPOUT=0.0" in trials[1][3]
    assert [row[1] for row in runs] == [row[1] for row in scores] == [row[1] for row in attention]
    assert runs[0][1:5] == ["softmax", "lr0.005-prenorm", "1", "2"] and "tok:none" in runs[0][8]
    assert scores[0][6] == "-" and 0 < float(scores[1][6]) <= 1, "the first is compared with nothing"
    assert attention[0][6] == "0.0" and float(attention[1][6]) > 0, "zeros of cross attention"
    for figure in ("sparsity", "alignment", "diversity", "null_rate"):
        assert (tmp_path / f"figures/hansards_en_fr-{figure}.png").stat().st_size > 1000

    again = recipe("results.sh", "hansards_en_fr", "trials", "runs", **variables)
    assert again.count("trained before") == 6 and "translate the test set" not in again
    before = lines(results)
    recipe("results.sh", "hansards_en_fr", "runs", **{**variables, "ATTENTIONS": "softmax", "SETTING": settings[0]})
    added = [line for line in lines(results) if line not in before]
    assert len(added) == 2 and set(before) < set(lines(results)), "another setting adds rows and replaces none"


def test_results_are_kept_for_two_sets(recipe, tmp_path):
    said = [
        recipe("results.sh", "wmt14_en_de", fails=True, OUT=tmp_path),
        recipe("results.sh", "multi30k_en_de", "trail", fails=True, OUT=tmp_path),
    ]
    assert said == [
        "results.sh: no results are kept for wmt14_en_de; known are hansards_en_fr multi30k_en_de\n",
        "results.sh: unknown step 'trail'; known are trials runs scores figures eflomal\n",
    ]
    printed = recipe("results.sh", "multi30k_en_de", "--dry-run", OUT=tmp_path, RESULTS=tmp_path / "R.md")
    assert printed.count("fairseq-train ") == 16 and printed.count("fairseq-generate ") == 12
    assert list(tmp_path.iterdir()) == []
