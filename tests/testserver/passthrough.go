// Package testserver puts a software card, its vfio-user server and a virtual machine
// together in one process, for end-to-end tests, the demonstration and benchmarks. The
// process can then read the card's own counters while an unmodified driver uses it.
//
// A PassThrough owns the card, the server's goroutine and the machine; Close ends them in
// the reverse order. It has no locks.
package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/passthrough"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Config is the set-up. Machine.Sockets is filled in.
type Config struct {
	Card      soft.Config
	Windows   passthrough.Config
	Machine   lab.Config
	Transport serve.Make // nil is serve.Native
}

// PassThrough is a card that a machine has attached to.
type PassThrough struct {
	Card   *soft.Card
	Device *serve.Device
	VM     *lab.VM // of the latest Boot, nil before the first

	cfg    Config
	dir    string
	cancel context.CancelFunc
	served chan error
}

// New makes a card and serves it, without a machine.
func New(cfg Config) (*PassThrough, error) {
	if cfg.Card.VRAM == 0 {
		cfg.Card.VRAM = 512 << 20
	}
	c, err := soft.New(withCompiler(cfg.Card))
	if err != nil {
		return nil, err
	}
	s := &PassThrough{Card: c, cfg: cfg}
	if err := s.serve(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return s, nil
}

// serve returns when the server listens.
func (s *PassThrough) serve() (err error) {
	if s.dir, err = os.MkdirTemp("", "umbra-"); err != nil {
		return err
	}
	s.Device = serve.NewPassThrough(s.Card, s.cfg.Windows)
	by, listening := s.cfg.Transport, make(chan struct{})
	if by == nil {
		by = serve.Native
	}
	t, err := by(s.Device, vfiouser.Options{Listening: func() { close(listening) }})
	if err != nil {
		return errors.Join(err, os.RemoveAll(s.dir))
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.served = make(chan error, 1)
	go func() { s.served <- t.ListenAndServe(ctx, s.Socket()) }()
	select {
	case <-listening:
		return nil
	case err := <-s.served:
		cancel()
		return errors.Join(err, os.RemoveAll(s.dir))
	}
}

// Socket is the path that QEMU attaches to.
func (s *PassThrough) Socket() string { return filepath.Join(s.dir, "gpu.sock") }

// Boot starts a machine on the card and waits until its guest is up. The machine
// before, if any, ends.
func (s *PassThrough) Boot(ctx context.Context) error {
	if s.VM != nil {
		if err := s.VM.Close(); err != nil {
			return err
		}
	}
	m := s.cfg.Machine
	m.Sockets = []string{s.Socket()}
	vm, err := lab.Start(ctx, m)
	if err != nil {
		return fmt.Errorf("boot %s: %w", m.Kernel, err)
	}
	s.VM = vm
	return nil
}

// Close ends the machine, the server and the card.
func (s *PassThrough) Close() error {
	var errs []error
	if s.VM != nil {
		errs = append(errs, s.VM.Close())
	}
	s.cancel()
	if err := <-s.served; !errors.Is(err, context.Canceled) {
		errs = append(errs, err)
	}
	errs = append(errs, s.Card.Close(), os.RemoveAll(s.dir))
	return errors.Join(errs...)
}
