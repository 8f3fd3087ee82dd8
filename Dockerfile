# `glasshead serve` in a container, for a folder of runs or models:
#
#   docker build -t glasshead .
#   docker run -p 8000:8000 -v "$PWD/runs:/models:ro" glasshead
#
# It prints the address with its key. For a GPU: docker build --build-arg TORCH=cu130, and
# docker run --gpus all. TORCH is a build of torch that uv knows: cpu, cu126, cu130, auto, ...
FROM python:3.12-slim AS build
ARG TORCH=cpu
RUN pip install --no-cache-dir uv
WORKDIR /src
COPY . .
RUN uv build --wheel --out-dir /wheels
RUN uv venv /opt/glasshead \
 && uv pip install --no-cache --python /opt/glasshead --constraint constraints.txt \
    --torch-backend "$TORCH" "glasshead[hf] @ $(ls -d /wheels/*.whl)"

FROM python:3.12-slim
COPY --from=build /opt/glasshead /opt/glasshead
RUN useradd --create-home --uid 10001 glasshead && mkdir /models
USER 10001
WORKDIR /home/glasshead
ENV PATH=/opt/glasshead/bin:$PATH PYTHONUNBUFFERED=1
EXPOSE 8000
HEALTHCHECK --start-period=60s --timeout=5s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["glasshead", "serve"]
CMD ["/models", "--host", "0.0.0.0", "--no-open"]
