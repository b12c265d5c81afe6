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

# All of a bot is in one folder: config.yaml, .env, skills.d, tools.d, data. The rest may be mounted read-only, but for /tmp,
# as docker-compose.yml does. 1000 is the first user of most machines, who then owns a folder that is mounted here.
RUN useradd --uid 1000 --create-home clawgate && mkdir -m 0700 /bot && chown clawgate:clawgate /bot
WORKDIR /bot
USER clawgate
VOLUME /bot
EXPOSE 8080

HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/readyz', timeout=2)"]

# SIGTERM lays running turns down at a step border; give it longer than limits.graceSeconds (25).
STOPSIGNAL SIGTERM
CMD ["clawgate", "serve", "--init", "--host", "0.0.0.0", "--port", "8080"]
