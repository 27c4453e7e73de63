package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/umbra-gpu/umbra/tests/rig"
)

// kills has the server and a worker killed in the midst. The card must be clean, and the next start must work.
func (r *run) kills() {
	before, err := r.used(r.ctx)
	if err != nil {
		return
	}
	midst := func(t []*tenant) error {
		for range 20 {
			if err := t[0].Copy(); err != nil {
				return err
			}
		}
		return t[0].Ch.Copy(t[0].Via, t[0].Src, rig.CopySize)
	}
	r.with("kills/server", equal(2), func(ctx context.Context, s *result, srv *server, t []*tenant) error {
		if err := midst(t); err != nil {
			return err
		}
		srv.Kill()
		if err := r.clean(ctx, before); err != nil {
			return err
		}
		began := time.Now()
		again, err := r.serve(ctx, "kills-server-again", 100, 100)
		if err != nil {
			return err
		}
		defer again.Kill()
		t, err = tenantsOf(again)
		if err == nil {
			err = errors.Join(t[0].Copy(), t[1].Copy())
		}
		s.note("until the next copy", time.Since(began).Seconds(), "s")
		return err
	})
	if r.card == soft {
		return // it has no workers
	}
	r.with("kills/worker", equal(2), func(ctx context.Context, s *result, srv *server, t []*tenant) error {
		workers := children(srv.Cmd.Process.Pid)
		if err := midst(t); err != nil || len(workers) != 2 {
			return cmp.Or(err, fmt.Errorf("the server has processes %v; want one for each of two guests", workers))
		}
		if err := syscall.Kill(workers[0], syscall.SIGKILL); err != nil {
			return err
		}
		for ; ; time.Sleep(10 * time.Millisecond) { // whose it was is not known
			status, err := srv.Status(ctx)
			if err != nil {
				return err
			}
			first, second := status.GPUs[0].Quarantine != "", status.GPUs[1].Quarantine != ""
			switch {
			case first && second:
				return errors.New("the server has no worker for either guest; one was killed")
			case first:
				return t[1].Copy()
			case second:
				return t[0].Copy()
			}
		}
	})
}

// children are the processes that a process has started.
func children(pid int) (out []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // fails only for a bad pattern
	for _, f := range files {
		text, _ := os.ReadFile(f) // a thread may have ended
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}
