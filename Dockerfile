# A broker in a container. `make package` builds the wheel first; then:
#   docker build -t leadline .
#   docker run -p 9092:9092 -v leadline:/data leadline
# Clients connect to localhost:9092. For others, pass an address that they reach:
#   docker run ... leadline --set advertised.listeners=PLAINTEXT://broker.example.com:9092
FROM python:3.13-slim AS build
COPY requirements-broker.lock dist/*.whl /build/
# The packages of the lock file by their hashes, then the wheel. The build backend is of no use here.
RUN python -m venv --without-pip /opt/leadline \
 && pip --disable-pip-version-check --python /opt/leadline/bin/python install --no-cache-dir --no-compile --require-hashes -r /build/requirements-broker.lock \
 && pip --disable-pip-version-check --python /opt/leadline/bin/python install --no-cache-dir --no-compile --no-deps /build/*.whl \
 && pip --disable-pip-version-check --python /opt/leadline/bin/python uninstall --yes hatchling pathspec pluggy tomlkit trove-classifiers \
 && /opt/leadline/bin/python -m compileall -q /opt/leadline/lib

FROM python:3.13-slim
LABEL org.opencontainers.image.title="Leadline" \
      org.opencontainers.image.description="A log broker that speaks Kafka's protocol and writes Kafka's files" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --system --gid 9092 leadline \
 && useradd --system --uid 9092 --gid leadline --home-dir /data --no-create-home --shell /usr/sbin/nologin leadline \
 && install --directory --owner=leadline --group=leadline --mode=0750 /data
COPY --from=build /opt/leadline /opt/leadline
ENV PATH=/opt/leadline/bin:$PATH PYTHONDONTWRITEBYTECODE=1
USER leadline
WORKDIR /data
VOLUME /data
EXPOSE 9092 9404
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9404/healthz', timeout=4)"]
# Later words override earlier ones: `docker run leadline --set KEY=VALUE` adds to these.
ENTRYPOINT ["leadline", "start", "--metrics", "0.0.0.0:9404", "--set", "log.dirs=/data", "--set", "listeners=PLAINTEXT://0.0.0.0:9092", "--set", "advertised.listeners=PLAINTEXT://localhost:9092"]
