#!/usr/bin/env bash
# Test on several GPUs, or in several processes without a GPU:
#   tools/dist_test.sh CONFIG CHECKPOINT GPUS [arguments of test]
# NNODES, NODE_RANK, MASTER_ADDR and PORT as in tools/dist_train.sh.
set -euo pipefail
if [ $# -lt 3 ]; then
  echo 'usage: tools/dist_test.sh CONFIG CHECKPOINT GPUS [arguments]' >&2
  exit 2
fi
CONFIG=$1
CHECKPOINT=$2
GPUS=$3

exec "${PYTHON:-python}" -m torch.distributed.run \
  --nnodes="${NNODES:-1}" \
  --node-rank="${NODE_RANK:-0}" \
  --master-addr="${MASTER_ADDR:-127.0.0.1}" \
  --master-port="${PORT:-29500}" \
  --nproc-per-node="$GPUS" \
  "$(dirname "$0")/test.py" "$CONFIG" "$CHECKPOINT" \
  --launcher pytorch "${@:4}"
