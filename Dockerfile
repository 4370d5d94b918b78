# The sidecar alone on an empty base: one static binary, CA certificates, no shell, no root.
#
#   docker build --build-arg VERSION=v1.2.3 --build-arg COMMIT=$(git rev-parse HEAD) -t jetsidecar .

ARG GO_IMAGE=golang:1.26

FROM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
ARG COMMIT=unknown
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X main.version=${VERSION} -X main.commit=${COMMIT}" \
    -o /out/sidecar ./cmd/sidecar

FROM scratch
ARG VERSION=dev
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="jetsidecar" \
      org.opencontainers.image.description="Delivers the messages of NATS JetStream consumers to a local HTTP app" \
      org.opencontainers.image.source="https://github.com/jetsidecar/jetsidecar" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/sidecar /sidecar
USER 65532:65532
# The admin listener, once it listens on more than loopback: SIDECAR_ADMIN_LISTEN=0.0.0.0:9090.
EXPOSE 9090
# Asks /livez of the configured admin.listen.
HEALTHCHECK --interval=10s --timeout=6s --start-period=5s CMD ["/sidecar", "healthcheck"]
ENTRYPOINT ["/sidecar"]
CMD ["run"]
