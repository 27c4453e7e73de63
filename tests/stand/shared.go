package stand

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/doorbell"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Shared is a software card with virtual GPUs, each served on a socket of its own,
// as umbra serve puts them together.
type Shared struct {
	Card *soft.Card
	GPUs []*Seat

	shared *serve.Shared
	dir    string
	failed bytes.Buffer // what the server logged as an error
}

// Seat is one virtual GPU.
type Seat struct {
	*serve.Virtual
	Watched *serve.Watched // counts its traps
	Socket  string
}

// NewShared makes a card and n virtual GPUs of vram bytes each.
func NewShared(cardCfg soft.Config, n int, vram uint64) (*Shared, error) {
	c, err := soft.New(cardCfg)
	if err != nil {
		return nil, err
	}
	s := &Shared{Card: c}
	log := slog.New(slog.NewTextHandler(&s.failed, &slog.HandlerOptions{Level: slog.LevelError}))
	if s.shared, err = serve.NewShared(c, serve.Native, vfiouser.Options{Log: log}); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if s.dir, err = os.MkdirTemp("", "umbra-"); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	for i := range n {
		if err := s.AddGPU(aggregator.GuestConfig{Name: fmt.Sprintf("gpu%d", i), VRAM: vram}); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Poller counts what was done to find doorbells that are not trapped.
func (s *Shared) Poller() *doorbell.Stats { return s.shared.Poller() }

// AddGPU makes one more virtual GPU, as share says.
func (s *Shared) AddGPU(share aggregator.GuestConfig) error {
	socket := filepath.Join(s.dir, share.Name+".sock")
	l, err := vfiouser.Listen(socket)
	if err != nil {
		return err
	}
	v, err := s.shared.Add(serve.GPUConfig{Share: share, Socket: socket}, l)
	if err != nil {
		return err
	}
	s.GPUs = append(s.GPUs, &Seat{Virtual: v.Virtual, Watched: v.Device, Socket: socket})
	return nil
}

// Close ends everything. The clients must have gone, or are cut off. What the
// server took for an error is one.
func (s *Shared) Close() error {
	err := errors.Join(s.shared.Close(), s.Card.Close(), os.RemoveAll(s.dir))
	if s.failed.Len() > 0 {
		err = errors.Join(err, fmt.Errorf("the server logged: %s", s.failed.Bytes()))
	}
	return err
}
