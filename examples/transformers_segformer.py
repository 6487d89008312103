"""Fine-tune SegFormer with Hugging Face's Trainer and the Jaccard loss.

``pip install mmseg_margin transformers accelerate``. SegFormer's logits have a
quarter of the labels' resolution; ``upsampled_jaccard_loss`` up-samples them
piece by piece, so that full-size logits never exist.
"""

import tempfile
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import (
    SegformerConfig,
    SegformerForSemanticSegmentation,
    Trainer,
    TrainingArguments,
)

from mmseg_margin.functional import upsampled_jaccard_loss

STEPS = 30


class Squares(Dataset):
    """Images of a bright square (class 1) on noise (class 0)."""

    def __len__(self) -> int:
        return 4 * STEPS

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(index)
        pixels = 0.3 * torch.randn(3, 64, 64, generator=generator)
        labels = torch.zeros(64, 64, dtype=torch.long)
        y, x = torch.randint(0, 40, (2,), generator=generator)
        labels[y : y + 24, x : x + 24] = 1
        return {'pixel_values': pixels + labels, 'labels': labels}


class JaccardTrainer(Trainer):
    """Computes the loss itself; the model is not given the labels."""

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        **kwargs: Any,
    ) -> Any:
        labels = inputs.pop('labels')
        outputs = model(**inputs)
        progress = self.state.global_step / self.state.max_steps
        loss = upsampled_jaccard_loss(
            outputs.logits, labels, ce_weight=progress**2
        )
        return (loss, outputs) if return_outputs else loss


def main() -> float:
    torch.manual_seed(0)
    config = SegformerConfig(
        num_labels=2,
        depths=[1, 1, 1, 1],
        hidden_sizes=[16, 32, 40, 64],
        decoder_hidden_size=32,
        num_attention_heads=[1, 2, 4, 8],
    )
    # For a real training: SegformerForSemanticSegmentation.from_pretrained.
    model = SegformerForSemanticSegmentation(config)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=4,
            max_steps=STEPS,
            learning_rate=2e-3,
            remove_unused_columns=False,
            dataloader_pin_memory=torch.cuda.is_available(),
            disable_tqdm=True,
            report_to=[],
            save_strategy='no',
            logging_steps=10,
        )
        data = Squares()
        JaccardTrainer(model, arguments, train_dataset=data).train()
    sample = data[10**6]
    with torch.inference_mode():
        logits = model.eval().cpu()(sample['pixel_values'][None]).logits
    # As SegformerImageProcessor.post_process_semantic_segmentation does.
    size = sample['labels'].shape
    scores = torch.nn.functional.interpolate(logits, size, mode='bilinear')
    predicted, square = scores[0].argmax(0) == 1, sample['labels'] == 1
    iou = float((predicted & square).sum() / (predicted | square).sum())
    print(f'IoU of the square in a new image: {100 * iou:.1f}')
    return iou


if __name__ == '__main__':
    main()
