package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
)

// process carries out what the server asks for. One goroutine receives, so that it sees the server's end during a
// call, one makes the calls, and one waits for events.
type process struct {
	conn *conn
	out  sync.Mutex // to send; below mu
	buf  []byte     // under out

	mu       sync.Mutex // for calls of the client, and what is below
	client   *nvrm.Client
	doorbell nvrm.File
	objects  map[uint32]*object
	spaces   map[uint32]*space
	channels map[uint32]*channel

	events   *nvrm.Events
	wake     int    // a file that ends the wait for events
	listened uint32 // engines that the file of events reports, as bits
	linger   bool   // serve waits for a call under way
}

type object struct {
	*nvrm.Memory
	view []byte // of a registered file
}

type space struct {
	*nvrm.Space
	paused bool
}

type channel struct {
	*nvrm.Channel
	space   *space
	own     *object
	engine  int32
	enabled bool
	stopped bool // and reported
}

// asked is a request with what came with it.
type asked struct {
	request
	steps []Step
	file  *os.File
}

// serve serves the server until that closes the connection. It opens the client by open.
func (p *process) serve(open func() (*nvrm.Client, error)) error {
	p.objects, p.spaces, p.channels = make(map[uint32]*object), make(map[uint32]*space), make(map[uint32]*channel)
	requests, done := make(chan asked), make(chan struct{})
	go func() {
		defer close(done)
		p.work(requests, open)
	}()
	var body, rest []byte
	steps := make([]Step, maxSteps)
	for {
		// The server sends the next request after the answer, so the steps have one reader at a time.
		var a asked
		var err error
		if body, a.file, err = p.conn.receive(body, requestBytes+maxSteps*stepBytes); err == nil {
			rest, err = decode(body, &a.request, requestBytes)
			a.steps = steps[:copy(bytesOf(steps), rest)/stepBytes]
		}
		if err != nil {
			close(requests)
			if p.linger {
				<-done
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		requests <- a
	}
}

// work makes the calls.
func (p *process) work(requests <-chan asked, open func() (*nvrm.Client, error)) {
	var watching sync.WaitGroup
	defer watching.Wait()
	defer p.close()
	for a := range requests {
		var r reply
		var err error
		switch {
		case a.Call == callOpen:
			if err = p.open(open); err == nil {
				watching.Go(p.watch)
			}
		case int(a.Call) >= len(calls) || p.client == nil:
			err = fmt.Errorf("call %d: the process has no client of the driver, or no such call", a.Call)
		default:
			p.mu.Lock()
			err = calls[a.Call].do(p, &a, &r)
			p.mu.Unlock()
		}
		if a.file != nil {
			a.file.Close()
		}
		if err != nil {
			r.Kind, r.text = failed, []byte(err.Error())
			if e := new(nvrm.Error); errors.As(err, &e) {
				r.Status, r.text = e.Status, []byte(e.Call)
			}
		}
		p.send(r)
	}
}

// open makes the client and its file of events.
func (p *process) open(open func() (*nvrm.Client, error)) (err error) {
	if p.client, err = open(); err != nil {
		return err
	}
	if p.events, err = p.client.Listen(); err == nil {
		p.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC)
	}
	return err
}

// close ends the wait for events.
func (p *process) close() {
	if p.wake == 0 {
		return
	}
	unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// send sends an answer. An error means that the server is gone, which the receiver sees too.
func (p *process) send(r reply) {
	p.out.Lock()
	defer p.out.Unlock()
	p.buf = append(message(p.buf, &r.answer), r.text[:min(len(r.text), maxText)]...)
	_ = p.conn.send(p.buf, r.file)
}

// watch waits for events of the driver, and reports them. After an error it looks at the channels' notifiers
// several times, since the driver may write them later.
func (p *process) watch() {
	const again, interval = 20, 50e6 // ns
	fds := []unix.PollFd{{Fd: int32(p.events.OS().Fd()), Events: unix.POLLIN | unix.POLLPRI}, {Fd: int32(p.wake), Events: unix.POLLIN}}
	looks := 0
	for {
		var timeout *unix.Timespec
		if looks > 0 {
			looks--
			timeout = &unix.Timespec{Nsec: interval}
		}
		if _, err := unix.Ppoll(fds, timeout, nil); err != nil && !errors.Is(err, unix.EINTR) || fds[1].Revents != 0 {
			return
		}
		engines := uint32(0)
		for {
			n, ok, err := p.events.Next()
			if err != nil || !ok {
				break
			}
			if n.Error {
				looks = again
			} else {
				engines |= engineBit(int32(n.Engine))
			}
		}
		p.report(engines, looks > 0)
	}
}

// report tells the server which engines that have channels completed work, and which channels stopped.
func (p *process) report(engines uint32, look bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	used := uint32(0)
	for number, c := range p.channels {
		used |= engineBit(c.engine)
		if status := binary.LittleEndian.Uint16(c.own.view[nvrm.NotifierStatus:]); !look || c.stopped || status != nvrm.NotifierSet {
			continue
		}
		c.stopped = true
		a := reply{answer: answer{Kind: stopped, Number: number, Xid: binary.LittleEndian.Uint32(c.own.view[nvrm.NotifierXid:])}}
		if f, err := p.client.Fault(c.Channel); err == nil && a.Xid == xidMMUFault {
			a.FaultVA, a.FaultType, a.text = f.VA, f.Type, []byte(f.Text)
		}
		p.send(a)
	}
	if engines &= used; engines != 0 {
		p.send(reply{answer: answer{Kind: completed, Number: engines}})
	}
}

// xidMMUFault is the driver's number of MMU faults.
const xidMMUFault = 31

// mapFile maps n bytes of a file.
func mapFile(f *os.File, off, n uint64) ([]byte, error) {
	const limit = 1 << 46 // more than a process has
	if f == nil || n == 0 || n > limit || off > limit {
		return nil, fmt.Errorf("no file, or bytes %#x to %#x of it", off, off+n)
	}
	view, err := unix.Mmap(int(f.Fd()), int64(off), int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return view, nil
}
