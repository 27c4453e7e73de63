package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/umbra-gpu/umbra/cmd/api"
)

// Names of files in the server's folder.
const (
	configFile    = "umbra.yaml"
	controlSocket = "control.sock"
	logFile       = "serve.log"
)

// server is umbra serve in a process that ends with this one.
type server struct {
	*api.Client
	dir   string
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // of Wait; valid after ended
}

func buildUmbra(ctx context.Context, dir string) (string, error) {
	bin := filepath.Join(dir, "umbra")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/umbra-gpu/umbra/cmd/umbra").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building umbra: %w\n%s", err, out)
	}
	return bin, nil
}

// startServer runs umbra serve in a folder that has its configuration, and waits
// until it serves.
func startServer(ctx context.Context, bin, dir string) (*server, error) {
	s := &server{
		Client: api.NewClient(filepath.Join(dir, controlSocket)), dir: dir, ended: make(chan struct{}),
		cmd: exec.Command(bin, "serve", "--config", configFile),
	}
	log, err := os.Create(filepath.Join(dir, logFile))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = dir, log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // the demo forwards Ctrl-C
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // Pdeathsig fires when the thread ends that started the child
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			s.err = s.cmd.Wait()
			close(s.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	for {
		if _, err := s.Status(ctx); err == nil {
			return s, nil
		}
		select {
		case <-s.ended:
			return nil, fmt.Errorf("umbra serve ended: %w\n%s", s.err, s.log())
		case <-ctx.Done():
			s.kill()
			return nil, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *server) log() string {
	text, err := os.ReadFile(filepath.Join(s.dir, logFile))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// stop ends the server by SIGTERM. It fails unless the server ends in good order.
func (s *server) stop(ctx context.Context) error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, settle, errors.New("the server ignores SIGTERM"))
	defer cancel()
	select {
	case <-s.ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.err != nil {
		return s.err
	}
	left, err := filepath.Glob(filepath.Join(s.dir, "*.sock"))
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("the server left sockets: %s", strings.Join(left, ", "))
	}
	return err
}

// kill ends the server if it still runs.
func (s *server) kill() {
	s.cmd.Process.Kill() // fails only for a process that has ended
	<-s.ended
}
