package main

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// Registers that are accessed: the first one of the chip, and the last of PBUS's
// scratch registers, which has no effect.
const (
	regBoot0   = 0x000000
	regScratch = 0x0014fc
)

// echoSlice is how many round trips are made on one socket before it is the other's
// turn, so that the machine's mood hits both.
const echoSlice = 200

// socket measures messages to a card.
func (b *bench) socket(ctx context.Context) error {
	return b.socketTimes(ctx, 20_000)
}

// socketTimes makes about n accesses of each kind a repetition.
func (b *bench) socketTimes(ctx context.Context, n int) (err error) {
	card, err := soft.New(soft.Config{VRAM: soft.MinVRAM})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, card.Close()) }()
	line, err := attach(serve.NewPassThrough(card))
	if err != nil {
		return err
	}
	defer line.close()
	bare, err := newEcho()
	if err != nil {
		return err
	}
	defer bare.close()

	// A connection and an echo are threads that block; so is this one.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := b.reads(ctx, line.fd, bare.fd, n); err != nil {
		return err
	}
	for _, p := range []struct {
		name  string
		count int
		flags uint32
	}{
		{"32 pipelined writes, each", 32, 0}, {"1,000 pipelined writes, each", 1000, 0},
		{"32 posted writes, each", 32, wire.NoReply}, {"1,000 posted writes, each", 1000, wire.NoReply},
	} {
		if err := b.writes(ctx, line.fd, p.name, p.count, p.flags, n); err != nil {
			return err
		}
	}
	return nil
}

// reads holds the read round trip against the echo's: the medians of many trips, so
// that a neighbour who takes the processor for a while changes neither.
func (b *bench) reads(ctx context.Context, fd, echo, n int) error {
	msg, reply := readMessage(regBoot0), make([]byte, 4096)
	var echoes, trips, ratios, cpu, allocs []float64
	taken := [2][]float64{make([]float64, 0, n+echoSlice), make([]float64, 0, n+echoSlice)}
	for range b.repeat {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var used usage
		taken[0], taken[1] = taken[0][:0], taken[1][:0]
		for len(taken[1]) < n {
			for k, s := range [2]int{echo, fd} {
				before := usageNow()
				for range echoSlice {
					at := time.Now()
					if err := exchange(s, msg, reply, len(msg)+4); err != nil {
						return err
					}
					taken[k] = append(taken[k], float64(time.Since(at)))
				}
				if k == 1 {
					used.add(usageNow().since(before))
				}
			}
		}
		done := float64(len(taken[1]))
		e, r := median(taken[0]), median(taken[1])
		echoes, trips, ratios = append(echoes, e), append(trips, r), append(ratios, r/e)
		cpu = append(cpu, float64(used.cpu)/done)
		allocs = append(allocs, float64(used.mallocs)/done)
	}
	b.add("bare blocking echo, round trip", nanoseconds, echoes)
	b.add("read of NV_PMC_BOOT_0, round trip", nanoseconds, trips)
	b.add("  read / echo", ratio, ratios, nearEcho)
	b.add("  processor time, client and server", nanoseconds, cpu)
	b.add("  allocations", perMessage, allocs)
	return nil
}

// exchange sends a message, or several at once, and takes in so many bytes of replies.
func exchange(fd int, msg, reply []byte, want int) error {
	for {
		_, err := unix.Write(fd, msg)
		if errors.Is(err, unix.EINTR) { // a profiler's signal
			continue
		}
		if err != nil {
			return os.NewSyscallError("write", err)
		}
		break
	}
	for got := 0; got < want; {
		n, err := unix.Read(fd, reply)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("read", err)
		}
		if n == 0 {
			return net.ErrClosed
		}
		got += n
	}
	return nil
}

// writes sends count writes at once and takes in their replies, or the reply of a
// read behind them if they are posted.
func (b *bench) writes(ctx context.Context, fd int, name string, count int, flags uint32, n int) error {
	var batch []byte
	for i := range count {
		batch = append(batch, writeMessage(regScratch, uint32(i), flags)...)
	}
	want := 32 * count
	if flags&wire.NoReply != 0 {
		batch = append(batch, readMessage(regBoot0)...)
		want = 36
	}
	reply := make([]byte, 256<<10)
	var times, cpu, allocs []float64
	taken := make([]float64, 0, n/count+1)
	for range b.repeat {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		taken = taken[:0]
		before := usageNow()
		for len(taken)*count < n {
			at := time.Now()
			if err := exchange(fd, batch, reply, want); err != nil {
				return err
			}
			taken = append(taken, float64(time.Since(at))/float64(count))
		}
		used := usageNow().since(before)
		done := float64(len(taken) * count)
		times = append(times, median(taken))
		cpu = append(cpu, float64(used.cpu)/done)
		allocs = append(allocs, float64(used.mallocs)/done)
	}
	if flags&wire.NoReply != 0 {
		b.add(name, nanoseconds, times)
	} else {
		b.add(name, nanoseconds, times, pipelined)
	}
	b.add("  processor time, client and server", nanoseconds, cpu)
	b.add("  allocations", perMessage, allocs)
	return nil
}

// usage is what the process has used.
type usage struct {
	cpu     time.Duration
	mallocs uint64
}

func usageNow() usage {
	var ru unix.Rusage
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if unix.Getrusage(unix.RUSAGE_SELF, &ru) != nil {
		return usage{} // it fails for no argument that is right
	}
	return usage{time.Duration(ru.Utime.Nano() + ru.Stime.Nano()), m.Mallocs}
}

func (u usage) since(before usage) usage {
	return usage{u.cpu - before.cpu, u.mallocs - before.mallocs}
}

func (u *usage) add(d usage) {
	u.cpu += d.cpu
	u.mallocs += d.mallocs
}

// endpoint is one end of a socket whose other end is served.
type endpoint struct {
	fd    int
	close func()
}

// attach serves a device on a socket pair and has the version agreed.
func attach(dev vfiouser.Device) (endpoint, error) {
	server, err := vfiouser.NewServer(dev, vfiouser.Options{})
	if err != nil {
		return endpoint{}, err
	}
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return endpoint{}, os.NewSyscallError("socketpair", err)
	}
	f := os.NewFile(uintptr(p[1]), "socket")
	conn, err := net.FileConn(f)
	f.Close()
	if err != nil {
		unix.Close(p[0])
		return endpoint{}, err
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.ServeConn(context.Background(), conn.(*net.UnixConn)) // what it says is that it was closed
	}()
	e := endpoint{p[0], func() {
		unix.Close(p[0])
		server.Close()
		<-served
	}}
	// The client negotiates on a duplicate, which it keeps.
	dup, err := unix.FcntlInt(uintptr(p[0]), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		var c *client.Client
		if c, err = client.NewFD(dup, nil); err == nil {
			err = c.Close()
		}
	}
	if err != nil {
		e.close()
		return endpoint{}, err
	}
	return e, nil
}

// newEcho answers each message with itself and 4 bytes more, in a loop of two
// blocking system calls on a thread of its own: the floor for any server.
func newEcho() (endpoint, error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return endpoint{}, os.NewSyscallError("socketpair", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		defer unix.Close(p[1])
		buf := make([]byte, 4096)
		for {
			n, err := unix.Read(p[1], buf)
			if n <= 0 || err != nil {
				return
			}
			if _, err := unix.Write(p[1], buf[:n+4]); err != nil {
				return
			}
		}
	}()
	return endpoint{p[0], func() {
		unix.Close(p[0])
		<-ended
	}}, nil
}

func message(cmd wire.Command, flags uint32, payload []byte) []byte {
	m := make([]byte, wire.HeaderSize, wire.HeaderSize+len(payload))
	wire.Header{ID: 7, Command: cmd, Size: uint32(wire.HeaderSize + len(payload)), Flags: flags}.Put(m)
	return append(m, payload...)
}

func readMessage(off uint64) []byte {
	return message(wire.RegionRead, 0, wire.RegionAccess{Offset: off, Count: 4}.Append(nil))
}

func writeMessage(off uint64, v, flags uint32) []byte {
	return message(wire.RegionWrite, flags, le.AppendUint32(wire.RegionAccess{Offset: off, Count: 4}.Append(nil), v))
}
