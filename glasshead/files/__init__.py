"""Files: read with a limit, written so that they are complete or absent, checked by digests.

reading.py      regular files only, and no more bytes than expected
writing.py      a temporary name, synced and renamed
digest.py       what a file or a tensor must be
tensors.py      safetensors files with a digest of each tensor
checksums.py    checksums.json: digests of the small files beside it
foreign_folder.py   a folder of the transformers library, before the library reads it
"""
