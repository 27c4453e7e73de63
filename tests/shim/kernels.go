package shim

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/tests/shim/random"
)

// Words that a random kernel leaves: one for each thread, and sums.
const kernelWords = random.Threads + 16

// Kernels are programs of random kernels, which each device runs with the same input.
type Kernels struct {
	host   *Host
	binary string
}

// NewKernels compiles what starts random kernels.
func (h *Host) NewKernels(ctx context.Context) (*Kernels, error) {
	source, err := sources.ReadFile("random/host/random.c")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(h.work, "random.c")
	if err := os.WriteFile(file, source, 0o644); err != nil {
		return nil, err
	}
	binary, err := h.Compile(ctx, file)
	return &Kernels{h, binary}, err
}

// Run runs a program of n kernels, and returns what they left.
func (k *Kernels) Run(ctx context.Context, source string, n int, p Program) ([]byte, *Recording, error) {
	const input, results = "kernels.cl", "results"
	if err := os.WriteFile(filepath.Join(k.host.work, input), []byte(source), 0o644); err != nil {
		return nil, nil, err
	}
	var said bytes.Buffer
	p.Argv = []string{k.binary, path.Join(fetch.WorkDir, input), strconv.Itoa(n), path.Join(fetch.WorkDir, results)}
	p.Output, p.Errors = &said, &said
	r, err := k.host.Run(ctx, p)
	if err != nil && p.Device != OurCard {
		return nil, nil, fmt.Errorf("%w: on %s: %w\n%s", ErrMesa, p.Device, err, &said)
	} else if err != nil {
		return nil, nil, fmt.Errorf("on %s: %w\n%s", p.Device, err, &said)
	}
	out, err := os.ReadFile(filepath.Join(k.host.work, results))
	if err == nil && len(out) != n*kernelWords*4 {
		err = fmt.Errorf("on %s: %d bytes of results: want %d", p.Device, len(out), n*kernelWords*4)
	}
	return out, r, err
}

// Compare runs n random kernels on Mesa's renderer and on our card, and returns an error if they
// differ. The recording is of our card.
func (k *Kernels) Compare(ctx context.Context, seed uint64, n int, cfg Config) (*Recording, error) {
	source := random.Source(seed, n)
	want, _, err := k.Run(ctx, source, n, Program{Device: "llvmpipe"})
	if err != nil {
		return nil, err
	}
	got, r, err := k.Run(ctx, source, n, Program{Device: OurCard, Config: cfg, Record: true})
	if err != nil {
		return nil, err
	}
	for i := range want {
		if got[i] != want[i] {
			kernel, word := i/4/kernelWords, i/4%kernelWords
			return nil, fmt.Errorf("seed %d, kernel k%d, word %d: %x, and Mesa's renderer has %x", seed, kernel, word, got[i&^3:i&^3+4], want[i&^3:i&^3+4])
		}
	}
	return r, nil
}
