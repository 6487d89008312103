#!/usr/bin/env bash
# Train on several GPUs, or in several processes without a GPU:
#   tools/dist_train.sh CONFIG GPUS [arguments of train]
# On each of several machines, with the same MASTER_ADDR and PORT:
#   NNODES=2 NODE_RANK=0 MASTER_ADDR=10.1.1.1 tools/dist_train.sh CONFIG GPUS
set -euo pipefail
if [ $# -lt 2 ]; then
  echo 'usage: tools/dist_train.sh CONFIG GPUS [arguments]' >&2
  exit 2
fi
CONFIG=$1
GPUS=$2

exec "${PYTHON:-python}" -m torch.distributed.run \
  --nnodes="${NNODES:-1}" \
  --node-rank="${NODE_RANK:-0}" \
  --master-addr="${MASTER_ADDR:-127.0.0.1}" \
  --master-port="${PORT:-29500}" \
  --nproc-per-node="$GPUS" \
  "$(dirname "$0")/train.py" "$CONFIG" --launcher pytorch "${@:3}"
