package testserver

import (
	"bytes"
	"cmp"
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
	"github.com/umbra-gpu/umbra/tests/cards"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// SharedConfig configures a shared card.
type SharedConfig struct {
	Card soft.Config
	// Plant puts another before the card, to look on or to do something wrong.
	Plant func(*soft.Card) card.Registers
	// Renamed has the guests see a cards.Renamed instead.
	Renamed bool
	// GPU puts another one before the card's driver.
	GPU    func(card.GPU) card.GPU
	Limits aggregator.Options
	Driver driver.Options
}

// OtherCards are the cards of package cards. None has more than the interfaces of package
// card demand.
var OtherCards = map[string]SharedConfig{
	"slow spaces":     {GPU: cards.Slow},
	"plain registers": {Plant: func(c *soft.Card) card.Registers { return cards.Plain{Registers: c} }},
	"other names":     {Renamed: true},
}

// Shared is a software card with virtual GPUs, each served on a socket of its own,
// as umbra serve puts them together.
type Shared struct {
	Card *soft.Card // nil on a card of the host's driver
	// Memory is all of the card's, by the addresses that Agg knows, nil likewise.
	Memory interface {
		card.Memory
		LookVRAM(addr, n uint64, f func(at uint64, p []byte))
	}
	Agg *aggregator.Aggregator
	// Driver drives the card for Agg, nil for a Renamed.
	Driver *driver.Driver
	GPUs   []*Endpoint

	shared *serve.Shared
	dir    string
	failed bytes.Buffer // what the server logged as an error
}

// Endpoint is one virtual GPU.
type Endpoint struct {
	*serve.Virtual
	Socket string
}

// NewSharedWith makes a card without guests.
func NewSharedWith(cfg SharedConfig) (s *Shared, err error) {
	s = new(Shared)
	opts := vfiouser.Options{Log: slog.New(slog.NewTextHandler(&s.failed, &slog.HandlerOptions{Level: slog.LevelError}))}
	if HostCard() {
		s.shared, err = shareHost(cfg, opts)
	} else if cfg.Renamed {
		var gpu *cards.Renamed
		if gpu, s.Card, err = cards.NewRenamed(withCompiler(cfg.Card), cfg.Driver); err == nil {
			s.Memory = gpu
			s.shared, err = serve.ShareGPU(gpu, serve.Native, opts, cfg.Limits)
		}
	} else if s.Card, err = soft.New(withCompiler(cfg.Card)); err == nil {
		var front card.Registers = s.Card
		if cfg.Plant != nil {
			front = cfg.Plant(s.Card)
		}
		s.Memory = s.Card
		if cfg.GPU == nil {
			s.shared, err = serve.NewShared(front, serve.Native, opts, cfg.Limits, cfg.Driver)
		} else if s.Driver, err = driver.New(front, cfg.Driver); err == nil {
			s.shared, err = serve.ShareGPU(cfg.GPU(s.Driver), serve.Native, opts, cfg.Limits)
		}
	}
	if err != nil {
		if s.Card != nil {
			err = errors.Join(err, s.Card.Close())
		}
		return nil, err
	}
	s.Agg, s.Driver = s.shared.Aggregator(), cmp.Or(s.Driver, s.shared.Driver)
	if s.dir, err = os.MkdirTemp("", "umbra-"); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Add makes one more virtual GPU. Its socket is found for it.
func (s *Shared) Add(cfg serve.GPUConfig) (*Endpoint, error) {
	if s.Card == nil {
		var err error
		if cfg, err = hostGPU(cfg); err != nil {
			return nil, err
		}
	}
	cfg.Socket = filepath.Join(s.dir, cfg.Share.Name+".sock")
	v, err := s.shared.Add(cfg)
	if err != nil {
		return nil, err
	}
	e := &Endpoint{Virtual: v.Virtual, Socket: cfg.Socket}
	s.GPUs = append(s.GPUs, e)
	return e, nil
}

// Close ends everything. It cuts off clients that are still attached. It returns the
// server's errors.
func (s *Shared) Close() error {
	err := errors.Join(s.shared.Close(), os.RemoveAll(s.dir))
	if s.Card != nil {
		err = errors.Join(err, s.Card.Close())
	}
	if s.failed.Len() > 0 {
		err = errors.Join(err, fmt.Errorf("the server logged: %s", s.failed.Bytes()))
	}
	return err
}
