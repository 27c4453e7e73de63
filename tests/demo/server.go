package main

import (
	"bytes"
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
	"github.com/umbra-gpu/umbra/cmd/serve"
)

// server is a running umbra serve.
type server interface {
	Status(ctx context.Context) (api.Status, error)
	Report(ctx context.Context) (serve.Report, error)
	Registers(ctx context.Context, gpu string) (serve.PolicyTable, error)
	// Command runs another command of umbra, and returns what it printed, with
	// dots for the long name of the server's folder.
	Command(ctx context.Context, args ...string) (string, error)
	// Log is what the server has logged so far.
	Log() (string, error)
	// Stop asks it to end, and fails unless it does so in good order.
	Stop(ctx context.Context) error
}

// Names of files in the server's folder.
const (
	configFile    = "umbra.yaml"
	controlSocket = "control.sock"
	outputFile    = "serve.out"
	logFile       = "serve.log"
)

// process is umbra serve as a process of its own, that ends with this one.
type process struct {
	*api.Client
	bin, dir string
	cmd      *exec.Cmd
	ended    chan struct{}
	err      error // of Wait; valid after ended
}

// buildUmbra builds the command into a folder.
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
func startServer(ctx context.Context, bin, dir string) (_ *process, err error) {
	s := &process{
		Client: api.NewClient(filepath.Join(dir, controlSocket)), bin: bin, dir: dir, ended: make(chan struct{}),
		cmd: exec.Command(bin, "serve", "--config", configFile),
	}
	s.cmd.Dir = dir
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // ctrl-C is this process' to pass on
	stdout, err := os.Create(filepath.Join(dir, outputFile))
	if err != nil {
		return nil, err
	}
	defer stdout.Close() // the child has its own
	stderr, err := os.Create(filepath.Join(dir, logFile))
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	s.cmd.Stdout, s.cmd.Stderr = stdout, stderr
	started := make(chan error)
	go func() {
		// The kernel ends the child when the thread ends that made it.
		runtime.LockOSThread()
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
			log, _ := s.Log()
			return nil, fmt.Errorf("umbra serve ended: %w\n%s", s.err, log)
		case <-ctx.Done():
			s.kill()
			return nil, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *process) Command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.bin, append(args, "--control", controlSocket)...)
	cmd.Dir = s.dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("umbra %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.ReplaceAll(string(out), s.dir, "..."), err
}

func (s *process) Log() (string, error) {
	b, err := os.ReadFile(filepath.Join(s.dir, logFile))
	return string(b), err
}

// stopPatience is how long a server may take to end.
const stopPatience = 30 * time.Second

func (s *process) Stop(ctx context.Context) error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(stopPatience):
		return fmt.Errorf("still there %v after SIGTERM", stopPatience)
	}
	if s.err != nil {
		return s.err
	}
	left, err := filepath.Glob(filepath.Join(s.dir, "*.sock"))
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("it left sockets behind: %v", left)
	}
	return err
}

// kill ends it for good, if it has not ended.
func (s *process) kill() {
	s.cmd.Process.Kill() // fails only for a process that has ended
	<-s.ended
}
