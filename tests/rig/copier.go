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

// CopySize is the size of a copier's buffers.
const CopySize = 64 << 10

// Copier is a well-behaved guest. It copies from RAM through VRAM and back, and compares each byte.
type Copier struct {
	*guest.Guest
	Driver
	Ch       Channel
	Src, Via uint64 // where its buffers are

	chip       Chip
	back       uint64
	from, came []byte
	rng        *rand.Rand
}

// NewCopier attaches a copier as soon as the server has ended the client before.
func NewCopier(chip Chip, socket string, cfg guest.Config, seed int) (*Copier, error) {
	cfg.Timeout = Patience
	g, err := chip.attach(context.Background(), socket, cfg)
	for end := time.Now().Add(Patience); err != nil && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		g, err = chip.attach(context.Background(), socket, cfg)
	}
	if err != nil {
		return nil, err
	}
	c := &Copier{Guest: g, chip: chip, rng: rand.New(rand.NewPCG(uint64(seed), 7))}
	if err := c.Prepare(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return c, nil
}

// Prepare makes the channel and the buffers, at first and after a reset.
func (c *Copier) Prepare() (err error) {
	if c.Driver, err = c.chip.drive(c.Guest); err != nil {
		return err
	}
	if c.Ch, err = c.Open(1 + c.rng.IntN(2)); err != nil {
		return err
	}
	if c.Src, c.from, err = c.MapRAM(CopySize); err != nil {
		return err
	}
	if c.back, c.came, err = c.MapRAM(CopySize); err != nil {
		return err
	}
	c.Via, err = c.MapVRAM(2 * CopySize)
	return err
}

// Fill makes new data, and forgets what came back.
func (c *Copier) Fill() {
	for p := c.from; len(p) > 0; p = p[8:] {
		binary.LittleEndian.PutUint64(p, c.rng.Uint64())
	}
	clear(c.came)
}

// Copy copies new data, and checks it.
func (c *Copier) Copy() error {
	c.Fill()
	if err := errors.Join(c.Ch.Copy(c.Via, c.Src, CopySize), c.Ch.Copy(c.back, c.Via, CopySize)); err != nil {
		return err
	}
	return c.Check()
}

// Check waits for what was submitted. It fails if the data that came back is not Fill's, or if the
// GPU reported an error.
func (c *Copier) Check() error {
	if err := c.Ch.Finish(); err != nil {
		return err
	}
	if !bytes.Equal(c.from, c.came) {
		return errors.New("a copy came back changed")
	}
	for _, ev := range c.Events() {
		if ev.Fault != nil || ev.PBDMA != nil {
			return fmt.Errorf("got an error event that is not its own: %+v", ev)
		}
	}
	return nil
}
