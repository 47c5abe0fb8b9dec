"""What the queue costs, each figure beside the bound that plain SQL sets in the same run."""
