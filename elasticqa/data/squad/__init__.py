"""The task: SQuAD v1.1 read, cut into windows, answered and scored."""
