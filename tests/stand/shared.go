package stand

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Shared is a software card that an aggregator shares among virtual GPUs, each
// served on a socket of its own.
type Shared struct {
	Card *soft.Card
	Agg  *aggregator.Aggregator
	GPUs []*Seat

	dir string
}

// Seat is one virtual GPU and its server.
type Seat struct {
	*serve.Virtual
	Watched *serve.Watched // counts its traps
	Server  *vfiouser.Server
	Socket  string

	cancel context.CancelFunc
	served chan error
}

// NewShared makes a card and n virtual GPUs of vram bytes each.
func NewShared(cardCfg soft.Config, n int, vram uint64) (*Shared, error) {
	c, err := soft.New(cardCfg)
	if err != nil {
		return nil, err
	}
	s := &Shared{Card: c}
	if s.Agg, err = aggregator.New(c); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if s.dir, err = os.MkdirTemp("", "umbra-"); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	for i := range n {
		if err := s.Add(fmt.Sprintf("gpu%d", i), vram); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Add makes one more virtual GPU.
func (s *Shared) Add(name string, vram uint64) error {
	return s.AddGPU(aggregator.GuestConfig{Name: name, VRAM: vram})
}

// AddGPU makes one more virtual GPU, as share says.
func (s *Shared) AddGPU(share aggregator.GuestConfig) error {
	name := share.Name
	v, err := serve.NewVirtual(s.Agg, share, devmodel.Config{})
	if err != nil {
		return err
	}
	watched := serve.Watch(v, slog.New(slog.DiscardHandler))
	seat := &Seat{Virtual: v, Watched: watched, Socket: filepath.Join(s.dir, name+".sock"), served: make(chan error, 1)}
	if seat.Server, err = vfiouser.NewServer(watched, vfiouser.Options{}); err != nil {
		return errors.Join(err, v.Close())
	}
	l, err := vfiouser.Listen(seat.Socket)
	if err != nil {
		return errors.Join(err, v.Close())
	}
	var ctx context.Context
	ctx, seat.cancel = context.WithCancel(context.Background())
	go func() { seat.served <- seat.Server.Serve(ctx, l) }()
	s.GPUs = append(s.GPUs, seat)
	return nil
}

// Remove takes a virtual GPU out of service.
func (s *Shared) Remove(i int) error {
	seat := s.GPUs[i]
	s.GPUs = append(s.GPUs[:i:i], s.GPUs[i+1:]...)
	return seat.close()
}

func (seat *Seat) close() error {
	seat.cancel()
	err := <-seat.served
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, seat.Virtual.Close())
}

// Close ends everything. The clients must have gone, or are cut off.
func (s *Shared) Close() error {
	var errs []error
	for _, seat := range s.GPUs {
		errs = append(errs, seat.close())
	}
	return errors.Join(append(errs, s.Agg.Close(), s.Card.Close(), os.RemoveAll(s.dir))...)
}
