package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

type benchCmd struct {
	Traps trapsCmd `cmd:"" help:"Measure what an access to a trapped register costs over the bare socket."`
}

type trapsCmd struct {
	Transport string `placeholder:"NAME" default:"native" enum:"native,libvfio-user,both" help:"native, libvfio-user, or both by turns in one run, with ratios."`
	Repeat    int    `placeholder:"N" default:"9" help:"Rounds; the medians are shown."`
	Count     int    `placeholder:"N" default:"4000" help:"Accesses of each kind a round."`
	JSON      bool   `name:"json" help:"Write one JSON document."`
}

// trapFigure is one kind of access: nanoseconds an access, by transport.
type trapFigure struct {
	Access string             `json:"access"`
	NS     map[string]float64 `json:"ns"`
	// Ratio is the library's time over the native one's: the median of the rounds'.
	Ratio float64 `json:"libvfio_user_over_native,omitempty"`
}

// trapKinds are the accesses measured: how many messages go out at once, and
// whether they want replies.
var trapKinds = []struct {
	name  string
	batch int
	write bool
	flags uint32
}{
	{"read", 1, false, 0},
	{"write", 1, true, 0},
	{"32 pipelined reads, each", 32, false, 0},
	{"32 pipelined writes, each", 32, true, 0},
	{"32 posted writes and a read, each", 32, true, wire.NoReply},
	{"1,000 posted writes and a read, each", 1000, true, wire.NoReply},
}

func (c *trapsCmd) Run(ctx context.Context, out output) error {
	if c.Repeat < 1 || c.Count < 1 {
		return &config.Error{Where: "--repeat and --count", Value: fmt.Sprintf("%d, %d", c.Repeat, c.Count), Reason: "must be 1 or more"}
	}
	names := []string{c.Transport}
	if c.Transport == "both" {
		names = []string{serve.TransportNative, serve.TransportLibrary}
	}
	dir, err := os.MkdirTemp("", "umbra-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var lines []*trapLine
	for i, name := range names {
		l, err := newTrapLine(ctx, name, filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		defer l.close()
		lines = append(lines, l)
	}
	runtime.LockOSThread() // as the serving threads are
	defer runtime.UnlockOSThread()
	var figures []trapFigure
	for _, k := range trapKinds {
		values := make([][]float64, len(lines))
		var ratios []float64
		for range c.Repeat {
			for i, l := range lines { // by turns, so that the machine's mood hits all
				if ctx.Err() != nil {
					return ctx.Err()
				}
				ns, err := l.measure(k.batch, k.write, k.flags, c.Count)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", l.name, k.name, err)
				}
				values[i] = append(values[i], ns)
			}
			if len(lines) == 2 {
				ratios = append(ratios, last(values[1])/last(values[0]))
			}
		}
		f := trapFigure{Access: k.name, NS: map[string]float64{}}
		for i, l := range lines {
			f.NS[l.name] = median(values[i])
		}
		if len(ratios) > 0 {
			f.Ratio = median(ratios)
		}
		figures = append(figures, f)
	}
	if c.JSON {
		return json.NewEncoder(out.stdout).Encode(figures)
	}
	_, err = fmt.Fprint(out.stdout, trapTable(names, figures))
	return err
}

func last(v []float64) float64 { return v[len(v)-1] }

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

func trapTable(names []string, figures []trapFigure) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "access\t%s, ns", strings.Join(names, ", ns\t"))
	if len(names) == 2 {
		fmt.Fprint(w, "\tratio")
	}
	fmt.Fprintln(w)
	for _, f := range figures {
		fmt.Fprint(w, f.Access)
		for _, n := range names {
			fmt.Fprintf(w, "\t%.0f", f.NS[n])
		}
		if len(names) == 2 {
			fmt.Fprintf(w, "\t%.2f", f.Ratio)
		}
		fmt.Fprintln(w)
	}
	w.Flush() // a strings.Builder takes everything
	return b.String()
}

// trapLine is a card behind one transport, and a connection to it.
type trapLine struct {
	name  string
	fd    int
	close func()
}

func newTrapLine(ctx context.Context, name, path string) (l *trapLine, err error) {
	by, _, err := serve.TransportNamed(name)
	if err != nil {
		return nil, err
	}
	card, err := soft.New(soft.Config{VRAM: soft.MinVRAM})
	if err != nil {
		return nil, err
	}
	listening := make(chan struct{})
	t, err := by(serve.NewPassThrough(card), vfiouser.Options{Listening: func() { close(listening) }})
	if err != nil {
		return nil, errors.Join(err, card.Close())
	}
	serving, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- t.ListenAndServe(serving, path) }()
	l = &trapLine{name: name, fd: -1}
	l.close = func() {
		if l.fd >= 0 {
			unix.Close(l.fd)
		}
		cancel()
		<-served
		t.Close()
		card.Close()
	}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	select {
	case <-listening:
	case err := <-served:
		served <- err // for close
		return nil, err
	}
	if l.fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, err
	}
	if err := unix.Connect(l.fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, err
	}
	// The client negotiates on a duplicate, which it keeps.
	dup, err := unix.FcntlInt(uintptr(l.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	c, err := client.NewFD(dup, nil)
	if err != nil {
		return nil, err
	}
	return l, c.Close()
}

// Registers that are accessed: the first one of the chip, and the last of PBUS's
// scratch registers, which has no effect.
const (
	trapRead  = 0x000000
	trapWrite = 0x0014fc
)

// measure makes about n accesses, batch at a time, and returns how long one took.
func (l *trapLine) measure(batch int, write bool, flags uint32, n int) (ns float64, err error) {
	var raw []byte
	want := 0
	for i := range batch {
		a := wire.RegionAccess{Offset: trapRead, Count: 4}
		cmd, data, reply := wire.RegionRead, []byte(nil), wire.HeaderSize+wire.RegionAccessSize+4
		if write {
			a.Offset = trapWrite
			cmd, data, reply = wire.RegionWrite, []byte{byte(i), 0, 0, 0}, wire.HeaderSize+wire.RegionAccessSize
		}
		raw = appendAccess(raw, cmd, flags, a, data)
		if flags&wire.NoReply == 0 {
			want += reply
		}
	}
	if flags&wire.NoReply != 0 { // the read behind them tells that they are done
		raw = appendAccess(raw, wire.RegionRead, 0, wire.RegionAccess{Offset: trapRead, Count: 4}, nil)
		want += wire.HeaderSize + wire.RegionAccessSize + 4
	}
	buf := make([]byte, 64<<10)
	done := 0
	began := time.Now()
	for ; done < n; done += batch {
		if _, err := unix.Write(l.fd, raw); err != nil {
			return 0, os.NewSyscallError("write", err)
		}
		for got := 0; got < want; {
			k, err := unix.Read(l.fd, buf)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || k == 0 {
				return 0, fmt.Errorf("the server has gone: %w", errors.Join(err, unix.ECONNRESET))
			}
			got += k
		}
	}
	return float64(time.Since(began)) / float64(done), nil
}

func appendAccess(b []byte, cmd wire.Command, flags uint32, a wire.RegionAccess, data []byte) []byte {
	var h [wire.HeaderSize]byte
	wire.Header{ID: 7, Command: cmd, Size: uint32(wire.HeaderSize + wire.RegionAccessSize + len(data)), Flags: flags}.Put(h[:])
	return append(a.Append(append(b, h[:]...)), data...)
}
