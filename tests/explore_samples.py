"""Checkpoints and dictionaries for the tests of the live explorer: as fairseq-train writes them, but not trained."""

HOSTILE = ["<script>alert(1)</script>", "<img", "src=x", "onerror=alert(1)>", "שלום", "&lt;b&gt;"]
WORDS = [f"w{i}" for i in range(20)] + HOSTILE
SIZE = "embed-dim=16 ffn-embed-dim=32 layers=2 attention-heads=2".split()


def write_data(directory, words=WORDS, names=("dict.src.txt", "dict.tgt.txt", "dict.txt")):
    """A directory with dictionaries, for translation and for language models."""
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).write_text("".join(f"{word} 1\n" for word in words), encoding="utf-8")
    return directory


def write_checkpoint(path, data, arch="transformer_rela_g", *flags, seed=1, size=SIZE):
    """A newly initialised model as a checkpoint of fairseq, of two layers with two heads unless `size` is empty."""
    import torch
    from fairseq import options, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from omegaconf import OmegaConf

    import fairseq_rela.models
    import fairseq_rela.tasks  # noqa: F401

    words = [str(data), "--arch", arch, *flags]
    if "lm" in arch:
        words += ["--task", "language_modeling", *(f"--decoder-{each}" for each in size)]
        words += ["--decoder-input-dim=16", "--decoder-output-dim=16", "--tokens-per-sample=64"]
    else:
        words += ["-s", "src", "-t", "tgt"]
        if arch.startswith("transformer"):
            words += [f"--{side}-{each}" for side in ("encoder", "decoder") for each in size]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
    torch.manual_seed(seed)
    model = tasks.setup_task(cfg.task).build_model(cfg.model)
    history = [{"criterion_name": "c", "optimizer_name": "o", "lr_scheduler_state": {}, "num_updates": 1}]
    checkpoint = {
        "args": None,
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "model": model.state_dict(),
        "optimizer_history": history,
        "last_optimizer_state": None,
        "extra_state": {"train_iterator": {"epoch": 1}},
        "task_state": {},
    }
    torch.save(checkpoint, path)
    return path
