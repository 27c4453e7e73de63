package shim

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Server gives each process that connects a Kernel on a card of its own.
type Server struct {
	cfg      Config
	record   bool
	recorder atomic.Pointer[Recorder] // of the process that came last
	listener *net.UnixListener
	serving  sync.WaitGroup
	mu       sync.Mutex
	errs     []error
}

// Listen starts a server on a socket, which may record what processes do.
func Listen(path string, cfg Config, record bool) (*Server, error) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, record: record, listener: l}, nil
}

// Serve serves processes until Close.
func (s *Server) Serve() {
	for {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			return
		}
		s.serving.Go(func() {
			defer conn.Close()
			if err := s.serve(conn); err != nil {
				s.mu.Lock()
				s.errs = append(s.errs, err)
				s.mu.Unlock()
			}
		})
	}
}

// Close waits for the processes that are served, and returns what went wrong.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.serving.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(append(s.errs, err)...)
}

const maxPacket = 160 << 10 // as in preload/shim.c

func (s *Server) serve(conn *net.UnixConn) (err error) {
	m, err := NewMachine(s.cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	var recorder *Recorder
	if s.record {
		recorder = NewRecorder(m)
		s.recorder.Store(recorder)
	}
	hello := []byte{0}
	if s.record {
		hello[0] = 1
	}
	if _, _, err := conn.WriteMsgUnix(hello, unix.UnixRights(int(m.file.Fd())), nil); err != nil {
		return nil // the process is gone
	}
	k := NewKernel(m, recorder)
	packet := make([]byte, maxPacket)
	for {
		n, err := conn.Read(packet)
		if err != nil || n == 0 {
			return k.Finish()
		}
		if p := k.answer(packet[:n]); p == nil {
			continue
		} else if _, err := conn.Write(p); err != nil {
			return k.Finish()
		}
	}
}
