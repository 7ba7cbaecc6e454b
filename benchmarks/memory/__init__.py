"""Memory of BERT-large under DDP and FSDP."""
