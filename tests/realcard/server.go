package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/tests/testserver"
)

// room is what a GH100 of 4 GiB takes of a card, in MiB.
const room = 4352

// describe notes what this runs on.
func (r *run) describe() {
	r.results.Began = time.Now()
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease") // without it, the line is shorter
	r.results.Machine = append(r.results.Machine, fmt.Sprintf("%d processors, Linux %s, user %d", runtime.NumCPU(), strings.TrimSpace(string(release)), os.Getuid()))
	if r.card == nvidia {
		out, err := smi(r.ctx, "name,driver_version,memory.total,power.limit")
		if err != nil {
			out = err.Error()
		}
		r.results.Machine = append(r.results.Machine, strings.TrimSpace(out))
	} else {
		r.results.Machine = append(r.results.Machine, "Umbra's software card")
	}
	fmt.Println(strings.Join(r.results.Machine, "\n"))
}

// smi asks NVIDIA's tool about the first card.
func smi(ctx context.Context, what string) (string, error) {
	out, err := exec.CommandContext(ctx, "nvidia-smi", "--id=0", "--format=csv,noheader,nounits", "--query-gpu="+what).Output()
	if err != nil {
		return "", fmt.Errorf("nvidia-smi: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// used is how much memory of the card is taken, in MiB.
func (r *run) used(ctx context.Context) (int, error) {
	if r.card == soft {
		return 0, nil
	}
	out, err := smi(ctx, "memory.used")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(out)
}

// serve starts umbra serve with GPUs a, b, ... of such weights, and keeps its log by a name.
func (r *run) serve(ctx context.Context, name string, weights ...int) (*server, error) {
	dir := filepath.Join(r.work, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	card := fmt.Sprintf("{kind: soft, vram: %dMiB}", max(1024, room*len(weights)))
	if r.card == nvidia {
		card = "{kind: nvidia}"
	}
	config := fmt.Sprintf("control: %s\ncard: %s\ngpus:\n", testserver.ControlSocket, card)
	s := &server{logs: name + ".log"}
	for i, w := range weights {
		gpu := string(rune('a' + i))
		config += fmt.Sprintf("  - {name: %s, socket: %s.sock, chip: gh100, vram: 4GiB, weight: %d}\n", gpu, gpu, w)
		s.sockets = append(s.sockets, filepath.Join(dir, gpu+".sock"))
	}
	err := os.WriteFile(filepath.Join(dir, testserver.ConfigFile), []byte(config), 0o644)
	if err == nil {
		s.Process, err = testserver.StartProcess(ctx, filepath.Join(r.dir, "bin/umbra"), dir)
	}
	return s, err
}

// server is umbra serve with its GPUs.
type server struct {
	*testserver.Process
	sockets []string
	logs    string
}

// keep writes the log where it stays.
func (s *server) keep() error { return os.WriteFile(s.logs, []byte(s.Log()), 0o644) }

// end ends the server in good order.
func (s *server) end(ctx context.Context) error {
	return errors.Join(s.Stop(ctx), s.keep())
}

// equal are n weights.
func equal(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = 100
	}
	return out
}

// clean waits until the card has as much memory taken as before.
func (r *run) clean(ctx context.Context, before int) error {
	for {
		now, err := r.used(ctx)
		if err != nil || now <= before {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d MiB of the card are still taken, %d before", now, before)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
