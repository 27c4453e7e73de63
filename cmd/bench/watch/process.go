package watch

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// process is a program that writes a line to its standard output once it is ready.
type process struct {
	cmd   *exec.Cmd
	ready chan struct{}
	ended chan struct{} // closed when it has ended
	once  sync.Once
	log   log
}

// log collects what a program says.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (p *process) stderr() string {
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	return p.log.text.String()
}

// Write implements io.Writer: the program is ready.
func (p *process) Write(b []byte) (int, error) {
	p.once.Do(func() { close(p.ready) })
	return len(b), nil
}

// start starts umbra, and waits until it is ready, or ctx ends. The process is never nil, and goes
// on after ctx.
func start(ctx context.Context, path string, args ...string) (*process, error) {
	p := &process{ready: make(chan struct{}), ended: make(chan struct{})}
	p.cmd = exec.Command(path, args...)
	p.cmd.Args[0] = "umbra"
	p.cmd.Stdout, p.cmd.Stderr = p, &p.log
	if err := p.cmd.Start(); err != nil {
		close(p.ended)
		return p, err
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // its messages say why it ended
	}()
	select {
	case <-p.ready:
		return p, nil
	case <-ctx.Done():
		return p, ctx.Err()
	case <-p.ended:
		return p, fmt.Errorf("umbra %s ended: %s", strings.Join(args, " "), cmp.Or(lastLine(p.stderr()), "no message"))
	}
}

func (p *process) terminate() { _ = p.cmd.Process.Signal(syscall.SIGTERM) } // it may have ended

// kill ends it at once, if it has not ended, and waits for that.
func (p *process) kill() {
	if p.cmd.Process != nil {
		_ = p.cmd.Process.Kill()
	}
	<-p.ended
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for _, l := range lines { // the first line of a crash says why
		if strings.HasPrefix(l, "fatal error:") || strings.HasPrefix(l, "panic:") || strings.HasPrefix(l, "runtime:") {
			return l
		}
	}
	return lines[len(lines)-1]
}
