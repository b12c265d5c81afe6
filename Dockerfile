# Clawgate in a container: its wheel, its pinned dependencies, and nobody's privileges.
FROM python:3.11-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv --without-pip /venv
COPY requirements.txt ./
RUN pip --python /venv/bin/python install --require-hashes -r requirements.txt

WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY gateway ./gateway
COPY agents ./agents
COPY channels ./channels
COPY tools ./tools
COPY skills ./skills
COPY docs ./docs
RUN pip wheel --no-deps --wheel-dir /wheel . && pip --python /venv/bin/python install --no-deps --no-index /wheel/*.whl

FROM python:3.11-slim
ENV PATH=/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
COPY --from=build /venv /venv

WORKDIR /app
COPY config.yaml ./

# Only data is written to, and /tmp: the rest may be mounted read-only, as docker-compose.yml does.
RUN useradd --system --uid 10001 --create-home clawgate && mkdir -m 0700 data && chown clawgate data
USER clawgate
VOLUME /app/data
EXPOSE 8080

HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/readyz', timeout=2)"]

# SIGTERM lays running turns down at a step border; give it longer than limits.graceSeconds (25).
STOPSIGNAL SIGTERM
CMD ["clawgate", "serve", "--config", "config.yaml", "--host", "0.0.0.0", "--port", "8080"]
