#!/usr/bin/env bash
# Which start learns best from noisy labels of real X-rays? The runs behind docs/pretraining.md.
#
#   NIH_ROOT=nih OPENI_ROOT=openi GOOGLE_ROOT=nih-google evidence/studies/pretrain_trial.sh OUTPUT
#   cp OUTPUT/pretrain.jsonl.gz results/ && cp OUTPUT/heat-maps.csv results/pointing.csv
#   python -m evidence.records && python -m evidence.pages
#
# Start weights are made first, once for all runs. Every run is recorded as soon as it is finished, so that a trial that is
# cut short keeps what it has, and the same command goes on. Variables:
# On one H200 with 16 processes under MPS, main and densenet take about 6 minutes for two seeds after 1 to 2 for the
# weights; other seeds may follow in another call.
#   PARTS   of: main (4 starts x 4 noises x 3 methods), densenet (from scratch against phantoms), variants (which
#           phantoms), amount (how many, how often), sizes (128 px; larger ones need larger sources than these), self
#           (own images without labels, and on top of phantoms), pointing (do heat maps point at what was drawn?);
#           by default "main densenet"
#   METHODS of main, by default "bce bomd bomd-plus"     AMOUNTS of amount, by default all
#   SEEDS   by default 0,1                JOBS   runs at once, by default 16
#   LIMIT   seconds for the runs of all parts together, by default 420
#   COUNT   phantoms instead of the usual number, and PASSES over them; for a quick try
#   EXTRA   further options for every run, such as "--set fit.epochs=1"
#   BOMD    the command, by default bomd  WORK   where runs and weights go, by default OUTPUT/work
#   PYTHON  which finds the package evidence, by default python
set -u
OUTPUT=${1:?name a folder for the records}
BOMD=${BOMD:-bomd} PYTHON=${PYTHON:-python} PARTS=${PARTS:-main densenet} SEEDS=${SEEDS:-0,1} JOBS=${JOBS:-16}
LIMIT=${LIMIT:-420} METHODS=${METHODS:-bce bomd bomd-plus}
EXTRA=${EXTRA:-} COUNT=${COUNT:-} PASSES=${PASSES:-1} WORK=${WORK:-$OUTPUT/work}
mkdir -p "$OUTPUT" "$WORK/starts"
export BOMD_CACHE=${BOMD_CACHE:-$WORK/cache}
ROOTS=(--set "train.root=${NIH_ROOT:-data/nih}" --set "test.openi.root=${OPENI_ROOT:-data/openi}"
  --set "test.google.root=${GOOGLE_ROOT:-data/nih-google}" --set "test.google.images_root=${NIH_ROOT:-data/nih}")
FEW=() && [ -n "$COUNT" ] && FEW=(--count "$COUNT" --epochs "$PASSES")

NONE='noise.kind=none'
LIGHT='noise.kind=symmetric noise.rows=0.2 noise.labels=0.2'
HEAVY='noise.kind=symmetric noise.rows=0.4 noise.labels=0.4'
MINED='noise.kind=report_mining noise.share=0.2'

asked() { case " $PARTS " in *" $1 "*) true ;; *) false ;; esac; }
say() { echo "$(date +%T) $*"; }

# start NAME BACKBONE WEIGHTS OPTIONS...: make weights in the background, in a folder whose name the records keep.
start() {
  local name=$1 backbone=$2 weights=$3 && shift 3
  [ -e "$WORK/starts/$name/model.json" ] && return
  rm -rf "${WORK:?}/starts/$name"
  # Of an option that is given twice the last counts.
  $BOMD pretrain "$backbone" --weights "$weights" --size 64 "$@" "${FEW[@]}" -o "$WORK/starts/$name" \
    >"$OUTPUT/start-$name.log" 2>&1 &
}

say "starts"
if asked main || asked variants || asked self || asked pointing; then
  start imagenet+phantom efficientnet_lite0 imagenet+phantom
fi
asked main && start phantom efficientnet_lite0 phantom
asked densenet && start densenet-phantom densenet121 phantom
if asked variants; then
  start imagenet+phantom-plain efficientnet_lite0 imagenet+phantom --hospitals north,south
  start imagenet+phantom-varied efficientnet_lite0 imagenet+phantom --hospitals varied
fi
if asked variants || asked pointing; then
  start imagenet+phantom-place efficientnet_lite0 imagenet+phantom --targets severity,place
fi
AMOUNTS=${AMOUNTS:-16k-2 30k-3 120k-1 360k-1} # the first is what a CPU makes; the usual one of a GPU is 120k-3
if asked amount; then
  for amount in $AMOUNTS; do
    start "imagenet+phantom-$amount" efficientnet_lite0 imagenet+phantom --count "${amount%k-*}000" --epochs "${amount#*-}"
  done
fi
asked sizes && start imagenet+phantom-128px efficientnet_lite0 imagenet+phantom --size 128
wait
for log in "$OUTPUT"/start-*.log; do [ -e "$log" ] && say "$(tail -n 3 "$log" | tr '\n' ' ')"; done

# Without COUNT, runs ask for starts by name, which finds what was just made.
named() { if [ -n "$COUNT" ]; then echo "$WORK/starts/$1"; else echo "$1"; fi; }

# runs PART JOBS METHODS CELLS...: in the background.
runs() {
  local part=$1 jobs=$2 methods=$3 && shift 3
  local cells=()
  for cell in "$@"; do cells+=(--cell "$cell"); done
  # shellcheck disable=SC2086 # EXTRA and BOMD are lists of words
  timeout "$LIMIT" $BOMD benchmark nih-64 --methods "$methods" "${cells[@]}" "${ROOTS[@]}" --seeds "$SEEDS" --jobs "$jobs" \
    --no-report --runs "$WORK/runs" --results "$OUTPUT/$part.jsonl" $EXTRA >"$OUTPUT/$part.log" 2>&1 &
}

# Methods run beside one another, each with its share of the processes, so that a trial that is cut short lacks no method.
share() { echo $((JOBS * $1 / 16 > 0 ? JOBS * $1 / 16 : 1)); }
say "runs"
if asked main; then
  cells=()
  for noise in "$NONE" "$LIGHT" "$HEAVY" "$MINED"; do
    for weights in none imagenet; do cells+=("fit.weights=$weights $noise"); done
    for weights in phantom imagenet+phantom; do cells+=("fit.weights=$(named $weights) $noise"); done
  done
  for method in $METHODS; do
    case $method in bce) parts=2 ;; bomd) parts=5 ;; *) parts=7 ;; esac
    runs "main-$method" "$(share $parts)" "$method" "${cells[@]}"
  done
fi
if asked densenet; then
  runs densenet "$(share 2)" bce "fit.backbone=densenet121 fit.weights=none $NONE" "fit.backbone=densenet121 fit.weights=none $HEAVY" \
    "fit.backbone=densenet121 fit.weights=$WORK/starts/densenet-phantom $NONE" \
    "fit.backbone=densenet121 fit.weights=$WORK/starts/densenet-phantom $HEAVY"
fi
# with_starts SETTINGS STARTS...: sets cells, each start without noise and with much.
with_starts() {
  local settings=$1 && shift
  cells=()
  for weights in "$@"; do cells+=("$settings fit.weights=$weights $NONE" "$settings fit.weights=$weights $HEAVY"); done
}
if asked variants; then
  with_starts "" "$WORK"/starts/imagenet+phantom-{plain,varied,place}
  runs variants "$(share 4)" bce "${cells[@]}"
fi
if asked amount; then
  # shellcheck disable=SC2086 # names without spaces
  with_starts "" $(printf "$WORK/starts/imagenet+phantom-%s " $AMOUNTS)
  runs amount "$(share 6)" bce "${cells[@]}"
fi
if asked sizes; then
  with_starts images.size=128 imagenet "$WORK/starts/imagenet+phantom-128px"
  runs sizes "$(share 4)" bce "${cells[@]}"
fi
if asked self; then
  starts=(imagenet+self) && [ -z "$COUNT" ] && starts+=(imagenet+phantom+self) # which runs put on the usual start
  with_starts "" "${starts[@]}"
  runs self "$(share 4)" bce "${cells[@]}"
fi
wait
if asked pointing; then # after the others, which may have made the same runs
  with_starts "" imagenet "$(named imagenet+phantom)" "$WORK/starts/imagenet+phantom-place"
  runs pointing "$JOBS" bce "${cells[@]}"
  wait
  say "heat maps"
  timeout "$LIMIT" $PYTHON -m evidence.studies.pointing "$WORK"/starts/imagenet+phantom{,-place} "$WORK/runs/nih-64/bce" \
    --starts imagenet,imagenet+phantom,imagenet+phantom-place --size 64 --count "${COUNT:-600}" \
    --summary "$OUTPUT/heat-maps.csv" >"$OUTPUT/heat-maps.log" 2>&1
fi
say "records"
parts=()
for records in "$OUTPUT"/{main-*,densenet,variants,amount,sizes,self,pointing}.jsonl; do [ -e "$records" ] && parts+=("$records"); done
[ ${#parts[@]} -gt 0 ] && cat "${parts[@]}" | gzip -9 >"$OUTPUT/pretrain.jsonl.gz"
for log in "$OUTPUT"/{main-*,densenet,variants,amount,sizes,self,pointing,heat-maps}.log; do [ -e "$log" ] && { echo "== $log"; tail -n 4 "$log"; }; done
say "$(cat "${parts[@]}" /dev/null | wc -l) runs are recorded in $OUTPUT/pretrain.jsonl.gz"
