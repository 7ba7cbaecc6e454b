#!/bin/bash
# Runs groups of GPU benchmarks in sequence; benchmarks of a group that need one GPU each run on two GPUs in parallel.
#
#   DATASET=DIR TOKENIZER=DIR MINILM=DIR CACHE=DIR OUT=DIR bash benchmarks/all_gpu.sh [GROUP ...]
#
# DATASET holds train-v1.1.json.gz and dev-v1.1.json.gz, TOKENIZER an uncased BERT's tokenizer, MINILM the weights of
# all-MiniLM-L6-v2 (recipe and quality only). Each benchmark has its own time limit, so that a hanging one does not block
# the others. Results are written to OUT as they are measured.
set -u
: "${DATASET:?}" "${TOKENIZER:?}" "${CACHE:?}" "${OUT:?}"
mkdir -p "$CACHE" "$OUT"
train=$DATASET/train-v1.1.json.gz
dev=$DATASET/dev-v1.1.json.gz
half=$(($(nproc) / 2))

measure() { # SECONDS MODULE RESULTS [OPTION ...]
    seconds=$1 module=$2 results=$3
    shift 3
    timeout -k 10 "$seconds" python3 -m "benchmarks.$module" --tokenizer "$TOKENIZER" --cache "$CACHE" \
        --results "$OUT/$results.json" "$@" || echo "FAILED $module ($?)"
}

on_both_gpus() { # SECONDS MODULE RESULTS [OPTION ...], on both GPUs
    seconds=$1 module=$2 results=$3
    shift 3
    timeout -k 10 "$seconds" torchrun --standalone --nproc-per-node 2 -m "benchmarks.$module" --tokenizer "$TOKENIZER" \
        --cache "$CACHE" --results "$OUT/$results.json" "$@" || echo "FAILED $module ($?)"
}

on_card() { # GPU COMMAND ..., with half of the cores
    local card=$1
    shift
    taskset -pc "$((card * half))-$((card * half + half - 1))" "$BASHPID" >/dev/null
    export CUDA_VISIBLE_DEVICES=$card
    "$@"
}

in_parallel() { # COMMAND ... -- COMMAND ...: the first on GPU 0, the second on GPU 1
    local first=()
    while [ "$1" != -- ]; do
        first+=("$1")
        shift
    done
    shift
    (on_card 0 "${first[@]}") &
    (on_card 1 "$@") &
    wait
}

[ $# -gt 0 ] || set -- speed scaling parts saving resize memory recipe quality
for group in "$@"; do
    echo "== $group $(date +%T)"
    case $group in
    speed)
        in_parallel measure 330 training.train_speed speed-24 --squad "$train" --batch-sizes 24 --seconds 1.5 --ready-within 110 -- \
            measure 330 training.train_speed speed-96 --squad "$train" --batch-sizes 96 --seconds 1.5 --ready-within 110
        ;;
    # Weak and strong scaling separately: all variants of both need more memory than two GPUs have.
    scaling)
        measure 170 training.scaling scaling-weak --squad "$train" --strong 0 --ready-within 110
        measure 170 training.scaling scaling-strong --squad "$train" --weak 0 --ready-within 110
        ;;
    # Cost of reducing gradients on two GPUs: our reducer, DDP's, none, smaller buckets, and FSDP.
    parts)
        measure 60 training.step_parts parts-24 --squad "$train"
        for variant in ddp "ddp --exchange ddp" "ddp --exchange none" "ddp --bucket-mib 25" fsdp; do
            # shellcheck disable=SC2086 # a strategy and options
            on_both_gpus 60 training.step_parts "parts-48-${variant//[ -]/}" --squad "$train" --batch-size 48 --parallel $variant
        done
        timeout -k 10 45 torchrun --standalone --nproc-per-node 2 -m benchmarks.training.ceilings --results "$OUT/ceilings.json" ||
            echo "FAILED ceilings ($?)"
        ;;
    saving)
        in_parallel measure 140 checkpoints.save_stall stall-1 --squad "$train" --saves 12 -- measure 100 training.evaluation_speed evaluation-base \
            --squad "$train" --dev "$dev"
        for parallel in ddp fsdp; do
            on_both_gpus 140 checkpoints.save_stall "stall-$parallel-2" --squad "$train" --batch-size 48 --parallel "$parallel" --saves 12
        done
        ;;
    resize)
        measure 240 checkpoints.resize resize --squad "$train"
        ;;
    memory)
        measure 150 memory.bert_large memory --squad "$train" --limit 40
        ;;
    recipe)
        measure 290 quality.recipe_time recipe --dataset "$DATASET" --parallel none
        ;;
    quality)
        measure 540 quality.parity quality --dataset "$DATASET" --model "${MINILM:?}" --limit 500
        ;;
    # Time of the recipe on one GPU, quality runs of both trainers on the other.
    recipe-and-quality)
        in_parallel measure 400 quality.recipe_time recipe --dataset "$DATASET" --parallel none -- \
            measure 400 quality.parity quality --dataset "$DATASET" --model "${MINILM:?}" --limit 370 --cards 1 1
        ;;
    *)
        echo "no group $group" >&2
        exit 2
        ;;
    esac
done
echo "== done $(date +%T)"
