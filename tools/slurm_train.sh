#!/usr/bin/env bash
# Train on the GPUs of a slurm partition:
#   GPUS=8 GPUS_PER_NODE=8 CPUS_PER_TASK=5 SRUN_ARGS='--time=1-0' \
#     tools/slurm_train.sh PARTITION JOB_NAME CONFIG [arguments of train]
set -euo pipefail
if [ $# -lt 3 ]; then
  echo 'usage: tools/slurm_train.sh PARTITION JOB_NAME CONFIG [arguments]' >&2
  exit 2
fi
PARTITION=$1
JOB_NAME=$2
CONFIG=$3
GPUS_PER_NODE=${GPUS_PER_NODE:-4}

# A failing task ends all. Unquoted, because SRUN_ARGS may contain several
# options.
exec srun --partition="$PARTITION" \
  --job-name="$JOB_NAME" \
  --gres="gpu:$GPUS_PER_NODE" \
  --ntasks="${GPUS:-4}" \
  --ntasks-per-node="$GPUS_PER_NODE" \
  --cpus-per-task="${CPUS_PER_TASK:-5}" \
  --kill-on-bad-exit=1 \
  ${SRUN_ARGS:-} \
  "${PYTHON:-python}" -u "$(dirname "$0")/train.py" "$CONFIG" \
  --launcher slurm "${@:4}"
