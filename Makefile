# Everything is Go; make only gives the commands short names.

GO ?= go
FUZZTIME ?= 10s
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null)

.DEFAULT_GOAL := help

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build the command, bin/umbra
	$(GO) build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/umbra ./cmd/umbra

demo: build ## show two Debian guests on one software card; fetches what is missing
	$(GO) run ./tests/demo --umbra bin/umbra

demo-pass-through: ## show one guest with a whole card, and more of what the card counts
	$(GO) run ./tests/demo --pass-through

test: ## run static checks, all tests, the race detector, virtual machines; the last line counts
	$(GO) run ./tests/check

test-unit: ## run the tests that need no virtual machine
	$(GO) run ./tests/check unit

test-vm: ## run the tests that boot virtual machines
	$(GO) run ./tests/check vm

libvfio-user: ## build the C library libvfio-user into the cache folder
	$(GO) run ./tests/conformance/cmd/libvfio-user build

build-libvfio-user: ## build bin/umbra with libvfio-user as a transport
	$(GO) run ./tests/conformance/cmd/libvfio-user go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/umbra ./cmd/umbra

test-libvfio-user: ## test that transport: plain, race detector, virtual machines; builds the library
	$(GO) run ./tests/check libvfio-user

lint: ## run gofmt, go vet, staticcheck
	$(GO) run ./tests/check lint

fuzz: ## run every fuzz target for FUZZTIME (10s)
	$(GO) run ./tests/check -fuzztime $(FUZZTIME) fuzz

bench: ## measure what serving a GPU costs, with every set-up by turns; tables, and a page with plots
	$(GO) run ./cmd/umbra bench

bench-floors: ## measure server and engines against what the machine itself takes
	$(GO) run ./tests/bench

clean: ## remove what was built (fetched things stay in the cache folder)
	rm -rf bin
	$(GO) clean -testcache

.PHONY: help build demo demo-pass-through test test-unit test-vm libvfio-user build-libvfio-user test-libvfio-user lint fuzz bench bench-floors clean
