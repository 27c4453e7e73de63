package watch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// attack is one way to disturb others. A guest can make those of a guest; the others need the
// program that has the socket, a machine monitor that was taken over.
type attack struct {
	name, who, about string
	// beside is the neighbour that wants the engine too, and with which an attack on the engine is
	// compared; "" is a GPU without a guest.
	beside string
	// silent says that it makes no events, so it must hear none.
	silent bool
	// run attacks the GPU at a socket for ever. It calls ready once the attack is under way.
	run func(socket string, ready func()) error
}

const (
	byGuest  = "guest"
	byClient = "client"
)

var attacks = []attack{
	{"none", byGuest, "no attack, but a neighbour that copies, to see the noise", peaceful, false, copyForEver},
	{"sparse-maps", byClient, "maps sparse files until the server's addresses are spent", "", false, sparseMaps},
	{"cold-1", byGuest, "copies two bytes of each of many pages that were never used, on one channel", peaceful, false, cold(1)},
	{"cold-3", byGuest, "the same on three channels", peaceful, false, cold(3)},
	{"foreign-file", byClient, "gives a file as memory whose file system never answers", "", false, foreignFile},
	{"parked", byGuest, "lets 30 channels wait for a semaphore, and releases all at once", "unparked", false, parked},
	{"standing", byGuest, "lets 29 channels wait for a semaphore that never comes, and releases it on one all the time", "unparked", false, standing},
	{"full-eventfd", byClient, "fills the eventfd of an interrupt between the server's look and its write", "", false, fullEventFD},
	{"listener", byGuest, "waits at a semaphore for ever and listens to events", "", true, listener},
	{"events", byGuest, "copies, and raises an event after each 64 KiB", peaceful, false, eventStorm},
	{"sparse-use", byClient, "has engines touch all of a sparse file, and empties it again", peaceful, false, sparseUse},
	{"huge-pages", byClient, "maps and unmaps parts of huge pages", "", false, hugePages},
	{"unmaps", byClient, "has an engine touch 5 GiB of memory, and unmaps it", peaceful, false, takeBack(false)},
	{"power-offs", byClient, "has an engine touch 5 GiB of memory, and ends", peaceful, false, takeBack(true)},
	{"resets", byClient, "resets the device without a pause", "", false, resets},
	{"long-request", byGuest, "makes one request of a minute", peaceful, false, longRequest},
	{"endless-program", byGuest, "runs a program of many blocks that does not end", peaceful, false, endlessProgram},
}

// peaceful is the attack that is none.
const peaceful = "none"

// neighbours are no attacks, but what attacks are compared with.
var neighbours = []attack{{name: "unparked", run: unparked}}

func names() (out []string) {
	for i := range attacks {
		out = append(out, attacks[i].name)
	}
	return out
}

// skip begins the message of an attack that this machine does not allow.
const skip = "skipped: "

// Attack attacks the GPU at a socket until the process is killed, also if the server ends an
// attack.
func Attack(name, socket string, ready func()) error {
	for _, a := range slices.Concat(attacks, neighbours) {
		if a.name == name {
			// The processor time of a machine is its host's business.
			if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 19); err != nil {
				return err
			}
			err := a.run(socket, ready)
			if strings.HasPrefix(err.Error(), skip) {
				return err
			}
			// It begins again, with nothing left of the first time.
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(100 * time.Millisecond)
			return unix.Exec("/proc/self/exe", os.Args, os.Environ())
		}
	}
	return fmt.Errorf("%s is no attack", name)
}

// attach attaches a guest, as soon as the last client has left.
func attach(socket string, ram uint64) (g *guest.Guest, s *guest.Space, err error) {
	for range 100 {
		if g, err = guest.Attach(context.Background(), socket, guest.Config{Map: true, RAM: ram, Timeout: time.Hour}); err == nil {
			s, err = g.NewSpace()
			return g, s, err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, nil, err
}

func dial(socket string) (c *client.Client, err error) {
	for range 100 {
		if c, err = client.Dial(socket, nil); err == nil {
			return c, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, err
}

// vram maps new VRAM at each address.
func vram(g *guest.Guest, s *guest.Space, size uint64, vas ...uint64) error {
	for _, va := range vas {
		b, err := g.AllocVRAM(size)
		if err != nil {
			return err
		}
		if err := s.Map(va, b, guest.Big); err != nil {
			return err
		}
	}
	return nil
}

func copyForEver(socket string, ready func()) error {
	g, s, err := attach(socket, 0)
	if err != nil {
		return err
	}
	ch, err := g.NewChannel(1, s)
	if err != nil {
		return err
	}
	if err := errors.Join(vram(g, s, largeCopy, vaFrom, vaTo), ch.Finish()); err != nil {
		return err
	}
	ready()
	return saturate(context.Background(), g, ch, time.Now().Add(time.Hour))
}

// sparseFile makes a file of n bytes that has no page.
func sparseFile(n int64, flags int) (*client.Memory, error) {
	fd, err := unix.MemfdCreate("sparse", unix.MFD_CLOEXEC|flags)
	if err != nil {
		return nil, err
	}
	return &client.Memory{FD: fd}, unix.Ftruncate(fd, n)
}

func empty(m *client.Memory, n int64) error {
	return unix.Fallocate(m.FD, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, n)
}

// renew gives a file new pages, which the server has not used.
func renew(m *client.Memory, n int64) error {
	return errors.Join(empty(m, n), unix.Fallocate(m.FD, 0, 0, n))
}

func sparseMaps(socket string, ready func()) error {
	c, err := dial(socket)
	if err != nil {
		return err
	}
	taken := 0
	spend := func(size int64) error {
		m, err := sparseFile(size, 0)
		if err != nil {
			return err
		}
		if c.Map(uint64(taken)<<40, m, 0, 4096, client.ReadWrite) == nil {
			taken++
		}
		return unix.Close(m.FD)
	}
	for range 62 {
		err = errors.Join(err, spend(2<<40))
	}
	for range 3 { // what is left of 128 TiB, in several pieces
		for size := int64(4 << 40); size > 1<<24; size /= 2 {
			err = errors.Join(err, spend(size))
		}
	}
	for range 3 {
		for size := int64(512 << 20); size > 1<<25; size /= 2 {
			err = errors.Join(err, spend(size))
		}
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d maps of sparse files were taken\n", taken)
	ready()
	for at := uint64(1) << 50; c.MapNoFD(at, &client.Memory{}, 0, 4096, client.ReadWrite) == nil; at += 8192 { // make the server allocate
	}
	for {
		if err := c.Reset(); err != nil {
			return err
		}
	}
}

const coldBytes = 512 << 20

func cold(channels int) func(string, func()) error {
	return func(socket string, ready func()) error {
		g, s, err := attach(socket, 0)
		if err != nil {
			return err
		}
		m, err := mapSparse(g, s, coldBytes)
		if err != nil {
			return err
		}
		var list []*guest.Channel
		for id := range channels {
			ch, err := g.NewChannel(id+1, s)
			if err != nil {
				return err
			}
			if err := ch.Finish(); err != nil {
				return err
			}
			list = append(list, ch)
		}
		const lines, launches = 8191, 16
		for ready(); ; {
			if err := renew(m, coldBytes); err != nil {
				return err
			}
			var fences []guest.Fence
			for k, ch := range list {
				var p guest.Push
				for i := k; i < launches; i += channels {
					from, to := uint64(i)*(coldBytes/launches), uint64((i+launches/2)%launches)*(coldBytes/launches)
					p.CopyLines(engine, guest.Surface{VA: vaSparse + to, Pitch: 4096}, guest.Surface{VA: vaSparse + from, Pitch: 4096}, 2, lines)
				}
				if err := ch.Submit(p.Words...); err != nil {
					return err
				}
				f, err := ch.Fence()
				if err != nil {
					return err
				}
				fences = append(fences, f)
			}
			for _, f := range fences {
				if err := g.Poll(f); err != nil {
					return err
				}
			}
		}
	}
}

const (
	vaSparse  = 0x20_0000_0000
	busSparse = uint64(0x1_0000_0000)
)

// mapSparse maps a sparse file in the machine and in an address space.
func mapSparse(g *guest.Guest, s *guest.Space, n int64) (*client.Memory, error) {
	m, err := sparseFile(n, 0)
	if err != nil {
		return nil, err
	}
	return m, errors.Join(
		g.Raw().Client().Map(busSparse, m, 0, uint64(n), client.ReadWrite),
		s.MapAddr(vaSparse, shadowpt.SystemCoherent, busSparse, uint64(n), guest.Small),
	)
}

func foreignFile(socket string, ready func()) error {
	fd, err := silentFile()
	if err != nil {
		return errors.New(skip + err.Error())
	}
	g, s, err := attach(socket, 0)
	if err != nil {
		return err
	}
	if err := g.Raw().Client().Map(busSparse, &client.Memory{FD: fd}, 0, silentSize, client.Readable); err != nil {
		fmt.Fprintf(os.Stderr, "the file was refused: %v\n", err)
		ready()
		select {}
	}
	if err := errors.Join(
		vram(g, s, largeCopy, vaTo), s.MapAddr(vaSparse, shadowpt.SystemCoherent, busSparse, silentSize, guest.Small|guest.ReadOnly),
	); err != nil {
		return err
	}
	var list []*guest.Channel
	for id := range guest.CopyEngines {
		ch, err := g.NewChannel(id+1, s)
		if err := errors.Join(err, ch.Finish()); err != nil {
			return err
		}
		list = append(list, ch)
	}
	ready()
	for id, ch := range list { // each holds another thread of the server
		if err := ch.Copy(guest.CopyEngines[id], vaTo, vaSparse+uint64(id)*4096, 4096); err != nil {
			return err
		}
	}
	select {}
}

func parked(socket string, ready func()) error { return bursts(socket, ready, 1) }

func unparked(socket string, ready func()) error { return bursts(socket, ready, 0) }

// bursts makes requests on 30 channels. Those of a burst wait until the burst before is done, or,
// if none is ahead, run at once.
func bursts(socket string, ready func(), ahead uint32) error {
	g, s, err := attach(socket, 0)
	if err != nil {
		return err
	}
	const channels, request = 30, 16 // copies of a channel in each burst
	sem, err := g.AllocRAM(4096)
	if err := errors.Join(err, vram(g, s, largeCopy, vaFrom, vaTo)); err != nil {
		return err
	}
	if err := s.Map(vaPage, sem, guest.Small); err != nil {
		return err
	}
	var list [channels]*guest.Channel
	for i := range list {
		if list[i], err = g.NewChannel(i+1, s); err != nil {
			return err
		}
	}
	var bursts [2][channels]guest.Fence
	for burst := uint32(1); ; burst++ {
		for i, ch := range list {
			var p guest.Push
			p.Semaphore(vaPage, burst, guest.SemAcquireGE|guest.SemSwitch)
			for range request {
				p.Copy(engine, vaTo, vaFrom, largeCopy)
			}
			if ahead == 0 {
				le.PutUint32(sem.Data, burst)
			}
			if err := ch.Submit(p.Words...); err != nil {
				return err
			}
			if bursts[burst%2][i], err = ch.Fence(); err != nil {
				return err
			}
		}
		if burst <= ahead {
			continue
		}
		le.PutUint32(sem.Data, burst-ahead)
		if burst == ahead+1 {
			ready()
		}
		for _, f := range bursts[(burst-ahead)%2] {
			if err := g.Poll(f); err != nil {
				return err
			}
		}
	}
}

// standing has channels wait for a value that a semaphore never has, and releases other values.
func standing(socket string, ready func()) error {
	g, s, err := attach(socket, 0)
	if err != nil {
		return err
	}
	const channels, never, releases = 30, 1 << 30, 64
	sem, err := g.AllocRAM(4096)
	if err := errors.Join(err, s.Map(vaPage, sem, guest.Small)); err != nil {
		return err
	}
	var p guest.Push
	for i := range uint32(releases) {
		p.Semaphore(vaPage, i, guest.SemRelease).Inc(0, push.HostYield, 0)
	}
	for i := 1; ; i++ {
		ch, err := g.NewChannel(i, s)
		if err != nil {
			return err
		}
		if i < channels {
			var wait guest.Push
			if err := ch.Submit(wait.Semaphore(vaPage, never, guest.SemAcquireGE|guest.SemSwitch).Words...); err != nil {
				return err
			}
			continue
		}
		for ready(); ; {
			for range underWay {
				err = errors.Join(err, ch.Submit(p.Words...))
			}
			f, ferr := ch.Fence()
			if err := errors.Join(err, ferr, g.Poll(f)); err != nil {
				return err
			}
		}
	}
}

// fullEventFD keeps an eventfd full, and makes room for moments, until the server stands in a
// write: then nobody makes room.
func fullEventFD(socket string, ready func()) error {
	c, err := dial(socket)
	if err != nil {
		return err
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return err
	}
	if err := c.SetIRQs(wire.IRQDataEventFD|wire.IRQActionTrigger, vfiouser.IRQMSI, 0, 1, nil, fd); err != nil {
		return err
	}
	full := make([]byte, 8)
	binary.NativeEndian.PutUint64(full, math.MaxUint64-1)
	go func() {
		for { // waits until there is room
			if _, err := unix.Write(fd, full); err != nil && err != unix.EINTR {
				return
			}
		}
	}()
	var answered atomic.Uint64
	go func() {
		var b [8]byte
		for {
			for range 100 {
				unix.Read(fd, b[:])
			}
			before := answered.Load()
			if time.Sleep(20 * time.Millisecond); answered.Load() == before { // it stands in a write
				time.Sleep(time.Hour)
			}
		}
	}()
	for ready(); ; answered.Add(1) {
		if err := c.SetIRQs(wire.IRQDataNone|wire.IRQActionTrigger, vfiouser.IRQMSI, 0, 1, nil); err != nil {
			return err
		}
	}
}

func listener(socket string, ready func()) error {
	g, s, err := attach(socket, 0)
	if err != nil {
		return err
	}
	sem, err := g.AllocRAM(4096)
	if err != nil {
		return err
	}
	if err := s.Map(vaPage, sem, guest.Small); err != nil {
		return err
	}
	ch, err := g.NewChannel(1, s)
	if err != nil {
		return err
	}
	var p guest.Push
	if err := errors.Join(ch.Finish(), ch.Submit(p.Semaphore(vaPage, 1, guest.SemAcquireGE|guest.SemSwitch).Words...)); err != nil {
		return err
	}
	f, err := ch.Fence()
	if err != nil {
		return err
	}
	ready()
	return g.Wait(f) // serves every event
}

func eventStorm(socket string, ready func()) error {
	g, s, err := attach(socket, 0)
	if err != nil {
		return err
	}
	ch, err := g.NewChannel(1, s)
	if err := errors.Join(err, vram(g, s, largeCopy, vaFrom, vaTo)); err != nil {
		return err
	}
	const piece = 64 << 10
	var p guest.Push
	for at := uint64(0); at < largeCopy; at += piece {
		p.Copy(engine, vaTo+at, vaFrom+at, piece).NonStall(engine)
	}
	for ready(); ; {
		for range underWay {
			err = errors.Join(err, ch.Submit(p.Words...))
		}
		f, ferr := ch.Fence()
		if err := errors.Join(err, ferr, g.Poll(f)); err != nil {
			return err
		}
	}
}

const useBytes = 1 << 30

func sparseUse(socket string, ready func()) error {
	g, s, err := attach(socket, 0)
	if err != nil {
		return err
	}
	m, err := mapSparse(g, s, useBytes)
	if err != nil {
		return err
	}
	ch, err := g.NewChannel(1, s)
	if err := errors.Join(err, vram(g, s, largeCopy, vaFrom)); err != nil {
		return err
	}
	for ready(); ; {
		for at := uint64(0); at < useBytes; at += largeCopy {
			if err := ch.Copy(engine, vaSparse+at, vaFrom, largeCopy); err != nil {
				return err
			}
		}
		if err := errors.Join(ch.Finish(), empty(m, useBytes)); err != nil {
			return err
		}
	}
}

// takeBack has the card touch all pages of a file, and takes them back all at once.
func takeBack(end bool) func(string, func()) error {
	const size, part, page, lines = 5 << 30, 1 << 30, 4096, 4096
	return func(socket string, ready func()) error {
		m, err := sparseFile(size, 0)
		if err = errors.Join(err, renew(m, size)); err != nil {
			return errors.New(skip + "too little memory: " + err.Error())
		}
		for {
			g, s, err := attach(socket, 0)
			if err != nil {
				return err
			}
			ch, err := g.NewChannel(1, s)
			err = errors.Join(err, vram(g, s, largeCopy, vaTo))
			for again := true; again && err == nil; again = !end {
				err = g.Raw().Client().Map(busSparse, m, 0, size, client.Readable)
				for at := uint64(0); at < size && err == nil; at += part { // tables of all would be too large
					err = s.MapAddr(vaSparse, shadowpt.SystemCoherent, busSparse+at, part, guest.Small|guest.ReadOnly)
					var p guest.Push
					for va := uint64(vaSparse); va < vaSparse+part; va += lines * page {
						p.CopyLines(engine, guest.Surface{VA: vaTo}, guest.Surface{VA: va, Pitch: page}, 2, lines)
					}
					err = errors.Join(err, ch.Submit(p.Words...), ch.Finish(), s.Unmap(vaSparse, part, guest.Small))
				}
				if ready(); !end && err == nil {
					err = g.Raw().Client().Unmap(busSparse, size)
				}
			}
			if err = errors.Join(err, g.Close()); err != nil {
				return err
			}
		}
	}
}

func hugePages(socket string, ready func()) error {
	const huge = 2 << 20
	m, err := sparseFile(4*huge, unix.MFD_HUGETLB)
	if err != nil {
		return errors.New(skip + "no huge pages: " + err.Error())
	}
	mem, err := unix.Mmap(m.FD, 0, 4*huge, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return errors.New(skip + "too few huge pages (vm.nr_hugepages): " + err.Error())
	}
	if err := unix.Munmap(mem); err != nil {
		return err
	}
	c, err := dial(socket)
	if err != nil {
		return err
	}
	taken := false
	for n := 0; ; n++ {
		at := uint64(n%3) * huge
		err := c.Map(at, m, at, 4096+uint64(n%2)*huge, client.ReadWrite)
		if taken = taken || err == nil; !taken && n == 10 {
			fmt.Fprintf(os.Stderr, "huge pages were refused: %v\n", err)
		}
		if err == nil {
			err = c.Unmap(at, 4096+uint64(n%2)*huge)
		}
		if n == 100 {
			ready()
		}
		if answer := client.Errno(0); err != nil && (!errors.As(err, &answer) || lost(answer)) {
			c.Close()
			if c, err = dial(socket); err != nil {
				return err
			}
		}
	}
}

// lost reports whether an errno is the connection's end and no answer.
func lost(e client.Errno) bool {
	return e == unix.EPIPE || e == unix.ECONNRESET || e == unix.EBADF || e == unix.ENOTCONN
}

func resets(socket string, ready func()) error {
	c, err := dial(socket)
	if err != nil {
		return err
	}
	for ready(); ; {
		if err := c.Reset(); err != nil {
			return err
		}
	}
}

func longRequest(socket string, ready func()) error {
	g, s, err := attach(socket, 0)
	if err != nil {
		return err
	}
	if err := vram(g, s, largeCopy, vaFrom, vaTo); err != nil {
		return err
	}
	ch, err := g.NewChannelWith(1, s, guest.ChannelConfig{Push: 256 << 10})
	if err != nil {
		return err
	}
	if err := ch.Finish(); err != nil {
		return err
	}
	var p guest.Push
	for range 1400 { // 512 MiB each, in lines that lie on each other
		p.CopyLines(engine, guest.Surface{VA: vaTo}, guest.Surface{VA: vaFrom}, 0xfffc, 8191)
	}
	for first := true; ; first = false {
		if err := ch.Submit(p.Words...); err != nil {
			return err
		}
		if first {
			ready()
		}
		if err := ch.Finish(); err != nil {
			return err
		}
	}
}

func endlessProgram(socket string, ready func()) error {
	g, s, err := attach(socket, 0)
	if err != nil {
		return err
	}
	code, err := g.AllocVRAM(shadowpt.SmallPage)
	if err != nil {
		return err
	}
	words, err := isa.Assemble("bra 0x0")
	if err != nil {
		return err
	}
	if err := errors.Join(code.Write(0, binary.LittleEndian.AppendUint64(nil, words[0])), s.Map(vaFrom, code, guest.Small)); err != nil {
		return err
	}
	ch, err := g.NewChannel(1, s)
	if err != nil {
		return err
	}
	const blocks, threads = 1024, 256
	p := new(guest.Push).SetObject(push.Compute).Launch(push.Compute.Subchan, push.Launch{Code: vaFrom, Blocks: blocks, Threads: threads})
	if err := ch.Submit(p.Words...); err != nil {
		return err
	}
	ready()
	return ch.Finish()
}
