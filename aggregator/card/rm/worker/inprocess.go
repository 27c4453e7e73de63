package worker

import (
	"cmp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
)

// InProcess is Start for tests: goroutines of this process are the other one, with a driver that the caller chooses.
func InProcess(sys nvrm.System, cfg Config, events Events) (*Worker, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Minute) // a fake driver copies with its lock held
	c, file, err := connect()
	if err != nil {
		return nil, err
	}
	its, err := newConn(file)
	if err != nil {
		c.Close()
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p := &process{conn: its, linger: true}
		_ = p.serve(func() (*nvrm.Client, error) { return nvrm.Open(sys, cfg.Minor, cfg.AnyDriver) }) // the server is gone
		if p.client != nil {
			p.client.Close()
		}
		for _, o := range p.objects { // as a process's end does
			if o.view != nil {
				unix.Munmap(o.view)
			}
		}
		if p.wake != 0 {
			unix.Close(p.wake)
		}
		its.Close()
	}()
	s := newWorker(c, cfg, events, func() {}, ended, func() string { return "over" })
	return s, s.open()
}
