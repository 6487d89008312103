"""``--resume``: from the newest checkpoint that is whole."""

import re
from pathlib import Path

from mmengine.config import Config
from mmengine.dist import is_main_process
from mmengine.logging import print_log

from mmseg_margin.checkpoints import CheckpointError, is_whole

CHECKPOINT = re.compile(r'(iter|epoch)_\d+\.pth')
RECORD = 'last_checkpoint'


def resume_training(cfg: Config) -> None:
    """Go on in the work dir, or begin if there is nothing to go on from.

    As upstream has it, a ``load_from`` of the config is resumed instead.
    """
    if not cfg.get('load_from'):
        cfg.load_from = newest_whole_checkpoint(cfg.work_dir)
        cfg.resume = cfg.load_from is not None


def newest_whole_checkpoint(work_dir: str) -> str | None:
    """The last undamaged checkpoint, or None if there never was one."""
    candidates = _checkpoints(Path(work_dir))
    for path in candidates:
        if is_whole(path):
            return str(path)
        if is_main_process():
            print_log(
                f'{path} is missing or damaged, so an earlier checkpoint is '
                'looked for.'
            )
    if candidates:
        raise CheckpointError(
            f'Nothing to go on from: {", ".join(map(str, candidates))} '
            f'missing or damaged. To begin anew, delete {work_dir}/{RECORD} '
            'and these files, or name another --work-dir.'
        )
    return None


def _checkpoints(work_dir: Path) -> list[Path]:
    """What ``last_checkpoint`` names, then all others from new to old."""
    record = work_dir / RECORD
    text = record.read_text('utf-8', 'replace') if record.is_file() else ''
    named = [Path(text.strip())] if text.strip() else []
    folders = {work_dir, *(path.parent for path in named)}
    found = (
        path
        for folder in folders
        for path in folder.glob('*.pth')
        if CHECKPOINT.fullmatch(path.name) and path not in named
    )
    return named + sorted(found, key=_time_of_writing, reverse=True)


def _time_of_writing(path: Path) -> float:
    return path.stat().st_mtime
