SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c

GOLANGCI_LINT := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
IMAGE ?= jetsidecar
FUZZTIME ?= 30s

.PHONY: help dev test race lint fuzz build image

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-6s %s\n", $$1, $$2}' Makefile

dev: ## run server, sample app, sample load and sidecar in one process
	go run ./cmd/sidecar-dev

test: ## run the tests
	go test ./...

race: ## run the tests with the race detector
	go test -race ./...

lint: ## gofmt, vet and golangci-lint
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	go vet ./...
	$(GOLANGCI_LINT) run ./...

fuzz: ## run each fuzz target for FUZZTIME
	@go list -f '{{.ImportPath}}' ./... | while read -r package; do \
		go test -list '^Fuzz' "$$package" | { grep '^Fuzz' || true; } | while read -r target; do \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package"; \
		done; \
	done

build: ## build static binaries into bin/
	CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)" -o bin/ ./cmd/sidecar ./cmd/sidecar-dev

image: ## build the container image
	docker build --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) -t $(IMAGE):$(VERSION) .
