"""Small files laid out like the data sets' original archives, made of a corpus by rule.

Every name and form is written out here as the originals have it, so that a recipe that looks elsewhere fails.
"""

import gzip
import hashlib
import html
import io
import tarfile

from fairseq_rela.cli import main as fairseq_rela

TRAIN, VALID, TEST, GOLD = 96, 8, 12, 8


class Text:
    """Sentence pairs to give away: `take(n)` gives the next n, and remembers them under a split's name."""

    def __init__(self, directory, dataset):
        total = TRAIN + VALID + TEST + GOLD
        sizes = ["--train", str(total), "--valid", "0", "--test", "0", "--lexicon", "50", "--max-clauses", "1"]
        assert fairseq_rela(["toy-corpus", str(directory), *sizes]) == 0
        files = (directory / f"train.{suffix}" for suffix in ("src", "tgt", "align"))
        source, target, self.links = (file.read_text().splitlines() for file in files)
        if dataset == "hansards_en_fr":  # what Latin-1 and UTF-8 write differently
            target = [line.replace("e", "é") for line in target]
        if dataset == "multi30k_bpe_en_de":  # which comes in pieces
            source, target = ([in_pieces(line) for line in side] for side in (source, target))
        self.pairs = list(zip(source, target))
        self.langs = dataset.split("_")[-2:]
        self.next = 0
        self.splits = {}

    def take(self, split, count):
        sentences = self.pairs[self.next : self.next + count]
        self.splits.setdefault(split, []).extend(sentences)
        self.next += count
        return {lang: [pair[side] for pair in sentences] for side, lang in enumerate(self.langs)}


def in_pieces(line):
    """The words with more than two letters in two pieces: "wo@@ rds"."""
    return " ".join(word if len(word) < 3 else f"{word[:2]}@@ {word[2:]}" for word in line.split())


def plain(lines, encoding="utf-8"):
    return "".join(f"{line}\n" for line in lines).encode(encoding)


def zipped(lines):
    return gzip.compress(plain(lines))


def sgm(lines, kind="src", name="newstest"):
    rows = [f'<seg id="{i}">{line}</seg>' for i, line in enumerate(lines, 1)]
    rows[0] = rows[0].replace(">", "> ", 1).replace("</", " </")  # IWSLT has spaces there
    head = f'<{kind}set setid="{name}" srclang="any">', '<doc sysid="ref" docid="a" genre="news" origlang="en">', "<p>"
    return plain([*head, *rows, "</p>", "</doc>", f"</{kind}set>"])


def iwslt_tags(lines):
    """A title, a description, and the rest as the talk."""
    tags = ["<url>http://www.ted.com/talks/a.html</url>", "<keywords>talks, a</keywords>", "<talkid>1</talkid>"]
    return plain([*tags, f"<title>{lines[0]}</title>", f"<description>{lines[1]}</description>", *lines[2:]])


def tmx(both):
    units = []
    for pair in zip(*both.values()):
        variants = [f'<tuv xml:lang="{lang}"><seg>{html.escape(line)}</seg></tuv>' for lang, line in zip(both, pair)]
        units += ["<tu>", *variants, "</tu>"]
    head = ['<?xml version="1.0" encoding="utf-8"?>', '<tmx version="1.4">', "<body>"]
    return zipped([*head, *units, "</body>", "</tmx>"])


def tar(members, mode="w:gz"):
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode=mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return written.getvalue()


def both(pattern, lines, form=plain, **options):
    """{lang} in the pattern is each language."""
    return {pattern.format(lang=lang): form(sentences, **options) for lang, sentences in lines.items()}


def sgm_pair(pattern, lines):
    """A test set of WMT: `src` and `ref`."""
    return {
        pattern.format(f"{kind}.{lang}"): sgm(sentences, kind)
        for (lang, sentences), kind in zip(lines.items(), ("src", "ref"))
    }


STATMT, DATA = "www.statmt.org", "data.statmt.org"
DEV = f"{DATA}/wmt19/translation-task/dev.tgz"


def wmt14(text, pair):
    europarl, crawl, commentary = (text.take("train", count) for count in (32, 32, 16))
    return {
        f"{STATMT}/wmt13/training-parallel-europarl-v7.tgz": tar(
            {"training/europarl-v7.cs-en.cs": b"x\n", **both(f"training/europarl-v7.{pair}.{{lang}}", europarl)}
        ),
        f"{STATMT}/wmt13/training-parallel-commoncrawl.tgz": tar(both(f"commoncrawl.{pair}.{{lang}}", crawl)),
        f"{STATMT}/wmt14/training-parallel-nc-v9.tgz": tar(
            both(f"training/news-commentary-v9.{pair}.{{lang}}", commentary)
        ),
        DEV: tar(both("dev/newstest2013.{lang}", text.take("valid", VALID))),
        f"{STATMT}/wmt14/test-full.tgz": tar(
            sgm_pair(f"test-full/newstest2014-{pair.replace('-', '')}-{{}}.sgm", text.take("test", TEST))
        ),
    }


def wmt14_en_de(text):
    return wmt14(text, "de-en")


def wmt14_en_fr(text):
    files = wmt14(text, "fr-en")
    un = tar(both("un/undoc.2000.fr-en.{lang}", text.take("un", 8)))
    giga = tar(both("giga-fren.release2.fixed.{lang}.gz", text.take("giga", 8), zipped), "w")
    crawl_and_europarl, commentary = text.splits["train"][:64], text.splits["train"][64:]
    text.splits["train"] = crawl_and_europarl + text.splits.pop("un") + commentary + text.splits.pop("giga")
    return {
        **files,
        f"{STATMT}/wmt13/training-parallel-un.tgz": un,
        f"{STATMT}/wmt10/training-giga-fren.tar": giga,
    }


def wmt18_en_fi(text):
    crawl = "paracrawl-release1.en-fi.zipporah0-dedup-clean"
    europarl, paracrawl, rapid, titles = (text.take("train", count) for count in (32, 32, 16, 16))
    return {
        f"{DATA}/wmt18/translation-task/training-parallel-ep-v8.tgz": tar(
            both("training/europarl-v8.fi-en.{lang}", europarl)
        ),
        f"s3.amazonaws.com/web-language-models/paracrawl/release1/{crawl}.tgz": tar(both(crawl + ".{lang}", paracrawl)),
        f"{DATA}/wmt18/translation-task/rapid2016.tgz": tar(both("rapid2016.en-fi.{lang}", rapid)),
        f"{STATMT}/wmt15/wiki-titles.tgz": tar(
            {"wiki/fi-en/titles.fi-en": plain(f"{fi} ||| {en}" for fi, en in zip(titles["fi"], titles["en"]))}
        ),
        DEV: tar(sgm_pair("dev/newstest2017-enfi-{}.sgm", text.take("valid", VALID))),
        f"{DATA}/wmt18/translation-task/test.tgz": tar(
            sgm_pair("test/newstest2018-enfi-{}.sgm", text.take("test", TEST))
        ),
    }


def wmt18_zh_en(text):
    commentary = both("training-parallel-nc-v13/news-commentary-v13.zh-en.{lang}", text.take("train", 48))
    return {
        f"{DATA}/wmt18/translation-task/training-parallel-nc-v13.tgz": tar(commentary),
        "storage.googleapis.com/tfds-data/downloads/uncorpus/UNv1.0.en-zh.tar.gz": tar(
            both("en-zh/UNv1.0.en-zh.{lang}", text.take("train", 48))
        ),
        DEV: tar(sgm_pair("dev/newstest2017-zhen-{}.sgm", text.take("valid", VALID))),
        f"{DATA}/wmt18/translation-task/test.tgz": tar(
            sgm_pair("test/newstest2018-zhen-{}.sgm", text.take("test", TEST))
        ),
    }


def wmt16_ro_en(text):
    europarl = both("training-parallel-ep-v8/europarl-v8.ro-en.{lang}", text.take("train", 64))
    return {
        f"{DATA}/wmt16/translation-task/training-parallel-ep-v8.tgz": tar(europarl),
        "object.pouta.csc.fi/OPUS-SETIMES/v2/tmx/en-ro.tmx.gz": tmx(text.take("train", 32)),
        DEV: tar(sgm_pair("dev/newsdev2016-roen-{}.sgm", text.take("valid", VALID))),
        f"{DATA}/wmt16/translation-task/test.tgz": tar(
            sgm_pair("test/newstest2016-roen-{}.sgm", text.take("test", TEST))
        ),
    }


def iwslt14_de_en(text):
    members = both("de-en/train.tags.de-en.{lang}", text.take("all", TRAIN), iwslt_tags)
    for name in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"):
        count = 4 if name == "TED.dev2010" else 2
        members.update(both(f"de-en/IWSLT14.{name}.de-en.{{lang}}.xml", text.take("test", count), sgm))
    everything = text.splits.pop("all")
    text.splits["valid"] = everything[22::23]
    text.splits["train"] = [pair for i, pair in enumerate(everything) if i % 23 != 22]
    return {"dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz": tar(members)}


def multi30k_en_de(text):
    base = "raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
    splits = {"train": ("train", TRAIN), "val": ("valid", VALID), "test_2016_flickr": ("test", TEST)}
    files = {}
    for name, (split, count) in splits.items():
        files.update(both(f"{base}/{name}.{{lang}}.gz", text.take(split, count), zipped))
    return files


def multi30k_bpe_en_de(text):
    base = "raw.githubusercontent.com/LividWo/Revisit-MMT/master/data/multi30k-en-de"
    files = {}
    for name, count in {"train": TRAIN, "valid": VALID, "test.2016": TEST}.items():
        files.update(both(f"{base}/{name}.{{lang}}", text.take(name.split(".")[0], count)))
    return files


def hansards_en_fr(text):
    base = "web.eecs.umich.edu/~mihalcea/wpt/data"
    training = {}
    for part in (2, 1):  # not in order of their names, and each language apart
        for lang, lines in text.take("all", TRAIN // 2).items():
            name = f"English-French/training/hansard.36.1.house.debates.00{part}.{ {'en': 'e', 'fr': 'f'}[lang] }"
            training[name] = plain(lines, "latin-1")
    first = text.next
    test = {}
    for lang, lines in text.take("gold", GOLD).items():
        rows = [f"<s snum={i:04d}> {line} </s>" for i, line in enumerate(lines, 1)]
        test[f"English-French/test/test.{ {'en': 'e', 'fr': 'f'}[lang] }"] = plain(rows, "latin-1")
    links, text.gold_links = [], []
    for number in range(GOLD):  # from 1; the last of a sentence is possible, not sure
        pairs = [tuple(int(i) + 1 for i in link.split("-")) for link in text.links[first + number].split()]
        kinds = ["S"] * (len(pairs) - 1) + ["P"]
        links += [f"{number + 1:04d} {i} {j} {kind}" for (i, j), kind in zip(pairs, kinds)]
        text.gold_links.append(" ".join(f"{i}{'-' if kind == 'S' else 'p'}{j}" for (i, j), kind in zip(pairs, kinds)))
    test["English-French/answers/test.wa.nonullalign"] = plain(links)
    return {
        f"{base}/English-French.training.tar.gz": tar(training),
        f"{base}/English-French.test.tar.gz": tar(test),
    }


LAYOUTS = {
    layout.__name__: layout
    for layout in (
        wmt14_en_de, wmt14_en_fr, wmt18_en_fi, wmt18_zh_en, wmt16_ro_en,
        iwslt14_de_en, multi30k_en_de, multi30k_bpe_en_de, hansards_en_fr,
    )
}  # fmt: skip


def make(dataset, directory, text_directory):
    """Write the data set's files under `directory`, by host and path; what was put into them."""
    text = Text(text_directory, dataset)
    for path, content in LAYOUTS[dataset](text).items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return text


def checksums(directory):
    """Like sha256sum's output."""
    files = sorted(file for file in directory.rglob("*") if file.is_file())
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
