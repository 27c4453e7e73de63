package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/lab"
)

// Names of files in the folder of a Process. The configuration must name the socket.
const (
	ConfigFile    = "umbra.yaml"
	ControlSocket = "control.sock"
	logFile       = "serve.log"
)

// Process is umbra serve in a process that ends with this one.
type Process struct {
	*api.Client
	*lab.Process
	Dir string
}

// BuildUmbra builds umbra in a folder.
func BuildUmbra(ctx context.Context, dir string) (string, error) {
	bin := filepath.Join(dir, "umbra")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/umbra-gpu/umbra/cmd/umbra").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building umbra: %w\n%s", err, out)
	}
	return bin, nil
}

// StartProcess runs umbra serve in a folder that has its configuration, and waits
// until it serves.
func StartProcess(ctx context.Context, bin, dir string) (*Process, error) {
	log, err := os.Create(filepath.Join(dir, logFile))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(bin, "serve", "--config", ConfigFile)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the caller forwards Ctrl-C
	s := &Process{Client: api.NewClient(filepath.Join(dir, ControlSocket)), Dir: dir}
	if s.Process, err = lab.StartProcess(cmd); err != nil {
		return nil, err
	}
	for {
		if _, err := s.Status(ctx); err == nil {
			return s, nil
		}
		select {
		case <-s.Ended:
			return nil, fmt.Errorf("umbra serve ended: %w\n%s", s.Err, s.Log())
		case <-ctx.Done():
			s.Kill()
			return nil, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Log is what the server wrote.
func (s *Process) Log() string {
	text, err := os.ReadFile(filepath.Join(s.Dir, logFile))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Stop ends the server by SIGTERM. It fails unless the server ends in good order.
func (s *Process) Stop(ctx context.Context) error {
	if err := s.Cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the server ignores SIGTERM"))
	defer cancel()
	select {
	case <-s.Ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.Err != nil {
		return s.Err
	}
	left, err := filepath.Glob(filepath.Join(s.Dir, "*.sock"))
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("the server left sockets: %s", strings.Join(left, ", "))
	}
	return err
}
