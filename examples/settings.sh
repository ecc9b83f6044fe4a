# shellcheck shell=bash disable=SC2034
# Every setting of the recipes with its default. A variable of the environment comes first, then datasets/DATASET.sh,
# then what stands here. The defaults are those of the paper's base model where it gives them. Each says where it is from:
#   paper          Section 5, "Settings" and "Model Configuration"
#   authors' code  github.com/bzhangGo/zero; the paper does not say
#   ours           neither of them

# --- text
PIECES=${PIECES:-32000}            # ours: 32,000 sentencepiece BPE pieces for both languages. The paper has 32K BPE merges,
                                   # which give a different vocabulary of a similar size.
COVERAGE=${COVERAGE:-1.0}          # ours: share of the characters that get a piece
EMBEDDINGS=${EMBEDDINGS:-decoder}  # authors' code: the decoder's input and output share embeddings; or all
MAX_PIECES=${MAX_PIECES:-256}      # authors' code (max_len=256). Ours: pairs with a longer side are left out of the
                                   # training data
SAMPLE=${SAMPLE:-}                 # draw "TRAIN VALID TEST" pairs at random
MIN_WORDS=${MIN_WORDS:-1} MAX_WORDS=${MAX_WORDS:-} MAX_RATIO=${MAX_RATIO:-}  # which pairs to train on
EXTRA_TRAIN=${EXTRA_TRAIN:-}       # PREFIX of more text to train on: PREFIX.en and PREFIX.de
CORPUS=${CORPUS:-}                 # flags of fairseq-rela toy-corpus
CHECKSUMS=${CHECKSUMS:-}           # none, or a file to compare with instead of the data set's own checksums
CACHE_DIR=${CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/fairseq-rela}
WORKERS=${WORKERS:-1}              # processes of fairseq-preprocess

# --- model
SIZE=${SIZE:-base}                 # paper: d 512, 8 heads, 6+6 layers, FFN 2048
NORM=${NORM:-post}                 # authors' code: layer norm after each sublayer (post), or before it (pre)

# --- training
LR=${LR:-0.0007}                   # paper: the schedule of Vaswani et al. (2017); 512^-0.5 × 4000^-0.5 at its peak
WARMUP=${WARMUP:-4000}             # paper
UPDATES=${UPDATES:-300000}         # authors' code
DROPOUT=${DROPOUT:-0.1}            # paper: residual connections; in fairseq, and in the authors' code, embeddings, too
ATTENTION_DROPOUT=${ATTENTION_DROPOUT:-0.1}          # paper: attention weights
WEIGHT_DECAY=${WEIGHT_DECAY:-0.0}                    # authors' code
TOKENS_PER_UPDATE=${TOKENS_PER_UPDATE:-25000}        # paper: about 25K target tokens. fairseq's --max-tokens counts the
                                   # longer side of a batch with its padding, so an update has fewer target tokens.
MAX_TOKENS=${MAX_TOKENS:-6250}     # ours: of one batch on one device
export PRODUCTS=${PRODUCTS:-}      # ours: onednn for oneDNN's matrix products on a CPU (onednn.py), else torch's own choice
SEED=${SEED:-1}
# authors' code: every 5,000 updates; ours: ten times in a short training
SAVE_INTERVAL=${SAVE_INTERVAL:-$((UPDATES / 10 < 5000 ? (UPDATES / 10 > 0 ? UPDATES / 10 : 1) : 5000))}

# --- translation
AVERAGE=${AVERAGE:-5}              # paper: the last 5 checkpoints
KEEP=${KEEP:-$AVERAGE}             # checkpoints that training keeps; -1 keeps all, so that AT can go back to any of them
AT=${AT:-}                         # translate and analyse the model as it was at this update; results go to RUN/atN
BEAM=${BEAM:-4}                    # paper
LENPEN=${LENPEN:-0.6}              # paper. fairseq divides a score by length^0.6, the authors' code by
                                   # ((5 + length) / 6)^0.6: the same number, a different penalty.
