package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// attack is one way to disturb others. A guest can make most of them; those of a client need the
// program that has the socket, a machine monitor that was taken over.
type attack struct {
	name, about string
	// beside is the neighbour that wants the engine too, and with which an attack on the engine is
	// compared; "" is a GPU without a guest.
	beside string
	// run attacks the GPU at a socket for ever, or panics with a failure. It calls ready once the
	// attack is under way.
	run func(socket string, ready func())
}

// peaceful is the attack that is none.
const peaceful = "none"

var attacks = append([]attack{
	{peaceful, "no attack, but a neighbour that copies, to see the noise", peaceful, copyForEver},
	{"sparse-maps", "a client maps sparse files until the server's addresses are spent", "", sparseMaps},
	{"cold", "a guest copies two bytes of each of many pages that were never used, on three channels", peaceful, cold},
	{"parked", "a guest lets 30 channels wait for a semaphore, and releases all at once", unparked.name, bursts(1)},
	{"standing", "a guest lets 29 channels wait for a semaphore that never comes, and releases it on one all the time", unparked.name, standing},
	{"events", "a guest copies, and raises an event after each 64 KiB", peaceful, eventStorm},
	{"sparse-use", "a client has engines touch all of a sparse file, and empties it again", peaceful, sparseUse},
	{"unmaps", "a client has an engine touch 5 GiB of memory, and unmaps it", peaceful, takeBack(false)},
	{"power-offs", "a client has an engine touch 5 GiB of memory, and ends", peaceful, takeBack(true)},
	{"resets", "a client resets the device without a pause", "", resets},
	{"long-request", "a guest makes one request of a minute", peaceful, longRequest},
	{"gsp-calls", "a guest with a GH100 allocates objects at GSP until none is left, and frees them", peaceful, onGH100(calls)},
	{"gsp-garbage", "a guest with a GH100 calls random functions of GSP with random bytes", peaceful, onGH100(garbage)},
	{"flushes", "a guest with a GH100 maps 4 MiB after 4 MiB, with a flush each", peaceful, onGH100(flushes)},
	{"doorbells", "a guest with a GH100 rings for channels that it does not have", peaceful, onGH100(doorbells)},
}, programAttacks()...)

// sockets are those of attackers whose GPU is not a GF100.
var sockets = map[string]string{"gsp-calls": processor, "gsp-garbage": processor, "flushes": processor, "doorbells": processor}

// unparked is no attack, but what parked is compared with.
var unparked = attack{name: "unparked", run: bursts(0)}

func names() (out []string) {
	for i := range attacks {
		out = append(out, attacks[i].name)
	}
	return out
}

// failure ends what caught calls, as Fatal ends a test.
type failure struct{ error }

func must(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		panic(failure{err})
	}
}

func get[T any](v T, err error) T {
	must(err)
	return v
}

// caught returns the failure that ends do.
func caught(do func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = p.(failure).error
		}
	}()
	do()
	return nil
}

// attackCommand is the argument that makes this program an attacker.
const attackCommand = "attack"

// attackForEver attacks the GPU at a socket until the process is killed, also if the server ends
// an attack.
func attackForEver(name, socket string) error {
	all := append(slices.Clone(attacks), unparked)
	i := slices.IndexFunc(all, func(a attack) bool { return a.name == name })
	// The processor time of a machine is its host's business.
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 19); err != nil {
		return err
	}
	err := caught(func() { all[i].run(socket, func() { fmt.Println("ready") }) })
	// It begins again, with nothing left of the first time.
	fmt.Fprintln(os.Stderr, err)
	time.Sleep(100 * time.Millisecond)
	return unix.Exec("/proc/self/exe", os.Args, os.Environ())
}

// eventually tries something that fails while the last client has not left.
func eventually[T any](try func() (T, error)) T {
	var v T
	var err error
	for range 100 {
		if v, err = try(); err == nil {
			return v
		}
		time.Sleep(20 * time.Millisecond)
	}
	panic(failure{err})
}

func attach(socket string) party {
	g := eventually(func() (*guest.Guest, error) {
		return guest.Attach(context.Background(), socket, guest.Config{Map: true, Timeout: time.Hour})
	})
	return newParty(g, guest.ChannelConfig{Push: 256 << 10})
}

func dial(socket string) *client.Client {
	return eventually(func() (*client.Client, error) { return client.Dial(socket, nil) })
}

func copyForEver(socket string, ready func()) {
	p := attach(socket)
	ready()
	must(p.saturate(context.Background(), time.Now().Add(time.Hour)))
	panic(failure{errors.New("an hour is over")})
}

// sparseFile makes a file of n bytes that has no page.
func sparseFile(n int64) *client.Memory {
	fd := get(unix.MemfdCreate("sparse", unix.MFD_CLOEXEC))
	must(unix.Ftruncate(fd, n))
	return &client.Memory{FD: fd}
}

func sparseMaps(socket string, ready func()) {
	c := dial(socket)
	taken := 0
	spend := func(times int, sizes ...int64) {
		for range times {
			for _, size := range sizes {
				m := sparseFile(size)
				if c.Map(uint64(taken)<<40, m, 0, 4096, client.ReadWrite) == nil {
					taken++
				}
				must(unix.Close(m.FD))
			}
		}
	}
	spend(62, 2<<40)
	for size := int64(4 << 40); size > 1<<24; size /= 2 { // what is left of 128 TiB, in several pieces
		spend(3, size)
	}
	fmt.Fprintf(os.Stderr, "%d maps of sparse files were taken\n", taken)
	ready()
	for at := uint64(1) << 50; c.MapNoFD(at, &client.Memory{}, 0, 4096, client.ReadWrite) == nil; at += 8192 { // make the server allocate
	}
	for {
		must(c.Reset())
	}
}

const (
	vaSparse  = 0x20_0000_0000
	busSparse = uint64(0x1_0000_0000)
)

// mapSparse maps a sparse file in the machine and in an address space. punch empties it.
func (p *party) mapSparse(n int64) (fd int, punch func()) {
	m := sparseFile(n)
	must(
		p.g.Raw().Client().Map(busSparse, m, 0, uint64(n), client.ReadWrite),
		p.s.MapAddr(vaSparse, shadowpt.SystemCoherent, busSparse, uint64(n), guest.Small),
	)
	return m.FD, func() { must(unix.Fallocate(m.FD, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, n)) }
}

func cold(socket string, ready func()) {
	const channels, size, lines, launches = 3, 512 << 20, 8191, 16
	p := attach(socket)
	fd, punch := p.mapSparse(size)
	list := p.channels(channels)
	for ready(); ; {
		punch()
		must(unix.Fallocate(fd, 0, 0, size)) // new pages, which the server has not used
		var fences []guest.Fence
		for k, ch := range list {
			var words guest.Push
			for i := k; i < launches; i += channels {
				from, to := uint64(i)*(size/launches), uint64((i+launches/2)%launches)*(size/launches)
				words.CopyLines(engine, guest.Surface{VA: vaSparse + to, Pitch: 4096}, guest.Surface{VA: vaSparse + from, Pitch: 4096}, 2, lines)
			}
			must(ch.Submit(words.Words...))
			fences = append(fences, get(ch.Fence()))
		}
		for _, f := range fences {
			must(p.g.Poll(f))
		}
	}
}

func sparseUse(socket string, ready func()) {
	const size = 1 << 30
	p := attach(socket)
	_, punch := p.mapSparse(size)
	for ready(); ; {
		for at := uint64(0); at < size; at += largeCopy {
			must(p.ch.Copy(engine, vaSparse+at, vaFrom, largeCopy))
		}
		must(p.ch.Finish())
		punch()
	}
}

// takeBack has the card touch all pages of a file, and takes them back all at once: by an unmap, or
// by the client's end.
func takeBack(end bool) func(string, func()) {
	const size, part, page, lines = 5 << 30, 1 << 30, 4096, 4096
	return func(socket string, ready func()) {
		m := sparseFile(size)
		must(unix.Fallocate(m.FD, 0, 0, size))
		for {
			p := attach(socket)
			for again := true; again; again = !end {
				must(p.g.Raw().Client().Map(busSparse, m, 0, size, client.Readable))
				for at := uint64(0); at < size; at += part { // tables of all would be too large
					must(p.s.MapAddr(vaSparse, shadowpt.SystemCoherent, busSparse+at, part, guest.Small|guest.ReadOnly))
					var words guest.Push
					for va := uint64(vaSparse); va < vaSparse+part; va += lines * page {
						words.CopyLines(engine, guest.Surface{VA: vaTo}, guest.Surface{VA: va, Pitch: page}, 2, lines)
					}
					must(p.ch.Submit(words.Words...), p.ch.Finish(), p.s.Unmap(vaSparse, part, guest.Small))
				}
				if ready(); !end {
					must(p.g.Raw().Client().Unmap(busSparse, size))
				}
			}
			must(p.g.Close())
		}
	}
}

// bursts makes requests on 30 channels. Those of a burst wait until the burst before is done, or,
// if none is ahead, run at once.
func bursts(ahead uint32) func(string, func()) {
	return func(socket string, ready func()) {
		const channels, request = 30, 16 // copies of a channel in each burst
		p := attach(socket)
		sem := p.mapped(vaPage, 4096)
		list := p.channels(channels)
		var fences [2][channels]guest.Fence
		for burst := uint32(1); ; burst++ {
			for i, ch := range list {
				var words guest.Push
				words.Semaphore(vaPage, burst, guest.SemAcquireGE|guest.SemSwitch)
				for range request {
					words.Copy(engine, vaTo, vaFrom, largeCopy)
				}
				if ahead == 0 {
					binary.LittleEndian.PutUint32(sem.Data, burst)
				}
				must(ch.Submit(words.Words...))
				fences[burst%2][i] = get(ch.Fence())
			}
			if burst <= ahead {
				continue
			}
			binary.LittleEndian.PutUint32(sem.Data, burst-ahead)
			if burst == ahead+1 {
				ready()
			}
			for _, f := range fences[(burst-ahead)%2] {
				must(p.g.Poll(f))
			}
		}
	}
}

// standing has channels wait for a value that a semaphore never has, and releases other values.
func standing(socket string, ready func()) {
	const channels, never, releases = 30, 1 << 30, 64
	p := attach(socket)
	p.mapped(vaPage, 4096)
	for _, ch := range p.channels(channels)[1:] {
		must(ch.Submit(new(guest.Push).Semaphore(vaPage, never, guest.SemAcquireGE|guest.SemSwitch).Words...))
	}
	var words guest.Push
	for i := range uint32(releases) {
		words.Semaphore(vaPage, i, guest.SemRelease).Inc(0, push.HostYield, 0)
	}
	for ready(); ; {
		for range underWay {
			must(p.ch.Submit(words.Words...))
		}
		must(p.g.Poll(get(p.ch.Fence())))
	}
}

func eventStorm(socket string, ready func()) {
	const piece = 64 << 10
	p := attach(socket)
	var words guest.Push
	for at := uint64(0); at < largeCopy; at += piece {
		words.Copy(engine, vaTo+at, vaFrom+at, piece).NonStall(engine)
	}
	for ready(); ; {
		for range underWay {
			must(p.ch.Submit(words.Words...))
		}
		must(p.g.Poll(get(p.ch.Fence())))
	}
}

func resets(socket string, ready func()) {
	c := dial(socket)
	for ready(); ; {
		must(c.Reset())
	}
}

func longRequest(socket string, ready func()) {
	p := attach(socket)
	var words guest.Push
	for range 1400 { // 512 MiB each, in lines that lie on each other
		words.CopyLines(engine, guest.Surface{VA: vaTo}, guest.Surface{VA: vaFrom}, 0xfffc, 8191)
	}
	must(p.ch.Submit(words.Words...))
	for ready(); ; {
		must(p.ch.Finish(), p.ch.Submit(words.Words...))
	}
}
