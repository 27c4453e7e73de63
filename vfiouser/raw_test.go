package vfiouser_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// pair returns two ends of a stream socket, in blocking mode.
func pair(t testing.TB) (a, b int) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	return p[0], p[1]
}

func unixConn(t testing.TB, fd int) *net.UnixConn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	require.NoError(t, err)
	return c.(*net.UnixConn)
}

// served returns the client's end of a connection that a server of dev serves.
func served(t testing.TB, dev vfiouser.Device, o vfiouser.Options) (fd int, srv *vfiouser.Server) {
	t.Helper()
	srv, err := vfiouser.NewServer(dev, o)
	require.NoError(t, err)
	a, b := pair(t)
	nc := unixConn(t, b)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.ServeConn(context.Background(), nc)
	}()
	t.Cleanup(func() {
		srv.Close()
		<-done
	})
	return a, srv
}

// benchDevice answers without doing anything, so that the protocol is all that is measured.
type benchDevice struct{ memDevice }

func (d *benchDevice) ReadRegion(int, uint64, []byte) error  { return nil }
func (d *benchDevice) WriteRegion(int, uint64, []byte) error { return nil }

func newBenchDevice(t testing.TB) vfiouser.Device {
	d := &benchDevice{}
	d.regions = newDevice(t).regions
	d.irqs = newDevice(t).irqs
	return d
}

func message(cmd wire.Command, flags uint32, payload []byte) []byte {
	b := make([]byte, wire.HeaderSize, wire.HeaderSize+len(payload))
	wire.Header{ID: 7, Command: cmd, Size: uint32(wire.HeaderSize + len(payload)), Flags: flags}.Put(b)
	return append(b, payload...)
}

func readMessage(off uint64) []byte {
	return message(wire.RegionRead, 0, wire.RegionAccess{Offset: off, Count: 4}.Append(nil))
}

func writeMessage(off uint64, flags uint32) []byte {
	return message(wire.RegionWrite, flags, append(wire.RegionAccess{Offset: off, Count: 4}.Append(nil), 1, 2, 3, 4))
}

// negotiated serves a benchmark device and has the version agreed.
func negotiated(b testing.TB, o vfiouser.Options) (int, *vfiouser.Server) {
	fd, srv := served(b, newBenchDevice(b), o)
	b.Cleanup(func() { unix.Close(fd) })
	roundTrip(b, fd, message(wire.Version, 0, []byte{0, 0, 0, 0, '{', '"', 'c', 'a', 'p', 'a', 'b', 'i', 'l', 'i', 't', 'i', 'e', 's', '"', ':',
		'{', '"', 'w', 'r', 'i', 't', 'e', '_', 'm', 'u', 'l', 't', 'i', 'p', 'l', 'e', '"', ':', 't', 'r', 'u', 'e', '}', '}', 0}), make([]byte, 256))
	return fd, srv
}

func roundTrip(b testing.TB, fd int, msg, reply []byte) int {
	if _, err := unix.Write(fd, msg); err != nil {
		b.Fatal(err)
	}
	n, err := unix.Read(fd, reply)
	if err != nil || n == 0 {
		b.Fatal(n, err)
	}
	return n
}

func cpuTime(b testing.TB) time.Duration {
	var ru unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &ru))
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// echo writes back each message of 32 bytes with 4 more, in a loop of two blocking system
// calls on a thread of its own: the floor for any server.
func echo(fd int) {
	runtime.LockOSThread()
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(fd, buf)
		if n <= 0 || err != nil {
			return
		}
		if _, err := unix.Write(fd, buf[:n+4]); err != nil {
			return
		}
	}
}

// BenchmarkSocketRead holds the read round trip against a bare blocking echo over the same
// kind of socket. The two alternate in slices of 50, and medians are compared, so that what
// else the machine does hits both alike.
func BenchmarkSocketRead(b *testing.B) {
	fd, _ := negotiated(b, vfiouser.Options{})
	efd, other := pair(b)
	var wg sync.WaitGroup
	wg.Go(func() { echo(other) })
	defer wg.Wait()
	defer unix.Close(efd)

	msg, reply := readMessage(0x10), make([]byte, 4096)
	var trips [2][]time.Duration
	for k := range trips {
		trips[k] = make([]time.Duration, 0, 1<<20)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b.ReportAllocs()
	for b.Loop() {
		for k, s := range [2]int{efd, fd} {
			for range 50 {
				start := time.Now()
				if roundTrip(b, s, msg, reply) != 36 {
					b.Fatal("short reply")
				}
				trips[k] = append(trips[k], time.Since(start))
			}
		}
	}
	e, r := median(trips[0]), median(trips[1])
	b.ReportMetric(e, "echo-p50-ns")
	b.ReportMetric(r, "read-p50-ns")
	b.ReportMetric(r/e, "read/echo")
	b.ReportMetric(0, "ns/op")
}

// median returns the middle one of ts, in nanoseconds.
func median(ts []time.Duration) float64 {
	slices.Sort(ts)
	return float64(ts[len(ts)/2])
}

func benchPipelined(b *testing.B, count int, flags uint32) {
	fd, _ := negotiated(b, vfiouser.Options{})
	var batch []byte
	for i := range count {
		batch = append(batch, writeMessage(uint64(i%1000)*4, flags)...)
	}
	want := 32 * count
	if flags&wire.NoReply != 0 {
		batch = append(batch, readMessage(0)...)
		want = 36
	}
	reply := make([]byte, 256<<10)
	batches := make([]time.Duration, 0, 1<<18)
	cpu := cpuTime(b)
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		if _, err := unix.Write(fd, batch); err != nil {
			b.Fatal(err)
		}
		for got := 0; got < want; {
			n, err := unix.Read(fd, reply)
			if err != nil {
				b.Fatal(err)
			}
			got += n
		}
		batches = append(batches, time.Since(start))
	}
	b.ReportMetric(median(batches)/float64(count), "p50-ns/msg")
	b.ReportMetric(float64((cpuTime(b)-cpu).Nanoseconds())/float64(b.N)/float64(count), "cpu-ns/msg")
}

func BenchmarkPipelinedWrites32(b *testing.B)   { benchPipelined(b, 32, 0) }
func BenchmarkPipelinedWrites1000(b *testing.B) { benchPipelined(b, 1000, 0) }
func BenchmarkPostedWrites32(b *testing.B)      { benchPipelined(b, 32, wire.NoReply) }
func BenchmarkPostedWrites1000(b *testing.B)    { benchPipelined(b, 1000, wire.NoReply) }

// BenchmarkPostedWritesSingle sends each posted write in a system call of its own, as QEMU
// does, and waits for the server every 1000.
func BenchmarkPostedWritesSingle(b *testing.B) {
	fd, srv := negotiated(b, vfiouser.Options{})
	msg, read, reply := writeMessage(0x20, wire.NoReply), readMessage(0), make([]byte, 64)
	cpu, i := cpuTime(b), 0
	for b.Loop() {
		if _, err := unix.Write(fd, msg); err != nil {
			b.Fatal(err)
		}
		if i++; i%1000 == 0 {
			roundTrip(b, fd, read, reply)
		}
	}
	roundTrip(b, fd, read, reply)
	b.ReportMetric(float64((cpuTime(b)-cpu).Nanoseconds())/float64(b.N), "cpu-ns/msg")
	st := srv.Stats()
	var reads uint64
	for _, n := range st.BatchSizes {
		reads += n
	}
	b.ReportMetric(float64(st.Commands[wire.RegionWrite].Messages)/float64(reads), "msg/recv")
}

func BenchmarkWriteMulti200(b *testing.B) {
	fd, _ := negotiated(b, vfiouser.Options{})
	payload := le.AppendUint64(nil, 200)
	for i := range 200 {
		payload = wire.RegionAccess{Offset: uint64(i) * 4, Count: 4}.Append(payload)
		payload = le.AppendUint64(payload, uint64(i))
	}
	msg, reply := message(wire.RegionWriteMulti, 0, payload), make([]byte, 64)
	for b.Loop() {
		if roundTrip(b, fd, msg, reply) != 24 {
			b.Fatal("short reply")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/200, "ns/write")
}

// BenchmarkReadBesideEngines is the read round trip while goroutines compute on every
// processor the scheduler has, as a software card's engines do. A connection's thread that
// comes out of recvmsg needs one of them; with one more than there are processors the kernel
// decides who runs, and it prefers a thread that has just slept. The client is a process of
// its own, as QEMU is.
func BenchmarkReadBesideEngines(b *testing.B) {
	for _, extra := range []int{0, 1, 2} {
		b.Run(fmt.Sprintf("procs+%d", extra), func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + extra))
			fd, _ := negotiated(b, vfiouser.Options{})
			var stop atomic.Bool
			var wg sync.WaitGroup
			for range runtime.NumCPU() {
				wg.Go(func() {
					for n := 0; !stop.Load(); n++ {
						runtime.KeepAlive(n)
					}
				})
			}
			defer wg.Wait()
			defer stop.Store(true)
			out, err := pingProcess(fd)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(out[0], "p50-us")
			b.ReportMetric(out[1], "p99-us")
			b.ReportMetric(out[2], "max-us")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// pingEnv makes TestMain a client that measures reads on descriptor 3.
const pingEnv = "VFIOUSER_PING"

func pingProcess(fd int) (out [3]float64, err error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), pingEnv+"=1")
	dup, err := unix.Dup(fd)
	if err != nil {
		return out, err
	}
	f := os.NewFile(uintptr(dup), "socket")
	defer f.Close()
	cmd.ExtraFiles = []*os.File{f}
	text, err := cmd.Output()
	if err != nil {
		return out, err
	}
	_, err = fmt.Sscan(string(text), &out[0], &out[1], &out[2])
	return out, err
}

func ping() {
	msg, reply := readMessage(0x10), make([]byte, 64)
	times := make([]time.Duration, 2000)
	for i := range times {
		start := time.Now()
		if _, err := unix.Write(3, msg); err != nil {
			panic(err)
		}
		if n, err := unix.Read(3, reply); n != 36 || err != nil {
			panic(fmt.Sprint(n, err))
		}
		times[i] = time.Since(start)
		time.Sleep(100 * time.Microsecond)
	}
	slices.Sort(times)
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	fmt.Println(us(times[len(times)/2]), us(times[len(times)*99/100]), us(times[len(times)-1]))
}

func BenchmarkSlice(b *testing.B) {
	r := newRig(b, newDevice(b), vfiouser.Options{})
	c := r.dial(nil)
	ram, err := client.Alloc(64 << 20)
	require.NoError(b, err)
	defer ram.Close()
	for i := range uint64(32) {
		require.NoError(b, c.Map(i<<21, ram, i<<20, 1<<20, client.ReadWrite))
	}
	m := r.dev.Host().Memory()
	b.Run("same", func(b *testing.B) {
		m.Acquire()
		defer m.Release()
		for b.Loop() {
			if m.Slice(5<<21, 64, true) == nil {
				b.Fatal("nil")
			}
		}
	})
	b.Run("scattered", func(b *testing.B) {
		m.Acquire()
		defer m.Release()
		i := uint64(0)
		for b.Loop() {
			i = (i*5 + 7) & 31
			if m.Slice(i<<21, 64, true) == nil {
				b.Fatal("nil")
			}
		}
	})
	b.Run("acquired", func(b *testing.B) {
		for b.Loop() {
			m.Acquire()
			s := m.Slice(5<<21, 64, true)
			m.Release()
			if s == nil {
				b.Fatal("nil")
			}
		}
	})
}

func BenchmarkTrigger(b *testing.B) {
	r := newRig(b, newDevice(b), vfiouser.Options{})
	c := r.dial(nil)
	es, err := c.AttachIRQs(vfiouser.IRQMSI, 0, 1)
	require.NoError(b, err)
	defer es[0].Close()
	h := r.dev.Host()
	b.ReportAllocs()
	for b.Loop() {
		h.Trigger(vfiouser.IRQMSI, 0)
	}
}
