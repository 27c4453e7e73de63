# Everything is Go; make only gives the commands short names.

GO ?= go
FUZZTIME ?= 10s
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null)

.DEFAULT_GOAL := help

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/umbra
	$(GO) build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/umbra ./cmd/umbra

demo: build ## share one software card among two Debian guests and show what they do; fetches what is missing
	$(GO) run ./tests/demo --umbra bin/umbra

demo-pass-through: ## the same with a whole card for one guest, and more of its counters
	$(GO) run ./tests/demo --pass-through

test: ## static checks, all tests, race detector, virtual machines; says what ran
	$(GO) run ./tests/check

test-unit: ## the tests that need no virtual machine
	$(GO) run ./tests/check unit

test-vm: ## the tests that boot virtual machines
	$(GO) run ./tests/check vm

libvfio-user: ## build the C library libvfio-user into the cache, for the transport of that name
	$(GO) run ./tests/conformance/cmd/libvfio-user build

build-libvfio-user: ## build bin/umbra with that transport
	$(GO) run ./tests/conformance/cmd/libvfio-user go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/umbra ./cmd/umbra

test-libvfio-user: ## test that transport, plain and under the race detector; says so if it was not built
	$(GO) run ./tests/conformance/cmd/libvfio-user test

lint: ## gofmt, go vet, staticcheck
	$(GO) run ./tests/check lint

fuzz: ## run every fuzz target for FUZZTIME (10s)
	$(GO) run ./tests/check -fuzztime $(FUZZTIME) fuzz

bench: ## measure server, copies, guests' accesses, probe and poweroff; one table at the end
	$(GO) run ./tests/bench

clean: ## remove what was built (fetched things stay in the cache folder)
	rm -rf bin
	$(GO) clean -testcache

.PHONY: help build demo demo-pass-through test test-unit test-vm libvfio-user build-libvfio-user test-libvfio-user lint fuzz bench clean
