# Everything is Go; make only gives the commands short names.

GO ?= go
OUT ?= bin
FUZZTIME ?= 15s
# The card runs programs with AVX2 or AVX-512 if it was built with Go's vectors, which are an experiment still.
VECTORS = GOEXPERIMENT=simd
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null)

.DEFAULT_GOAL := help

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build the command, bin/umbra, and bin/umbra-jit beside it
	$(VECTORS) $(GO) build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/umbra ./cmd/umbra
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/umbra-jit ./cmd/umbra-jit

# A Debian version begins with a digit: a tag without its v, or 0~ and a commit.
deb: export DEB_VERSION = $(or $(patsubst v%,%,$(filter v%,$(VERSION))),0~$(VERSION))
deb: ## build the Debian package into OUT (bin); its command needs no library
	CGO_ENABLED=0 $(VECTORS) $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/static/umbra ./cmd/umbra
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/umbra-jit ./cmd/umbra-jit
	$(GO) tool -modfile=tools/pack/go.mod nfpm package --config contrib/deb/nfpm.yaml --packager deb --target $(OUT)

release: ## make the package and the tar file of VERSION=x.y.z in dist, and tag this commit
	@tools/release $(VERSION)

demo: build ## show two Debian guests on one software card, with CHIP=gh100 as a GH100; fetches what is missing
	$(GO) run ./tests/demo --umbra bin/umbra $(if $(CHIP),--chip $(CHIP))

test: ## check and test everything in ten minutes; the last line counts
	@tools/test gate

test-release: ## test everything at full length, in 65 to 95 minutes
	@tools/test release

test-unit: ## run the tests that need no virtual machine
	@tools/test unit
	@tools/test race

test-vm: ## run the tests that boot virtual machines
	@tools/test vm

test-dra: ## test the Kubernetes driver; builds its dependencies
	@tools/test dra

real-card: ## bundle what shows guests on an NVIDIA GPU, and run it if there is one here
	@tools/real-card

libvfio-user: ## build the C library libvfio-user into the cache folder
	$(GO) run ./tests/conformance/cmd/libvfio-user build

build-libvfio-user: ## build bin/umbra with libvfio-user as a transport
	$(VECTORS) $(GO) run ./tests/conformance/cmd/libvfio-user go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/umbra ./cmd/umbra

test-libvfio-user: ## test that transport; builds the library
	@tools/test libvfiouser

lint: ## run gofmt, go vet, staticcheck; check new commit subjects
	@tools/test lint

fuzz: ## run every fuzz target for FUZZTIME (15s)
	@FUZZTIME=$(FUZZTIME) tools/test fuzz

bench: ## measure what serving a GPU costs, with every set-up by turns
	$(GO) run ./cmd/umbra bench

reference: ## write the generated pages of docs/reference and docs/man, and the completion for bash
	$(GO) test ./cmd/api ./cmd/umbra -run 'Schema|Reference|ManPages' -update

clean: ## remove what was built (fetched things stay in the cache folder)
	rm -rf bin dist
	$(GO) clean -testcache

.PHONY: help build deb release demo real-card test test-release test-unit test-vm test-dra libvfio-user build-libvfio-user test-libvfio-user lint fuzz bench reference clean
