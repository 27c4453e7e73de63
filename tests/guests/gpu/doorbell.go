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

// OpenDoorbell makes the channel and runs one submission.
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

// Close frees the channel.
func (b *Doorbell) Close() error { return errors.Join(b.c.Flush(), b.page.Close(), b.c.Close()) }

// Ring rings the doorbell as a says.
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
	return res, fmt.Errorf("how %q: want %s, %s or %s", a.How, proto.DoorbellStore, proto.DoorbellLaunch, proto.DoorbellBatch)
}

// userdGPPut is the offset of GP_PUT in a page of USERD. Source: cl906f.h.
const userdGPPut = 0x8c

// together is how many stores are timed as one: reading the clock takes longer than a
// store without a trap.
const together = 10

// stores times half of the stores one by one, for the quantiles, and half in groups, for
// the cost of one. It takes the median of groups, because the host may deschedule the guest.
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

// launch submits the release of a semaphore. It times the driver's part, which includes
// the doorbell.
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

// eagerReads is how many reads of a semaphore follow each other without a pause.
const eagerReads = 1000

// await waits until everything launched is done. It only reads memory.
func (b *Doorbell) await() error {
	at := word(b.sem, 0)
	var end time.Time
	for reads := 1; at.Load() != b.done; reads++ {
		switch {
		case reads < eagerReads:
			runtime.Gosched()
			continue
		case reads == eagerReads:
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
