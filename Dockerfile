# The pinned vLLM image plus what it lacks. The build fails if a package that the image brought would be changed.
ARG BASE=vllm/vllm-openai:v0.21.0@sha256:a230095847e93bd4df9888b33dab956fa9504537b828a23657d2b26fed57b5c9
FROM ${BASE}

SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ENV PIP_BREAK_SYSTEM_PACKAGES=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# Dependencies first: this layer stays when only the code changes. An empty version: the base must have none (to test).
ARG VLLM_VERSION=0.21.0
ARG TORCH_VERSION=2.11.0
COPY requirements/base.txt docker/packages.py /opt/build/
WORKDIR /opt/build
RUN python3 packages.py require vllm="${VLLM_VERSION}" torch="${TORCH_VERSION}" \
 && python3 packages.py list | sort > before.txt \
 && { python3 -m pip check || true; } | sort > complaints-before.txt \
 && python3 packages.py missing base.txt > missing.txt \
 && python3 -m pip install --ignore-installed --no-deps --require-hashes --requirement missing.txt

# torch stops for a user id that /etc/passwd does not name.
ARG UID=1000
RUN getent passwd "${UID}" || useradd --uid "${UID}" --no-log-init --no-create-home --home-dir /cache/home study \
 && install --directory --owner "${UID}" /cache /cache/home /results
ENV HOME=/cache/home \
    VLLM_CACHE_ROOT=/cache/vllm \
    TORCHINDUCTOR_CACHE_DIR=/cache/inductor \
    TRITON_CACHE_DIR=/cache/triton \
    HF_HOME=/cache/huggingface

COPY . /opt/artifact
RUN chmod --recursive a+rX /opt/artifact \
 && python3 -m pip install --no-deps --no-build-isolation --editable /opt/artifact \
 && python3 packages.py list | sort > after.txt \
 && comm -23 before.txt after.txt > changed.txt \
 && { python3 -m pip check || true; } | sort | comm -13 complaints-before.txt - > complaints-new.txt \
 && cat changed.txt complaints-new.txt && test ! -s changed.txt && test ! -s complaints-new.txt

ARG BASE
ARG COMMIT=
ENV ARTIFACT_COMMIT=${COMMIT}
LABEL org.opencontainers.image.title="cudagraph-mode-artifact" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${COMMIT}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${BASE}" \
      artifact.vllm="${VLLM_VERSION}" \
      artifact.torch="${TORCH_VERSION}"

VOLUME ["/cache", "/results"]
# executor.results is `results`: here that is the volume.
WORKDIR /
USER ${UID}
ENTRYPOINT ["artifact"]
