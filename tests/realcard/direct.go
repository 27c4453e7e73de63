package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
)

// Direct is what a process has of the card without Umbra: the figures that a guest's are held against.
type Direct struct {
	Latency Spread        // from the doorbell to the semaphore
	Copy    float64       // GB/s inside the card's memory, 64 MiB
	Upload  float64       // GB/s from RAM to the card's memory, 64 MiB
	Jobs    time.Duration // jobsInRow of figureJob
}

// Spread is the distribution of a time.
type Spread struct{ P50, P99 time.Duration }

func spread(list []time.Duration) Spread {
	slices.Sort(list)
	return Spread{list[len(list)/2], list[len(list)*99/100]}
}

// Places in a channel's own memory: the notifier first, see nvrm.
const (
	ownRing    = 0x2000
	ownUSERD   = 0x1000
	ownRelease = 0x1800
	ownPush    = 0x10000
	ownSize    = 1 << 20
	entries    = 1024
)

// directChannel is a channel made without Umbra.
type directChannel struct {
	own       []byte
	bell      []byte
	va        uint64
	token     uint32
	put, last uint32
	push      uint64
}

// MeasureDirect measures the card /dev/nvidia<minor>.
func MeasureDirect(minor int) (d Direct, err error) {
	c, err := nvrm.Open(nvrm.Host{}, minor, true)
	if err != nil {
		return d, err
	}
	defer c.Close()
	space, err := c.NewSpace()
	if err != nil {
		return d, err
	}
	info, err := c.Info()
	if err != nil {
		return d, err
	}
	ch, err := newDirect(c, space, 0x1000_0000, info.Copies[len(info.Copies)-1], push.ClassHopperCopy)
	if err != nil {
		return d, err
	}
	if err := ch.run(new(push.Buffer).Bind(push.HopperCopy)); err != nil {
		return d, err
	}
	if d.Latency, err = ch.times(5000, func(b *push.Buffer) {}); err != nil {
		return d, err
	}
	if d.Copy, d.Upload, err = ch.bandwidth(c, space); err != nil {
		return d, err
	}
	d.Jobs, err = directJobs(c, space)
	return d, err
}

// directJobs runs the programs that a tenant runs, too.
func directJobs(c *nvrm.Client, space *nvrm.Space) (time.Duration, error) {
	const va, at = 0x3000_0000, 0x4000_0000
	ch, err := newDirect(c, space, 0x2000_0000, nvrm.Graphics, 0xcb97, classCompute, push.ClassHopperCopy)
	if err != nil {
		return 0, err
	}
	j := figureJob
	j.words = at
	p, _, err := shared(c, space, va, jobSize)
	words, _, wordsErr := shared(c, space, at, j.size())
	if err := errors.Join(err, wordsErr, c.Invalidate(space)); err != nil {
		return 0, err
	}
	j.layOut(p, va)
	if err := ch.run(launch(va)); err != nil { // it makes the context
		return 0, err
	}
	began := time.Now()
	for range jobsInRow {
		ch.submit(launch(va))
	}
	err = ch.wait()
	took := time.Since(began)
	return took, errors.Join(err, j.check(words))
}

func newDirect(c *nvrm.Client, space *nvrm.Space, va uint64, engine int, classes ...uint32) (*directChannel, error) {
	own, memory, err := shared(c, space, va, ownSize)
	if err != nil {
		return nil, err
	}
	channel, err := c.NewChannel(nvrm.ChannelConfig{
		Space: space, Engine: engine, Ring: va + ownRing, Entries: entries, Own: memory, USERD: ownUSERD, Classes: classes,
	})
	if err != nil {
		return nil, err
	}
	f, err := c.Doorbell()
	if err != nil {
		return nil, err
	}
	bell, err := unix.Mmap(int(f.OS().Fd()), 0, nvrm.DoorbellBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return &directChannel{own: own, bell: bell, va: va, token: channel.Token, push: ownPush}, err
}

// shared makes memory of this process that the card reaches at va.
func shared(c *nvrm.Client, space *nvrm.Space, va, n uint64) ([]byte, *nvrm.Memory, error) {
	mem, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	memory, err := c.Register(mem)
	if err != nil {
		return nil, nil, err
	}
	return mem, memory, c.Map(space, memory, nvrm.Map{VA: va, Size: n, Page: 4096})
}

// run submits commands, and waits for them.
func (ch *directChannel) run(b *push.Buffer) error {
	ch.submit(b)
	return ch.wait()
}

// submit submits commands with a release behind them. There is room for some hundred.
func (ch *directChannel) submit(b *push.Buffer) {
	ch.last++
	words := b.HopperRelease(ch.va+ownRelease, ch.last).Words
	if ch.push+uint64(len(words))*4 > ownSize {
		ch.push = ownPush
	}
	for i, w := range words {
		binary.LittleEndian.PutUint32(ch.own[ch.push+4*uint64(i):], w)
	}
	binary.LittleEndian.PutUint64(ch.own[ownRing+8*ch.put:], ch.va+ch.push|uint64(len(words))<<42)
	ch.push += 4 * uint64(len(words))
	ch.put = (ch.put + 1) % entries
	atomic.StoreUint32(word32(ch.own, ownUSERD+nvrm.USERDPut), ch.put)
	*word32(ch.bell, nvrm.DoorbellOffset) = ch.token // a plain store: see nvrm
}

// wait waits for what was submitted.
func (ch *directChannel) wait() error {
	for begin := time.Now(); atomic.LoadUint32(word32(ch.own, ownRelease)) != ch.last; {
		if time.Since(begin) > 5*time.Second {
			return fmt.Errorf("the card did not end commands in 5 s; Xid %d", *word32(ch.own, nvrm.NotifierXid))
		}
	}
	return nil
}

// times runs the same commands many times.
func (ch *directChannel) times(n int, add func(*push.Buffer)) (Spread, error) {
	took := make([]time.Duration, n)
	for i := range took {
		b := new(push.Buffer)
		add(b)
		begin := time.Now()
		if err := ch.run(b); err != nil {
			return Spread{}, err
		}
		took[i] = time.Since(begin)
	}
	return spread(took), nil
}

// bandwidth measures copies of 64 MiB.
func (ch *directChannel) bandwidth(c *nvrm.Client, space *nvrm.Space) (inside, upload float64, err error) {
	const n, card, ram = 64 << 20, 0x10_0000_0000, 0x8000_0000
	vram, err := c.NewVRAM(2 * n)
	if err != nil {
		return 0, 0, err
	}
	if err := c.Map(space, vram, nvrm.Map{VA: card, Size: 2 * n, Page: 2 << 20}); err != nil {
		return 0, 0, err
	}
	if _, _, err := shared(c, space, ram, n); err != nil {
		return 0, 0, err
	}
	if err := c.Invalidate(space); err != nil {
		return 0, 0, err
	}
	rate := func(dst, src uint64) (float64, error) {
		took, err := ch.times(20, func(b *push.Buffer) { b.Copy(push.HopperCopy, dst, src, n) })
		return n / float64(took.P50.Nanoseconds()), err
	}
	if inside, err = rate(card+n, card); err != nil {
		return 0, 0, err
	}
	upload, err = rate(card, ram)
	return inside, upload, err
}
