"""The functions at the top of the package: `train.py` trains, `inference.py` uses the model."""
