package rig

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/umbra-gpu/umbra/devmodel/guest"
)

// Where a copier has its buffers, and their size.
const (
	SrcVA  = 0x1000_0000
	ViaVA  = 0x2000_0000
	BackVA = 0x3000_0000

	CopySize = 64 << 10
)

// Copier is a well-behaved guest. It copies from RAM through VRAM and back, with every engine, and
// compares each byte.
type Copier struct {
	*guest.Guest
	Ch        *guest.Channel
	src, back *guest.Buffer
	rng       *rand.Rand
}

// NewCopier attaches a copier as soon as the server has ended the client before.
func NewCopier(socket string, cfg guest.Config, seed int) (*Copier, error) {
	cfg.Timeout = Patience
	g, err := guest.Attach(context.Background(), socket, cfg)
	for end := time.Now().Add(Patience); err != nil && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		g, err = guest.Attach(context.Background(), socket, cfg)
	}
	if err != nil {
		return nil, err
	}
	c := &Copier{Guest: g, rng: rand.New(rand.NewPCG(uint64(seed), 7))}
	if err := c.Prepare(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return c, nil
}

// Prepare makes the channel and the buffers, at first and after a reset.
func (c *Copier) Prepare() error {
	s, err := c.NewSpace()
	if err != nil {
		return err
	}
	if c.Ch, err = c.NewChannel(1, s); err != nil {
		return err
	}
	if c.src, err = c.AllocRAM(CopySize); err != nil {
		return err
	}
	if c.back, err = c.AllocRAM(CopySize); err != nil {
		return err
	}
	via, err := c.AllocVRAM(2 * CopySize)
	if err != nil {
		return err
	}
	return errors.Join(s.Map(SrcVA, c.src, guest.Small), s.Map(ViaVA, via, guest.Big), s.Map(BackVA, c.back, guest.Small))
}

// Copy copies new data by one of the engines.
func (c *Copier) Copy() error {
	for p := c.src.Data; len(p) > 0; p = p[8:] {
		binary.LittleEndian.PutUint64(p, c.rng.Uint64())
	}
	clear(c.back.Data)
	e := guest.CopyEngines[c.rng.IntN(len(guest.CopyEngines))]
	if err := errors.Join(c.Ch.Copy(e, ViaVA, SrcVA, CopySize), c.Ch.Copy(e, BackVA, ViaVA, CopySize), c.Ch.Finish()); err != nil {
		return err
	}
	if !bytes.Equal(c.src.Data, c.back.Data) {
		return fmt.Errorf("a copy by %v came back changed", e)
	}
	for _, ev := range c.Events() {
		if ev.Fault != nil || ev.PBDMA != nil {
			return fmt.Errorf("got an error event that is not its own: %+v", ev)
		}
	}
	return nil
}
