"""Train a small BERT with the Hugging Face Trainer and record steps 3 to 7 into ``runs/huggingface``.

Needs: pip install "perfkit[torch]" transformers accelerate
Then: perfkit summary runs/huggingface
"""

from __future__ import annotations

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from perfkit_torch.integrations.transformers import PerfkitCallback

if __name__ == "__main__":
    tokens = torch.randint(0, 1000, (80, 32))
    data = [{"input_ids": row, "labels": torch.tensor(i % 2)} for i, row in enumerate(tokens)]
    config = BertConfig(
        vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128
    )
    arguments = TrainingArguments(
        "runs/huggingface-trainer", per_device_train_batch_size=8, num_train_epochs=1, save_strategy="no", report_to=[]
    )
    callback = PerfkitCallback("runs/huggingface", steps=(3, 7), record_shapes=True)
    Trainer(BertForSequenceClassification(config), arguments, train_dataset=data, callbacks=[callback]).train()
