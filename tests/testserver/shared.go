package testserver

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/driver"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// SharedConfig configures a shared card.
type SharedConfig struct {
	Card soft.Config
	// Plant puts another before the card, to look on or to do something wrong.
	Plant  func(*soft.Card) card.Registers
	Limits aggregator.Options
	Driver driver.Options
}

// Shared is a software card with virtual GPUs, each served on a socket of its own,
// as umbra serve puts them together.
type Shared struct {
	Card *soft.Card
	Agg  *aggregator.Aggregator
	// Driver drives the card for Agg.
	Driver *driver.Driver
	GPUs   []*Endpoint

	shared *serve.Shared
	dir    string
	failed bytes.Buffer // what the server logged as an error
}

// Endpoint is one virtual GPU.
type Endpoint struct {
	*serve.Virtual
	Counted *serve.Counted // counts its traps
	Socket  string
}

// NewShared makes a card and n virtual GPUs of vram bytes each.
func NewShared(cardCfg soft.Config, n int, vram uint64) (*Shared, error) {
	s, err := NewSharedWith(SharedConfig{Card: cardCfg})
	if err != nil {
		return nil, err
	}
	for i := range n {
		if err := s.AddGPU(aggregator.GuestConfig{Name: fmt.Sprintf("gpu%d", i), VRAM: vram}); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// NewSharedWith makes a card without guests.
func NewSharedWith(cfg SharedConfig) (*Shared, error) {
	c, err := soft.New(cfg.Card)
	if err != nil {
		return nil, err
	}
	var front card.Registers = c
	if cfg.Plant != nil {
		front = cfg.Plant(c)
	}
	s := &Shared{Card: c}
	log := slog.New(slog.NewTextHandler(&s.failed, &slog.HandlerOptions{Level: slog.LevelError}))
	if s.shared, err = serve.NewShared(front, serve.Native, vfiouser.Options{Log: log}, cfg.Limits, cfg.Driver); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s.Agg, s.Driver = s.shared.Aggregator(), s.shared.Driver
	if s.dir, err = os.MkdirTemp("", "umbra-"); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// AddGPU makes one more virtual GPU with this share.
func (s *Shared) AddGPU(share aggregator.GuestConfig) error {
	_, err := s.Add(serve.GPUConfig{Share: share})
	return err
}

// Add makes one more virtual GPU. Its socket is found for it.
func (s *Shared) Add(cfg serve.GPUConfig) (*Endpoint, error) {
	cfg.Socket = filepath.Join(s.dir, cfg.Share.Name+".sock")
	l, err := vfiouser.Listen(cfg.Socket)
	if err != nil {
		return nil, err
	}
	v, err := s.shared.Add(cfg, l)
	if err != nil {
		return nil, err
	}
	e := &Endpoint{Virtual: v.Virtual, Counted: v.Device, Socket: cfg.Socket}
	s.GPUs = append(s.GPUs, e)
	return e, nil
}

// Close ends everything. It cuts off clients that are still attached. It returns the
// server's errors.
func (s *Shared) Close() error {
	err := errors.Join(s.shared.Close(), s.Card.Close(), os.RemoveAll(s.dir))
	if s.failed.Len() > 0 {
		err = errors.Join(err, fmt.Errorf("the server logged: %s", s.failed.Bytes()))
	}
	return err
}
