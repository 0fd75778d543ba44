# docker build -t derbent --build-arg REVISION="$(git rev-parse --short HEAD)" .
# docker run --rm -p 8080:8080 -v "$PWD/derbent.yaml:/etc/derbent/derbent.yaml:ro" derbent
# Where the file shall be read again when another is put in its place, mount its directory on /etc/derbent.

FROM rust:1.95-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends cmake \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY Cargo.toml Cargo.lock LICENSE ./
COPY src ./src
# The demo's configuration is compiled in.
COPY conf ./conf
# Named in Cargo.toml, so Cargo wants to see it.
COPY benches ./benches
# What derbent_build_info names.
ARG REVISION=unknown
RUN DERBENT_REVISION="$REVISION" cargo build --release --locked

FROM debian:bookworm-slim
LABEL org.opencontainers.image.title="derbent" \
      org.opencontainers.image.description="A programmable HTTP edge proxy on Pingora that tells why a destination is out" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 65532 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin derbent \
 && mkdir /etc/derbent
# The trusted roots, for https:// destinations without a CA of their own.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/target/release/derbent /usr/bin/derbent
USER 65532:65532
EXPOSE 8080 8443
# Derbent drains on SIGTERM and is gone within the 10 s that Docker waits.
STOPSIGNAL SIGTERM
# The admin listener is on the container's own loopback; no shell, no curl.
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 CMD ["/usr/bin/derbent", "healthcheck"]
ENTRYPOINT ["/usr/bin/derbent"]
CMD ["run", "-c", "/etc/derbent/derbent.yaml"]
