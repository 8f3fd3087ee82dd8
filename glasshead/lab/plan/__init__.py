"""What a model will cost before it is run: memory, arithmetic, time and communication."""
