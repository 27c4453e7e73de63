package gpu

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/tests/guests/drm"
	"github.com/umbra-gpu/umbra/tests/guests/push"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// Doorbell is a channel for measuring what it costs to ring its doorbell.
type Doorbell struct {
	env  *Env
	node string
	c    client
	page Buffer
	sem  []byte
	done uint32

	limit time.Duration // for one wait
}

// maxDoorbells bounds one request.
const maxDoorbells = 100_000

// OpenDoorbell makes it, and has it run something.
func (e *Env) OpenDoorbell(a proto.NodeArgs) (_ *Doorbell, err error) {
	b := &Doorbell{env: e, node: a.Node, limit: patience}
	if b.c, err = e.client(a.Node); err != nil {
		return nil, err
	}
	if b.page, err = b.c.dev.NewBuffer(4096, drm.DomainGART, drm.BufferOptions{}); err != nil {
		return nil, errors.Join(err, b.c.Close())
	}
	if b.sem, err = b.page.Bytes(); err == nil {
		word(b.sem, 0).Store(0)
		err = b.launch(new(push.Buffer), new(int64))
	}
	if err == nil {
		err = b.await()
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Close ends it.
func (b *Doorbell) Close() error { return errors.Join(b.c.Flush(), b.page.Close(), b.c.Close()) }

// Ring rings.
func (b *Doorbell) Ring(a proto.DoorbellArgs) (res proto.DoorbellResult, err error) {
	if a.Count < 1 || a.Count > maxDoorbells {
		return res, fmt.Errorf("%d doorbells: want 1 to %d", a.Count, maxDoorbells)
	}
	switch a.How {
	case proto.DoorbellStore:
		return b.stores(a.Count)
	case proto.DoorbellLaunch:
		return b.launches(a.Count)
	case proto.DoorbellBatch:
		return b.behind(max(a.Count/slots, 1))
	}
	return res, fmt.Errorf("a doorbell rung by %q: want %s, %s or %s", a.How, proto.DoorbellStore, proto.DoorbellLaunch, proto.DoorbellBatch)
}

// userdGPPut is where GP_PUT is in a page of USERD. Source: cl906f.h.
const userdGPPut = 0x8c

// together is how many stores are timed in one: to look at the clock takes longer than a
// store that nobody traps.
const together = 10

// stores are half of them timed one by one, for the quantiles, and half some together, for
// what one takes: the median, for the guest may lose its processor in between.
func (b *Doorbell) stores(n int) (res proto.DoorbellResult, err error) {
	if err := b.c.Flush(); err != nil {
		return res, err
	}
	page, done, err := b.env.USERD(b.node, b.c.ch.ID())
	if err != nil {
		return res, err
	}
	defer done()
	at := &page[userdGPPut/4]
	put := *at
	each := make([]int64, (n+1)/2)
	for i := range each {
		start := time.Now()
		*at = put // one plain store: an atomic one is an exchange, which reads as well
		each[i] = time.Since(start).Nanoseconds()
	}
	res.P50NS, res.P99NS = quantiles(each)
	var some []float64
	for range max(n/2/together, 1) {
		some = append(some, access("", together, func(int) { *at = put }).NS)
	}
	res.NS, res.Count = middle(some), len(each)+together*len(some)
	return res, b.c.ch.Alive()
}

func (b *Doorbell) launches(n int) (res proto.DoorbellResult, err error) {
	launched, worked := make([]int64, n), make([]int64, n)
	var p push.Buffer
	began := time.Now()
	for i := range n {
		start := time.Now()
		if err := b.launch(&p, &launched[i]); err != nil {
			return res, err
		}
		if err := b.await(); err != nil {
			return res, err
		}
		worked[i] = time.Since(start).Nanoseconds()
	}
	res.Count, res.NS = n, float64(time.Since(began).Nanoseconds())/float64(n)
	res.P50NS, res.P99NS = quantiles(launched)
	res.WorkP50NS, res.WorkP99NS = quantiles(worked)
	return res, b.c.ch.Alive()
}

func (b *Doorbell) behind(rounds int) (res proto.DoorbellResult, err error) {
	var p push.Buffer
	var ns int64
	began := time.Now()
	for range rounds {
		for range slots {
			if err := b.launch(&p, &ns); err != nil {
				return res, err
			}
		}
		if err := b.await(); err != nil {
			return res, err
		}
	}
	res.Count = rounds * slots
	res.NS = float64(time.Since(began).Nanoseconds()) / float64(res.Count)
	return res, b.c.ch.Alive()
}

// launch submits the release of a semaphore. What is timed is the driver's part, and the
// doorbell in it.
func (b *Doorbell) launch(p *push.Buffer, took *int64) error {
	p.Reset()
	p.Semaphore(subchanM2MF, b.page.VA(), b.done+1, push.SemRelease|push.SemOneWord)
	list, segments, err := b.c.stage(p, ref(b.page, drm.DomainGART, true))
	if err != nil {
		return err
	}
	start := time.Now()
	err = b.c.ch.Submit(list, segments, false)
	*took = time.Since(start).Nanoseconds()
	b.done++
	return err
}

// Looks at a semaphore that come one right after the other; then the processor is left to
// others in between.
const eagerLooks = 1000

// await waits until all that was launched is done, and looks at nothing but memory.
func (b *Doorbell) await() error {
	at := word(b.sem, 0)
	var end time.Time
	for looks := 1; at.Load() != b.done; looks++ {
		switch {
		case looks < eagerLooks:
			runtime.Gosched()
			continue
		case looks == eagerLooks:
			end = time.Now().Add(b.limit)
		case time.Now().After(end):
			return fmt.Errorf("the semaphore stays at %d of %d", at.Load(), b.done)
		}
		pause := unix.NsecToTimespec(int64(20 * time.Microsecond))
		_ = unix.Nanosleep(&pause, nil)
	}
	return nil
}

func quantiles(each []int64) (p50, p99 int64) {
	slices.Sort(each)
	return each[len(each)/2], each[len(each)*99/100]
}
